"""Jobs: defaults, the generated selector, and what may change in the life of a job."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.batch.job_validation import (
    validate_job,
    validate_job_status_update,
    validate_job_update,
)
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod_spec
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_MAX_INT32 = 2**31 - 1
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


class JobStrategy(Strategy):
    """Jobs own their pods by a generated selector; a deletion leaves the pods behind unless it says otherwise."""

    has_generation = True
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
        labels = template["metadata"].get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status, and tie the pods to this very job."""
        obj["status"] = {}
        spec, metadata = obj["spec"], obj["metadata"]
        if spec["manualSelector"]:
            return
        labels = spec["template"]["metadata"].setdefault("labels", {})
        for key, value in (("controller-uid", metadata["uid"]), ("job-name", metadata["name"])):
            labels[key] = labels[f"batch.kubernetes.io/{key}"] = value
        spec.setdefault("selector", {}).setdefault("matchLabels", {})[_CONTROLLER_UID] = metadata["uid"]

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the generated selector when it is left out, as clients that replace whole jobs do."""
        spec, before = obj["spec"], old["spec"]
        if "selector" not in spec and "selector" in before:
            spec["selector"] = before["selector"]

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(validate_job(obj))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of what the job controller relies on."""
        return list(validate_job_update(obj, old))

    def validate_status_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse a status that contradicts itself or the past."""
        return validate_job_status_update(obj, old)


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
