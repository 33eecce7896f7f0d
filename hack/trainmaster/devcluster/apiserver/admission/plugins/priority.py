"""Priority: the class of a pod or a PodGroup becomes a number, by which the scheduler orders what waits.

- An unknown class is refused; without a class the global default counts, and without that the number is 0.
- The number and the preemption policy are given by the class; a pod that brings others is refused.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.resources import PODS, PRIORITY_CLASSES, WORKLOAD_POD_GROUPS, GroupResource
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject


def pod_admission(api: Api) -> AdmissionHook:
    """Return the hook for pods."""

    def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation != "CREATE":
            return pod
        spec = pod["spec"]
        found = _resolve(api, PODS, pod)
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


def pod_group_admission(api: Api) -> AdmissionHook:
    """Return the hook for PodGroups."""

    def admit(operation: Operation, group: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation == "CREATE":
            found, spec = _resolve(api, WORKLOAD_POD_GROUPS, group), group["spec"]
            computed = 0 if found is None else found["value"]
            if (given := spec.get("priority", computed)) != computed:
                text = (
                    f"priority set in the pod group ({given}) must match the priority computed ({computed}) "
                    "based on the priority class set in the spec"
                )
                raise errors.forbidden(text, resource=WORKLOAD_POD_GROUPS, name=group["metadata"].get("name", ""))
            spec["priority"] = computed
        return group

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


def _resolve(api: Api, resource: GroupResource, obj: JsonObject) -> JsonObject | None:
    """Return the class of an object; one that names none gets the name of the default."""
    spec = obj["spec"]
    if name := spec.get("priorityClassName"):
        if (record := api.store.get(ObjectKey(PRIORITY_CLASSES, "", name))) is None:
            text = f"no PriorityClass with name {name} was found"
            raise errors.forbidden(text, resource=resource, name=obj["metadata"].get("name", ""))
        return record.object
    if (default := _global_default(api)) is not None:
        spec["priorityClassName"] = default["metadata"]["name"]
    return default


def _global_default(api: Api) -> JsonObject | None:
    """Return the default; of several, which a race can leave, the lowest counts."""
    defaults = [record.object for record in api.store.list(PRIORITY_CLASSES) if record.object.get("globalDefault")]
    return min(defaults, key=lambda each: int(each["value"]), default=None)
