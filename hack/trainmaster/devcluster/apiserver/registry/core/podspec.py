"""What the server gives a pod spec that leaves it open; pods and the templates of jobs share most of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from trainmaster.devcluster.apiserver.registry.core.container_validation import (
    is_huge_page,
    requested_by_containers,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import Quantity

_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_DEFAULT_MODE = 0o644
_TOKEN_LIFETIME = 3600
_LOST_NODE_SECONDS = 300
_SPEC: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_VOLUMES: Mapping[str, Mapping[str, Any]] = {
    "secret": {"defaultMode": _DEFAULT_MODE},
    "configMap": {"defaultMode": _DEFAULT_MODE},
    "downwardAPI": {"defaultMode": _DEFAULT_MODE},
    "projected": {"defaultMode": _DEFAULT_MODE},
    "hostPath": {"type": ""},
}
_COMPUTE = ("cpu", "memory")


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in what a pod spec leaves open."""
    _drop_disabled(spec)
    _omit_empty(spec)
    for field, value in _SPEC.items():
        if not spec.get(field):
            spec[field] = value
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    # Both names of the service account mean the same; the older one is kept in step for older clients.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for container in containers(spec):
        _default_container(container)


def default_pod(spec: JsonObject) -> None:
    """Fill in what only a pod gets, not the template of one."""
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    _tolerate_lost_nodes(spec)
    # A limit is also a request where none is given, so that the scheduler counts it.
    for container in containers(spec):
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    if spec.get("resources"):
        _default_pod_resources(spec["resources"], spec)
    if spec.get("hostNetwork"):
        for port in chain.from_iterable(container.get("ports") or () for container in containers(spec)):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _drop_disabled(spec: JsonObject) -> None:
    """Drop what kube-apiserver 1.36 knows and does not keep, because its feature gate is off."""
    for container in containers(spec):
        lifecycle = container.get("lifecycle")
        if lifecycle and lifecycle.pop("stopSignal", None) is not None and not lifecycle:
            del container["lifecycle"]
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            source.pop("clusterTrustBundle", None)
            source.pop("podCertificate", None)


def _default_pod_resources(resources: JsonObject, spec: JsonObject) -> None:
    """Complete what a pod asks for as a whole: by what its containers ask for, else by its limits."""
    limits = resources.get("limits") or {}
    requests = dict(resources.get("requests") or {})
    for name, total in requested_by_containers(spec).items():
        if name in _COMPUTE:
            requests.setdefault(name, str(total))
    for name, limit in limits.items():
        if name in _COMPUTE or is_huge_page(name):
            requests.setdefault(name, limit)
    if requests:
        resources["requests"] = requests


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


def containers(spec: JsonObject) -> Iterator[JsonObject]:
    """Yield the init containers, the containers and the ephemeral containers of a pod."""
    return chain.from_iterable(spec.get(field) or () for field in _CONTAINER_LISTS)


def _default_container(container: JsonObject) -> None:
    for field, value in (("terminationMessagePath", "/dev/termination-log"), ("terminationMessagePolicy", "File")):
        if not container.get(field):
            container[field] = value
    container.setdefault("resources", {})
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        _default_references(variable.get("valueFrom") or {})
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            _default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet") is not None:
            _default_http_get(hook["httpGet"])


def _default_references(source: JsonObject) -> None:
    if (field := source.get("fieldRef")) is not None and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    if (resource := source.get("resourceFieldRef")) is not None:
        resource.setdefault("divisor", "0")
    if (file := source.get("fileKeyRef")) is not None:
        file.setdefault("optional", False)


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
    for field, value in (("path", "/"), ("scheme", "HTTP")):
        if not action.get(field):
            action[field] = value


def _default_volume(volume: JsonObject) -> None:
    if all(value is None for field, value in volume.items() if field != "name"):
        volume["emptyDir"] = {}
    for source, defaults in _VOLUMES.items():
        if volume.get(source) is not None:
            for field, value in defaults.items():
                volume[source].setdefault(field, value)
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference") or "")
    projected = (volume.get("projected") or {}).get("sources") or ()
    for each in projected:
        if each.get("serviceAccountToken") is not None:
            each["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_LIFETIME)
    downward = [volume.get("downwardAPI") or {}, *(each.get("downwardAPI") or {} for each in projected)]
    for item in chain.from_iterable(each.get("items") or () for each in downward):
        _default_references(item)
    if (template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate")) is not None:
        template.setdefault("metadata", {})
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def add_label_keys(spec: JsonObject, labels: JsonObject) -> None:
    """Select by the labels of the pod whose keys its affinities and constraints name."""
    affinity = spec.get("affinity") or {}
    for field in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(field) or {}
        for term in given.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _add_keys(term, labels)
        for weighted in given.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            _add_keys(weighted.get("podAffinityTerm") or {}, labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _add_keys(constraint, labels)


def _add_keys(term: JsonObject, labels: JsonObject) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if added:
        term["labelSelector"] = {
            **copy_tree(selector),
            "matchExpressions": [*(selector.get("matchExpressions") or ()), *added],
        }


_KEPT_IN_SPEC = frozenset(
    {
        *("securityContext", "affinity", "dnsConfig", "os", "containers", "resources", "schedulingGroup"),
        *("automountServiceAccountToken", "enableServiceLinks", "shareProcessNamespace", "setHostnameAsFQDN"),
        *("hostUsers", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "priority", "preemptionPolicy"),
        *("runtimeClassName", "hostnameOverride"),
    }
)
_KEPT_IN_CONTAINERS = frozenset(
    {
        *("name", "resources", "securityContext", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"),
        "restartPolicy",
    }
)
_OMITTED_IN_MOUNTS = ("readOnly", "subPath", "subPathExpr")
_EMPTY: tuple[Any, ...] = ("", False, [], {})


def _omit_empty(spec: JsonObject) -> None:
    """Leave out what says nothing, as the real server does where a field cannot tell that from being absent."""
    _omit(spec, _KEPT_IN_SPEC)
    for container in containers(spec):
        _omit(container, _KEPT_IN_CONTAINERS)
        for variable in container.get("env") or ():
            if variable.get("value") == "":
                del variable["value"]
        for mount in container.get("volumeMounts") or ():
            for field in _OMITTED_IN_MOUNTS:
                if mount.get(field) in ("", False):
                    del mount[field]
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            if (container.get(name) or {}).get("initialDelaySeconds") == 0:
                del container[name]["initialDelaySeconds"]


def _omit(obj: JsonObject, kept: frozenset[str]) -> None:
    for field in [field for field, value in obj.items() if value in _EMPTY and field not in kept]:
        del obj[field]


def qos_class(spec: JsonObject) -> str:
    """Return the class: Guaranteed, Burstable or BestEffort; nothing counts as asked for if its amount is zero."""
    of_pod = spec.get("resources") or {}
    if of_pod.get("requests") or of_pod.get("limits"):
        asked = [of_pod]
    else:
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        asked = [container.get("resources") or {} for container in containers]
    if not any(map(bool, asked)):
        return "BestEffort"
    requests = _total(resources.get("requests") for resources in asked)
    limits = _total(resources.get("limits") for resources in asked)
    if not requests and not limits:
        return "BestEffort"
    complete = all(_total([resources.get("limits")]).keys() == set(_COMPUTE) for resources in asked)
    return "Guaranteed" if complete and requests == limits else "Burstable"


def _total(amounts: Iterable[JsonObject | None]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for each in amounts:
        for name in _COMPUTE:
            if each and name in each and (quantity := Quantity.parse(each[name])).nano > 0:
                total[name] = total[name] + quantity if name in total else quantity
    return total
