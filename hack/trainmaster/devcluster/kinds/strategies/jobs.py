"""The strategy of batch/v1 Jobs: defaults, the generated selector, and what may change in the life of a job."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.errors import FieldError
from trainmaster.devcluster.kinds.names import dns_label
from trainmaster.devcluster.kinds.strategies.base import Strategy, immutable, unsupported
from trainmaster.devcluster.kinds.strategies.podspecs import default_pod_spec, validate_pod_spec
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_MAX_INT32 = 2**31 - 1
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
    "podReplacementPolicy",
)
_NOT_NEGATIVE = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "ttlSecondsAfterFinished",
)


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

    def prepare_create(self, obj: JsonObject) -> None:
        """Start without a status, and tie the pods to this very job."""
        obj["status"] = {}
        spec, metadata = obj["spec"], obj["metadata"]
        if spec["manualSelector"]:
            return
        labels = spec["template"]["metadata"].setdefault("labels", {})
        for key, value in (("controller-uid", metadata["uid"]), ("job-name", metadata["name"])):
            labels[key] = labels[f"batch.kubernetes.io/{key}"] = value
        spec.setdefault("selector", {}).setdefault("matchLabels", {})[_CONTROLLER_UID] = metadata["uid"]

    def prepare_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the generated selector when it is left out, as clients that replace whole jobs do."""
        spec, before = obj["spec"], old["spec"]
        if "selector" not in spec and "selector" in before:
            spec["selector"] = before["selector"]

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(_problems(obj))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of what the job controller relies on."""
        return list(_change_problems(obj, old))


def _problems(obj: JsonObject) -> Iterator[FieldError]:
    spec = obj["spec"]
    for field in _NOT_NEGATIVE:
        if spec.get(field, 0) < 0:
            yield FieldError(f"spec.{field}", "Invalid", spec[field], "must be greater than or equal to 0")
    if spec["completionMode"] not in ("Indexed", "NonIndexed"):
        yield unsupported("spec.completionMode", spec["completionMode"], ["Indexed", "NonIndexed"])
    indexed = spec["completionMode"] == "Indexed"
    if indexed:
        completions = spec.get("completions")
        if completions is None:
            detail = "when completion mode is Indexed"
            yield FieldError("spec.completions", "Required", detail=detail)
        elif completions > 0:
            longest = f"{obj['metadata'].get('name', '')}-{completions - 1}"
            for problem in dns_label(longest):
                detail = f"will not able to create pod with invalid DNS label {longest}: {problem}"
                yield FieldError("metadata.name", "Invalid", obj["metadata"].get("name", ""), detail)
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if field in spec:
                yield FieldError(f"spec.{field}", "Invalid", spec[field], "requires indexed completion mode")
    policy = spec["podReplacementPolicy"]
    allowed = ["Failed"] if "podFailurePolicy" in spec else ["Failed", "TerminatingOrFailed"]
    if policy not in allowed:
        yield unsupported("spec.podReplacementPolicy", policy, allowed)
    yield from _template_problems(spec)


def _template_problems(spec: JsonObject) -> Iterator[FieldError]:
    template = spec["template"]
    yield from validate_pod_spec(template["spec"], "spec.template.spec")
    restart = template["spec"]["restartPolicy"]
    allowed = ["Never"] if "podFailurePolicy" in spec else ["Never", "OnFailure"]
    if restart not in allowed:
        yield unsupported("spec.template.spec.restartPolicy", restart, allowed)
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = template["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        yield FieldError(
            "spec.template.metadata.labels", "Invalid", labels, "`selector` does not match template `labels`"
        )


def _change_problems(obj: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    new, before = obj["spec"], old["spec"]
    for field in _IMMUTABLE:
        if new.get(field) != before.get(field):
            yield immutable(f"spec.{field}", new.get(field))
    if new.get("completions") != before.get("completions"):
        elastic = new["completionMode"] == "Indexed" and new.get("completions") == new.get("parallelism")
        if not (elastic and before.get("completions") == before.get("parallelism")):
            yield immutable("spec.completions", new.get("completions"))
    template, template_before = new["template"], before["template"]
    if template != template_before:
        if _may_change_template(old):
            template, template_before = _masked(template), _masked(template_before)
        if template != template_before:
            yield immutable("spec.template", new["template"])


def _may_change_template(old: JsonObject) -> bool:
    """Return whether a queueing system may still steer the pods: the job is suspended and none of them runs."""
    status = old.get("status", {})
    suspended = any(each["type"] == "Suspended" and each["status"] == "True" for each in status.get("conditions") or ())
    return bool(old["spec"].get("suspend") and (suspended or not status.get("startTime")) and not status.get("active"))


def _masked(template: JsonObject) -> JsonObject:
    """Return a template without the parts that a queueing system sets."""
    masked: JsonObject = copy_tree(template)
    for field in ("labels", "annotations"):
        masked["metadata"].pop(field, None)
    spec = masked["spec"]
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        spec.pop(field, None)
    affinity = spec.get("affinity") or {}
    affinity.pop("nodeAffinity", None)
    if not affinity:
        spec.pop("affinity", None)
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        container.pop("resources", None)
    return masked
