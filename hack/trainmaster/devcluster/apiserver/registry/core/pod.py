"""Pods.

The embedded scheduler binds a pod by writing `spec.nodeName`, once, through the main endpoint: the binding subresource
of a real server is not served.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod, validate_pod_spec
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject

_FINISHED = ("Succeeded", "Failed")
_IMMUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class PodStrategy(Strategy):
    """Pods stay for their grace period once they are bound to a node."""

    has_generation = True
    return_deleted_object = True

    def default(self, obj: JsonObject) -> None:
        """Fill in the pod spec."""
        default_pod(obj.setdefault("spec", {}))

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start as pending."""
        # Admission resolves the priority class; these are the values of a pod without one.
        obj["spec"].setdefault("priority", 0)
        obj["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastTransitionTime": obj["metadata"]["creationTimestamp"],
                }
            ]

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep what admission added, for clients that send the pod as they first wrote it."""
        for field in ("priority", "preemptionPolicy", "overhead"):
            if field in old["spec"]:
                obj["spec"].setdefault(field, old["spec"][field])

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep spec and owners; labels, annotations and finalizers may come with a status."""
        super().prepare_for_status_update(obj, old)
        restore(obj["metadata"], old["metadata"], "ownerReferences")

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return validate_pod_spec(obj["spec"], "spec")

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of the spec, apart from the few that a pod allows."""
        new, before = obj["spec"], old["spec"]
        if new == before or _frozen(new, before) == _frozen(before, before):
            return []
        return [FieldError("spec", "Forbidden", detail=_IMMUTABLE_TEXT)]

    def grace_seconds(self, obj: JsonObject, requested: int | None) -> int:
        """Let a running pod end in its own time; nobody waits for one that never started or has ended."""
        if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in _FINISHED:
            return 0
        if requested is not None:
            return requested if requested >= 0 else 1
        return int(obj["spec"].get("terminationGracePeriodSeconds", 30))


def _frozen(spec: JsonObject, old: JsonObject) -> JsonObject:
    """Return the part of a spec that may not differ from the old one."""
    frozen = {
        field: value for field, value in spec.items() if field not in ("activeDeadlineSeconds", "schedulingGates")
    }
    for field in ("containers", "initContainers"):
        if field in frozen:
            frozen[field] = [
                {key: value for key, value in container.items() if key != "image"} for container in frozen[field]
            ]
    known = old.get("tolerations") or []
    given = spec.get("tolerations") or []
    if all(each in given for each in known):
        frozen.pop("tolerations", None)
    if not old.get("nodeName"):
        frozen.pop("nodeName", None)
    if old.get("schedulingGates"):
        # A gated pod may still be steered to fewer nodes; gates can only be taken away.
        frozen.pop("nodeSelector", None)
        frozen.pop("affinity", None)
    gates = {each.get("name") for each in spec.get("schedulingGates") or ()}
    frozen["gates"] = sorted(gates - {each.get("name") for each in old.get("schedulingGates") or ()})
    return frozen


def _qos_class(spec: JsonObject) -> str:
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    guaranteed = True
    best_effort = True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        if any(name in amounts for amounts in (requests, limits) for name in ("cpu", "memory")):
            best_effort = False
        if not all(name in limits and requests.get(name) == limits[name] for name in ("cpu", "memory")):
            guaranteed = False
    if best_effort:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Pod",
        "pods",
        strategy=PodStrategy(),
        short_names=("po",),
        categories=("all",),
        subresources=("status", "log"),
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
