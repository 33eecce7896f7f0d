"""The group batch: Jobs."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.pod_validation import validate_pod_template
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod_spec
from trainmaster.devcluster.apiserver.registry.fields import not_negative, one_of
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.selectors import label_selector_from_object
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.names import dns_label, domain_prefixed_path

_MAX_INT32 = 2**31 - 1
_CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
_LEFT_OUT = ("active", "succeeded", "failed", "completedIndexes")
"""Fields of the status that are not sent while they are zero; of the others, zero says that somebody counted."""

_MOST_INDEXES = 100_000
_INDEXES = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", re.ASCII)
_LONGEST_MANAGER = 63
_IMMUTABLE = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_NOT_NEGATIVE = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


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


def generated_labels(metadata: JsonObject) -> JsonObject:
    """Return the labels that tie pods to a Job, under their names of today and the older ones."""
    labels = {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
    return labels | {f"batch.kubernetes.io/{key}": value for key, value in labels.items()}


def validate_job(obj: JsonObject) -> Iterator[FieldError]:
    """Check a Job that has its defaults and its generated selector."""
    spec, metadata = obj["spec"], obj["metadata"]
    yield from _validate_generated_selector(spec, metadata)
    yield from _validate_spec(spec)
    yield from _validate_selector(spec)
    completions = spec.get("completions") or 0
    if spec["completionMode"] == "Indexed" and completions > 0:
        longest = f"{metadata['name']}-{completions - 1}"
        if dns_label(longest):
            detail = f"will not able to create pod with invalid DNS label: {longest}"
            yield FieldError("metadata.name", "Invalid", metadata["name"], detail)


def _validate_generated_selector(spec: JsonObject, metadata: JsonObject) -> Iterator[FieldError]:
    """Check that a selector which the user did not ask to write is the generated one, and the template fits to it."""
    if spec["manualSelector"] or "selector" not in spec:
        return
    expected = generated_labels(metadata)
    labels = spec["template"]["metadata"].get("labels") or {}
    for key, value in expected.items():
        path, detail = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
        if key not in labels:
            yield FieldError(path, "Required", detail=detail)
        if labels.get(key) != value:
            yield FieldError(path, "Invalid", labels, detail)
    if _selects(spec["selector"], expected) is False:
        shown = _shown(spec["selector"])
        yield FieldError("spec.selector", "Invalid", shown, "`selector` not auto-generated")


def _shown(selector: JsonObject) -> JsonObject:
    """Return a selector with its labels in the order in which they are printed."""
    return {**selector, "matchLabels": dict(sorted((selector.get("matchLabels") or {}).items()))}


def _selects(selector: JsonObject | None, labels: JsonObject) -> bool | None:
    """Return whether a selector selects these labels; None if it is not one."""
    try:
        return label_selector_from_object(selector).matches(labels)
    except ValueError:
        return None


def _validate_selector(spec: JsonObject) -> Iterator[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        yield FieldError("spec.selector", "Required")
    else:
        yield from label_selector("spec.selector", selector)
    labels = spec["template"]["metadata"].get("labels")
    if _selects(selector, labels or {}) is False:
        detail = "`selector` does not match template `labels`"
        yield FieldError("spec.template.metadata.labels", "Invalid", labels, detail)


def _validate_spec(spec: JsonObject) -> Iterator[FieldError]:
    for field in _NOT_NEGATIVE:
        yield from not_negative(f"spec.{field}", spec.get(field, 0))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield FieldError("spec.backoffLimitPerIndex", "Required", detail="when maxFailedIndexes is specified")
    if "managedBy" in spec:
        yield from _validate_manager(spec["managedBy"])
    yield from _validate_mode(spec)
    if "podFailurePolicy" in spec:
        yield from _validate_pod_failure_policy(spec)
    if "successPolicy" in spec:
        yield from _validate_success_policy(spec)
    policy = spec["podReplacementPolicy"]
    allowed = ["Failed"] if "podFailurePolicy" in spec else ["Failed", "TerminatingOrFailed"]
    yield from one_of("spec.podReplacementPolicy", policy, allowed)
    yield from _validate_template(spec)


def _validate_manager(manager: str) -> Iterator[FieldError]:
    path = "spec.managedBy"
    if not manager:
        yield FieldError(path, "Required")
        return
    yield from (FieldError(path, "Invalid", part, problem) for part, problem in domain_prefixed_path(manager))
    if len(manager) > _LONGEST_MANAGER:
        yield FieldError(path, "TooLong", detail=f"may not be more than {_LONGEST_MANAGER} bytes")


def _validate_mode(spec: JsonObject) -> Iterator[FieldError]:
    mode = spec["completionMode"]
    if mode == "Indexed":
        yield from _validate_indexed(spec)
    elif mode == "NonIndexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if field in spec:
                yield FieldError(f"spec.{field}", "Invalid", spec[field], "requires indexed completion mode")
    else:
        yield FieldError("spec.completionMode", "NotSupported", mode, 'supported values: "NonIndexed", "Indexed"')


def _validate_indexed(spec: JsonObject) -> Iterator[FieldError]:
    completions, parallelism, failed = spec.get("completions"), spec["parallelism"], spec.get("maxFailedIndexes")
    if completions is None:
        yield FieldError("spec.completions", "Required", detail="when completion mode is Indexed")
        completions = 0
    elif failed is not None and failed > completions:
        yield FieldError("spec.maxFailedIndexes", "Invalid", failed, "must be less than or equal to completions")
    if parallelism > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        yield FieldError("spec.parallelism", "Invalid", parallelism, detail)


def _validate_pod_failure_policy(spec: JsonObject) -> Iterator[FieldError]:
    pod = spec["template"]["spec"]
    containers = {each.get("name") for field in ("initContainers", "containers") for each in pod.get(field) or ()}
    for index, rule in enumerate(spec["podFailurePolicy"].get("rules") or ()):
        here = f"spec.podFailurePolicy.rules[{index}]"
        action, codes, patterns = rule.get("action", ""), rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield FieldError(f"{here}.action", "Invalid", action, "requires the backoffLimitPerIndex to be set")
        yield from _choice(f"{here}.action", action, ["Count", "FailIndex", "FailJob", "Ignore"])
        if codes is not None:
            yield from _validate_exit_codes(f"{here}.onExitCodes", codes, containers)
        if codes is not None and patterns:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield FieldError(here, "Invalid", OMITTED, detail)
        elif codes is None and not patterns:
            yield FieldError(here, "Invalid", OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _validate_exit_codes(path: str, codes: JsonObject, containers: set[str | None]) -> Iterator[FieldError]:
    operator, name, values = codes.get("operator", ""), codes.get("containerName"), codes.get("values") or []
    yield from _choice(f"{path}.operator", operator, ["In", "NotIn"])
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        yield FieldError(f"{path}.containerName", "Invalid", name, detail)
    if not values:
        yield FieldError(f"{path}.values", "Invalid", values, "at least one value is required")
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            yield FieldError(f"{path}.values[{index}]", "Invalid", value, "must not be 0 for the In operator")


def _choice(path: str, value: str, supported: list[str]) -> Iterator[FieldError]:
    if not value:
        listed = " ".join(f'"{each}"' for each in supported)
        yield FieldError(path, "Required", detail=f"valid values: [{listed}]")
    else:
        yield from one_of(path, value, supported)


def _validate_success_policy(spec: JsonObject) -> Iterator[FieldError]:
    path, rules = "spec.successPolicy", spec["successPolicy"].get("rules") or []
    if spec["completionMode"] != "Indexed":
        yield FieldError(path, "Invalid", spec["successPolicy"], "requires indexed completion mode")
    elif not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield FieldError(f"{path}.rules", "Required", detail=detail)
    for index, rule in enumerate(rules):
        count, completions = rule.get("succeededCount"), spec.get("completions") or 0
        if rule.get("succeededIndexes") is None and count is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            yield FieldError(f"{path}.rules[{index}]", "Required", detail=detail)
        elif not _are_indexes(rule.get("succeededIndexes") or "", completions):
            detail = f"error parsing succeededIndexes: write numbers below {completions} and ranges, as in 0,2-4"
            yield FieldError(f"{path}.rules[{index}].succeededIndexes", "Invalid", rule["succeededIndexes"], detail)
        elif count is not None and count > completions:
            detail = f"must be less than or equal to {completions} (the number of specified completions)"
            yield FieldError(f"{path}.rules[{index}].succeededCount", "Invalid", count, detail)


def _are_indexes(text: str, completions: int) -> bool:
    if not text:
        return True
    return bool(_INDEXES.fullmatch(text)) and all(int(each) < completions for each in re.findall(r"\d+", text))


def _validate_template(spec: JsonObject) -> Iterator[FieldError]:
    template = spec["template"]
    yield from validate_pod_template(template, "spec.template")
    yield from _validate_restart(template["spec"]["restartPolicy"], has_failure_policy="podFailurePolicy" in spec)


def _validate_restart(policy: str, *, has_failure_policy: bool) -> Iterator[FieldError]:
    path = "spec.template.spec.restartPolicy"
    if policy in ("Always", ""):  # what a pod gets that says nothing
        yield FieldError(path, "Required", detail='valid values: "OnFailure", "Never"')
    elif policy not in ("Never", "OnFailure"):
        yield FieldError(path, "NotSupported", policy, 'supported values: "OnFailure", "Never"')
    elif has_failure_policy and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield FieldError(path, "Invalid", policy, detail)


def validate_job_update(obj: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that what the job controller relies on stays as it was."""
    new, before = obj["spec"], old["spec"]
    yield from _validate_spec(new)  # a second time: the real server does so, too, and lists every mistake twice
    yield from _validate_selector(new)
    yield from _validate_completions(new, before)
    for field in _IMMUTABLE:
        if new.get(field) != before.get(field):
            value = new.get(field)
            yield immutable(f"spec.{field}", _shown(value) if field == "selector" and value else value)
    template, template_before = new["template"], before["template"]
    if template == template_before:
        return
    if not _may_steer(old):
        yield immutable("spec.template", template)
    elif _masked(template["spec"]) != _masked(template_before["spec"]):
        yield immutable("spec.template.spec", template["spec"])


def _validate_completions(spec: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    path, completions = "spec.completions", spec.get("completions")
    if completions == before.get("completions"):
        return
    if spec["completionMode"] != "Indexed":
        yield immutable(path, completions)
    elif completions is not None and completions != spec["parallelism"]:
        yield FieldError(path, "Invalid", completions, "can only be modified in tandem with spec.parallelism")


def _may_steer(old: JsonObject) -> bool:
    """Return whether a queueing system may still steer the pods: the job is suspended and none of them runs."""
    status = old.get("status") or {}
    suspended = any(
        each.get("type") == "Suspended" and each.get("status") == "True" for each in status.get("conditions") or ()
    )
    return bool(old["spec"].get("suspend") and (suspended or not status.get("startTime")) and not status.get("active"))


def _masked(spec: JsonObject) -> JsonObject:
    """Return a pod spec without the parts that a queueing system sets."""
    masked: JsonObject = copy_tree(spec)
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        masked.pop(field, None)
    affinity = masked.get("affinity") or {}
    affinity.pop("nodeAffinity", None)
    if not affinity:
        masked.pop("affinity", None)
    for container in [*(masked.get("initContainers") or ()), *(masked.get("containers") or ())]:
        container.pop("resources", None)
    return masked
