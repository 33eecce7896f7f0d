"""Priority: the class of a pod becomes a number, by which the scheduler orders waiting pods.

- An unknown class is refused; without a class the global default counts, and without that the number is 0.
- The number and the preemption policy are given by the class; a pod that brings others is refused.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.resources import PODS, PRIORITY_CLASSES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject


def pod_admission(api: Api) -> AdmissionHook:
    """Return the hook for pods."""

    def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation != "CREATE":
            return pod
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        found = _global_default(api) if not name else _class(api, pod, name)
        if found is not None and not name:
            spec["priorityClassName"] = found["metadata"]["name"]
        resolved = {
            "priority": 0 if found is None else found["value"],
            "preemptionPolicy": "PreemptLowerPriority" if found is None else found["preemptionPolicy"],
        }
        for field, value in resolved.items():
            if spec.get(field, value) != value:
                what = "integer value of priority" if field == "priority" else "string value of PreemptionPolicy"
                text = (
                    f"the {what} ({spec[field]}) must not be provided in pod spec; "
                    f"priority admission controller computed {value} from the given PriorityClass name"
                )
                raise errors.forbidden(text, resource=PODS, name=pod["metadata"].get("name", ""))
        spec.update(resolved)
        return pod

    return admit


def class_admission(api: Api) -> AdmissionHook:
    """Return the hook for priority classes: only one may be the default."""

    def admit(_operation: Operation, obj: JsonObject, _old: JsonObject | None) -> JsonObject:
        name = obj["metadata"].get("name", "")
        default = _global_default(api)
        if obj.get("globalDefault") and default is not None and default["metadata"]["name"] != name:
            text = (
                f"PriorityClass {default['metadata']['name']} is already marked as default. Only one default can exist"
            )
            raise errors.forbidden(text, resource=PRIORITY_CLASSES, name=name)
        return obj

    return admit


def _class(api: Api, pod: JsonObject, name: str) -> JsonObject:
    record = api.store.get(ObjectKey(PRIORITY_CLASSES, "", name))
    if record is None:
        raise errors.forbidden(
            f"no PriorityClass with name {name} was found", resource=PODS, name=pod["metadata"].get("name", "")
        )
    return record.object


def _global_default(api: Api) -> JsonObject | None:
    """Return the default; of several, which a race can leave, the lowest counts."""
    defaults = [record.object for record in api.store.list(PRIORITY_CLASSES) if record.object.get("globalDefault")]
    return min(defaults, key=lambda each: int(each["value"]), default=None)
