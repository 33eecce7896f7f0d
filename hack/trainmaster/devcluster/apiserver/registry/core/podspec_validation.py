"""Rules of pod specs, which pods and the templates of jobs share."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.field_errors import negative, unsupported
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


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
    for field in _CONTAINER_LISTS:
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
