"""Runtime classes: their overhead, node selector and tolerations become part of the pods that name them."""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.resources import PODS, RUNTIME_CLASSES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import Quantity


def pod_admission(api: Api) -> AdmissionHook:
    """Return the hook for pods."""

    def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation == "CREATE":
            _apply(api, pod)
        return pod

    return admit


def _apply(api: Api, pod: JsonObject) -> None:
    spec = pod["spec"]
    name, given = spec.get("runtimeClassName"), spec.get("overhead")
    found: JsonObject = {}
    if name:
        record = api.store.get(ObjectKey(RUNTIME_CLASSES, "", name))
        if record is None:
            raise _refusal(pod, f'RuntimeClass "{name}" not found')
        found = record.object
    overhead = (found.get("overhead") or {}).get("podFixed")
    if given and not overhead:
        raise _refusal(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if overhead:
        if given and not _same(given, overhead):
            raise _refusal(pod, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = copy_tree(overhead)
    scheduling = found.get("scheduling") or {}
    selector = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            text = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise errors.forbidden(text, resource=PODS, name=pod["metadata"].get("name", ""))
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**selector, **scheduling["nodeSelector"]}
    own = spec.get("tolerations") or []
    missing = [each for each in scheduling.get("tolerations") or () if each not in own]
    if missing:
        spec["tolerations"] = [*own, *copy_tree(missing)]


def _same(left: JsonObject, right: JsonObject) -> bool:
    parsed = [{name: Quantity.parse(value) for name, value in each.items()} for each in (left, right)]
    return parsed[0] == parsed[1]


def _refusal(pod: JsonObject, text: str) -> errors.StatusError:
    return errors.forbidden(f"pod rejected: {text}", resource=PODS, name=pod["metadata"].get("name", ""))
