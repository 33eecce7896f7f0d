"""Defaults of pod specs, which pods and the templates of jobs share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trainmaster.runtime.jsontree import JsonObject

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
