"""Jobs: defaults, the generated selector, and what may change in the life of a job."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.batch.job_validation import (
    generated_labels,
    validate_job,
    validate_job_update,
)
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod_spec
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_MAX_INT32 = 2**31 - 1
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
_LEFT_OUT = ("active", "succeeded", "failed", "completedIndexes")
"""Fields of the status that are not sent while they are zero; of the others, zero says that somebody counted."""


class JobStrategy(Strategy):
    """Jobs own their pods by a generated selector; a deletion leaves the pods behind unless it says otherwise."""

    has_generation = True
    required_by_schema = False
    orphans_by_default = True

    def default(self, obj: JsonObject) -> None:
        """Fill in the spec and its pod template."""
        spec = obj.setdefault("spec", {})
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                pattern.setdefault("status", "True")
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))
        _label(obj)

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status, and tie the pods to this very job."""
        obj["status"] = {}
        spec, metadata = obj["spec"], obj["metadata"]
        if not spec["manualSelector"]:
            # What the user wrote there stays, and is refused if it contradicts.
            generated = generated_labels(metadata)
            labels = spec["template"]["metadata"].get("labels") or {}
            if metadata.get("labels") == labels:
                metadata["labels"] = dict(sorted((generated | labels).items()))
            spec["template"]["metadata"]["labels"] = dict(sorted((generated | labels).items()))
            selected = spec.setdefault("selector", {}).setdefault("matchLabels", {})
            selected.setdefault(_CONTROLLER_UID, metadata["uid"])
        _label(obj)
        _complete(spec)

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Give the spec the form in which it is always sent."""
        _complete(obj["spec"])

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what a status update must not change, and give the status the form in which it is always sent."""
        super().prepare_for_status_update(obj, old)
        status = obj.get("status") or {}
        for field in _LEFT_OUT:
            if not status.get(field):
                status.pop(field, None)
        for condition in status.get("conditions") or ():
            condition.setdefault("lastProbeTime", None)
            condition.setdefault("lastTransitionTime", None)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(validate_job(obj))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of what the job controller relies on."""
        return list(validate_job_update(obj, old))


def _complete(spec: JsonObject) -> None:
    """Write an empty list of rules as a server does that always sends the field."""
    if "podFailurePolicy" in spec:
        spec["podFailurePolicy"]["rules"] = spec["podFailurePolicy"].get("rules") or None


def _label(obj: JsonObject) -> None:
    """Give a job the labels of its pods if it has none of its own."""
    labels = obj["spec"]["template"]["metadata"].get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "batch",
        "Job",
        "jobs",
        strategy=JobStrategy(),
        categories=("all",),
        subresources=("status",),
        columns=printers.JOBS,
        field_labels={"status.successful": lambda obj: str(obj.get("status", {}).get("succeeded", 0))},
    )
