"""Pod resources: what the pods of a template will request once the API server has admitted them.

A template gets none of the defaults that a pod gets, so they are added here, in the order of Kubernetes:

- a limit without a request is the request (B22: GPUs are usually given as limits alone);
- what a container then still lacks comes from the LimitRanges of the namespace;
- a RuntimeClass adds its overhead.

Both kinds are read whenever the objects of a TrainJob are built. A change of them enqueues nothing (B21): what
was built while a TrainJob was suspended is built again when it is resumed, from what holds then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.resource_requirements import Resources, pod_requests
from trainmaster.runtime.watches import Watch

_LIMIT_RANGE: Final = ("v1", "LimitRange")
_RUNTIME_CLASS: Final = ("node.k8s.io/v1", "RuntimeClass")

# Optional, since a controller that may see a single namespace can do without.
WATCHES: Iterable[Watch] = (
    Watch(*_LIMIT_RANGE, "limitranges", optional=True),
    Watch(*_RUNTIME_CLASS, "runtimeclasses", namespaced=False, optional=True),
)
"""The kinds that the requests of pods depend on."""


def admitted_pod_requests(pod_spec: JsonObject, namespace: str, listers: Listers) -> Resources:
    """Compute what the scheduler will reserve for one pod of a template."""
    defaults = _default_requests(namespace, listers)
    admitted = {**pod_spec, "overhead": _overhead(pod_spec, listers)}
    for field in ("initContainers", "containers"):
        admitted[field] = [
            {**container, "resources": {"requests": {**defaults, **_own_requests(container)}}}
            for container in pod_spec.get(field) or ()
        ]
    admitted["resources"] = {"requests": _pod_level_requests(pod_spec)}
    return pod_requests(admitted)


def _own_requests(holder: Mapping[str, Any]) -> dict[str, Any]:
    resources = holder.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _pod_level_requests(pod_spec: JsonObject) -> dict[str, Any]:
    """Requests of the pod as a whole, where a limit counts only for what no container names itself."""
    requests = (pod_spec.get("resources") or {}).get("requests") or {}
    containers = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    named = {name for container in containers for name in _own_requests(container)} - requests.keys()
    return {name: amount for name, amount in _own_requests(pod_spec).items() if name not in named}


def _default_requests(namespace: str, listers: Listers) -> dict[str, Any]:
    """What LimitRanges give a container that says nothing; of several the first one counts."""
    defaults: dict[str, Any] = {}
    for limit_range in sorted(listers.list(*_LIMIT_RANGE, namespace), key=lambda obj: str(obj["metadata"]["name"])):
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            if limit.get("type") == "Container":
                defaults = {**(limit.get("default") or {}), **(limit.get("defaultRequest") or {}), **defaults}
    return defaults


def _overhead(pod_spec: JsonObject, listers: Listers) -> JsonObject:
    name = pod_spec.get("runtimeClassName")
    if pod_spec.get("overhead") or not name:
        return pod_spec.get("overhead") or {}
    runtime_class = listers.get(*_RUNTIME_CLASS, None, name) or {}
    return (runtime_class.get("overhead") or {}).get("podFixed") or {}
