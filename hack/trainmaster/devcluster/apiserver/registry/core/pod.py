"""Pods."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.core.pod_validation import (
    validate_ephemeral_containers_update,
    validate_new_pod,
    validate_pod,
    validate_pod_update,
)
from trainmaster.devcluster.apiserver.registry.core.podspec import add_label_keys, default_pod, qos_class
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_FINISHED = ("Succeeded", "Failed")
_BINDINGS = GroupResource("", "pods/binding")
_STATES: JsonObject = {"state": {}, "lastState": {}}
_SHOWN_IN_STATUS: Mapping[str, JsonObject] = {
    "conditions": {"lastProbeTime": None, "lastTransitionTime": None},
    "containerStatuses": _STATES,
    "initContainerStatuses": _STATES,
    "ephemeralContainerStatuses": _STATES,
}
"""What the real server cannot leave out of the entries of these lists."""


class PodStrategy(Strategy):
    """Pods stay for their grace period once they are bound to a node."""

    has_generation = True
    return_deleted_object = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the pod spec."""
        default_pod(obj.setdefault("spec", {}))

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start as pending."""
        spec = obj["spec"]
        # Admission resolves the priority class; these are the values of a pod without one.
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        add_label_keys(spec, obj["metadata"].get("labels") or {})
        _show_missing_sources(spec)
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": None,
                    "lastTransitionTime": obj["metadata"]["creationTimestamp"],
                }
            ]

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep what admission added, for clients that send the pod as they first wrote it."""
        for field in ("priority", "preemptionPolicy", "overhead"):
            if field in old["spec"]:
                obj["spec"].setdefault(field, old["spec"][field])
        _show_missing_sources(obj["spec"])

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep spec and owners; labels, annotations and finalizers may come with a status."""
        super().prepare_for_status_update(obj, old)
        restore(obj["metadata"], old["metadata"], "ownerReferences")
        status = obj.setdefault("status", {})
        if "qosClass" in old.get("status", {}):  # which some kubelets forget
            status.setdefault("qosClass", old["status"]["qosClass"])
        for field, defaults in _SHOWN_IN_STATUS.items():
            for entry in status.get(field) or ():
                for name, value in defaults.items():
                    entry.setdefault(name, copy_tree(value))

    def limit_to_subresource(self, obj: JsonObject, old: JsonObject, subresource: str) -> JsonObject:
        """Take over the node or the containers for debugging, and nothing else."""
        spec = dict(old["spec"])
        if subresource == "binding":
            _check_binding(old)
            spec["nodeName"] = obj["spec"]["nodeName"]
        elif subresource == "ephemeralcontainers":
            restore(spec, obj["spec"], "ephemeralContainers")
        return {**old, "spec": spec, "metadata": {**old["metadata"]}}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return validate_pod(obj)

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """Check what a new pod may not have yet."""
        return list(validate_new_pod(obj))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of the spec, apart from the few that a pod allows."""
        return [] if obj["spec"] == old["spec"] else list(validate_pod_update(obj["spec"], old["spec"]))

    def validate_subresource_update(self, obj: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
        """Check containers for debugging."""
        return list(validate_ephemeral_containers_update(obj, old)) if subresource == "ephemeralcontainers" else []

    def grace_seconds(self, obj: JsonObject, requested: int | None) -> int:
        """Let a running pod end in its own time; nobody waits for one that never started or has ended."""
        if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in _FINISHED:
            return 0
        seconds = int(obj["spec"].get("terminationGracePeriodSeconds", 30)) if requested is None else requested
        return seconds if seconds >= 0 else 1


def _show_missing_sources(spec: JsonObject) -> None:
    """Show a projected volume without sources as the real server does, which cannot leave the field out."""
    for volume in spec.get("volumes") or ():
        if volume.get("projected") is not None:
            volume["projected"].setdefault("sources", None)


def _check_binding(pod: JsonObject) -> None:
    """Refuse a node for a pod that has one, goes away, or is not to have one yet."""
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    if "deletionTimestamp" in metadata:
        text = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        text = f"pod {name} is already assigned to node {errors.quote(spec['nodeName'])}"
    elif spec.get("schedulingGates"):
        text = f"pod {name} has non-empty .spec.schedulingGates"
    else:
        return
    raise errors.conflict(_BINDINGS, name, text)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Pod",
        "pods",
        strategy=PodStrategy(),
        short_names=("po",),
        categories=("all",),
        subresources=("status", "log", "binding", "ephemeralcontainers", "eviction", "exec", "proxy"),
        columns=printers.PODS,
        field_labels=field_labels(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
    )
