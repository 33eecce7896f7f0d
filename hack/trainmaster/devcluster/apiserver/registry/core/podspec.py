"""Pod specs, which pods and the templates of jobs share: their defaults and their rules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trainmaster.devcluster.apiserver.errors import FieldError, negative, unsupported
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_DEFAULT_MODE = 0o644
_TOKEN_LIFETIME = 3600
_LOST_NODE_SECONDS = 300
_SOURCES_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in what a pod spec leaves open."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    # Both names of the service account mean the same; the older one is kept in step for older clients.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for container in _containers(spec):
        _default_container(container)


def default_pod(spec: JsonObject) -> None:
    """Fill in what only a pod gets, not the template of one."""
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    _tolerate_lost_nodes(spec)
    # A limit is also a request where none is given, so that the scheduler counts it.
    for container in _containers(spec):
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _tolerate_lost_nodes(spec: JsonObject) -> None:
    """Let the pod stay for a while on a node that is lost, unless it says something about that itself."""
    given = spec.get("tolerations") or []
    for condition in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            each.get("key") in (condition, None, "") and each.get("effect") in ("NoExecute", None, "") for each in given
        ):
            toleration = {"key": condition, "operator": "Exists", "effect": "NoExecute"}
            given = [*given, {**toleration, "tolerationSeconds": _LOST_NODE_SECONDS}]
    spec["tolerations"] = given


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    return chain.from_iterable(spec.get(field) or () for field in _CONTAINER_LISTS)


def _default_container(container: JsonObject) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        field = (variable.get("valueFrom") or {}).get("fieldRef")
        if field is not None:
            field.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            _default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet") is not None:
            _default_http_get(hook["httpGet"])


def _pull_policy(image: str) -> str:
    """Images without a tag or digest, and those called latest, are pulled always."""
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    return "Always" if name.partition(":")[2] in ("", "latest") else "IfNotPresent"


def _default_probe(probe: JsonObject) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(field):
            probe[field] = value
    if probe.get("httpGet") is not None:
        _default_http_get(probe["httpGet"])
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")


def _default_http_get(action: JsonObject) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _default_volume(volume: JsonObject) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for source in _SOURCES_WITH_MODE:
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", _DEFAULT_MODE)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    projected = (volume.get("projected") or {}).get("sources") or ()
    for each in projected:
        if each.get("serviceAccountToken") is not None:
            each["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_LIFETIME)
    downward = [volume.get("downwardAPI") or {}, *(each.get("downwardAPI") or {} for each in projected)]
    for item in chain.from_iterable(each.get("items") or () for each in downward):
        if item.get("fieldRef") is not None:
            item["fieldRef"].setdefault("apiVersion", "v1")


_CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")


def validate_pod_spec(spec: JsonObject, path: str) -> list[FieldError]:
    """Check a defaulted pod spec as far as the kubelet and the scheduler rely on it."""
    return list(_validate(spec, path))


def _validate(spec: JsonObject, path: str) -> Iterator[FieldError]:
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _validate_name(volume, f"{path}.volumes[{index}].name", volumes)
    if not spec.get("containers"):
        yield FieldError(f"{path}.containers", "Required")
    names: set[str] = set()
    for field in _CONTAINER_FIELDS:
        for index, container in enumerate(spec.get(field) or ()):
            yield from _validate_container(container, f"{path}.{field}[{index}]", names, volumes)
    if spec["restartPolicy"] not in ("Always", "Never", "OnFailure"):
        yield unsupported(f"{path}.restartPolicy", spec["restartPolicy"], ["Always", "Never", "OnFailure"])
    yield from _validate_scalar(spec, path)


def _validate_scalar(spec: JsonObject, path: str) -> Iterator[FieldError]:
    if spec["dnsPolicy"] not in ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"):
        yield unsupported(
            f"{path}.dnsPolicy", spec["dnsPolicy"], ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]
        )
    if spec["terminationGracePeriodSeconds"] < 0:
        yield negative(f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"])
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        yield FieldError(
            f"{path}.activeDeadlineSeconds", "Invalid", deadline, "must be between 1 and 2147483647, inclusive"
        )
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            for problem in dns_label(spec[field]):
                yield FieldError(f"{path}.{field}", "Invalid", spec[field], problem)
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if spec.get(field):
            for problem in dns_subdomain(spec[field]):
                yield FieldError(f"{path}.{field}", "Invalid", spec[field], problem)


def _validate_container(container: JsonObject, path: str, names: set[str], volumes: set[str]) -> Iterator[FieldError]:
    yield from _validate_name(container, f"{path}.name", names)
    if not container.get("image") and ".containers[" not in path:
        yield FieldError(f"{path}.image", "Required")
    elif container.get("image", "").strip() != container.get("image", ""):
        yield FieldError(f"{path}.image", "Invalid", container["image"], "must not have leading or trailing whitespace")
    if container["imagePullPolicy"] not in ("Always", "IfNotPresent", "Never"):
        yield unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], ["Always", "IfNotPresent", "Never"])
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield FieldError(f"{path}.env[{index}].name", "Required")
        if variable.get("value") and variable.get("valueFrom"):
            detail = "may not be specified when `value` is not empty"
            yield FieldError(f"{path}.env[{index}].valueFrom", "Invalid", "", detail)
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort", 0)
        if not 1 <= number <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            yield FieldError(f"{path}.ports[{index}].containerPort", "Invalid", number, detail)
    mounted = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = f"{path}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            yield FieldError(f"{here}.name", "NotFound", mount.get("name", ""))
        target = mount.get("mountPath")
        if not target:
            yield FieldError(f"{here}.mountPath", "Required")
        elif target in mounted:
            yield FieldError(f"{here}.mountPath", "Invalid", target, "must be unique")
        mounted.add(target)


def _validate_name(item: JsonObject, path: str, seen: set[str]) -> Iterator[FieldError]:
    name = item.get("name")
    if not name:
        yield FieldError(path, "Required")
        return
    for problem in dns_label(name):
        yield FieldError(path, "Invalid", name, problem)
    if name in seen:
        yield FieldError(path, "Duplicate", name)
    seen.add(name)
