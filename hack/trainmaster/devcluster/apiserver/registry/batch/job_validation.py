"""Rules of a Job: of its spec and how it may change, and of its status (KEP-4368). Pure.

Whoever runs Jobs must not contradict by a status what clients rely on. The rules look at what a write changes: a status
that was wrong before is not held against an unrelated change.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError, immutable, unsupported
from trainmaster.devcluster.apiserver.registry.batch.job_policy_validation import (
    IndexesMalformed,
    count_indexes,
    validate_pod_failure_policy,
    validate_success_policy,
)
from trainmaster.devcluster.apiserver.registry.core.podspec import validate_pod_spec
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.names import dns_label, dns_subdomain

_MOST_INDEXES = 100_000
_LONGEST_MANAGER = 63
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


def validate_job(obj: JsonObject) -> Iterator[FieldError]:
    """Check a Job that has its defaults."""
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
    yield from _validate_limit(spec, indexed=indexed)
    policy = spec["podReplacementPolicy"]
    allowed = ["Failed"] if "podFailurePolicy" in spec else ["Failed", "TerminatingOrFailed"]
    if policy not in allowed:
        yield unsupported("spec.podReplacementPolicy", policy, allowed)
    yield from _validate_policy(spec, indexed=indexed)
    yield from _validate_selector(obj)
    yield from _validate_template(spec)


def _validate_policy(spec: JsonObject, *, indexed: bool) -> Iterator[FieldError]:
    if "podFailurePolicy" in spec:
        yield from validate_pod_failure_policy(spec)
    if "successPolicy" in spec and indexed:
        yield from validate_success_policy(spec)


def _validate_limit(spec: JsonObject, *, indexed: bool) -> Iterator[FieldError]:
    manager = spec.get("managedBy", "")
    if len(manager) > _LONGEST_MANAGER:
        yield FieldError("spec.managedBy", "TooLong", detail=f"may not be more than {_LONGEST_MANAGER} bytes")
    domain, _, rest = manager.partition("/")
    if manager and (not rest or dns_subdomain(domain)):
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield FieldError("spec.managedBy", "Invalid", manager, detail)
    completions, most_failed = spec.get("completions"), spec.get("maxFailedIndexes")
    if indexed and spec["parallelism"] > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        yield FieldError("spec.parallelism", "Invalid", spec["parallelism"], detail)
    if most_failed is None or not indexed:
        return
    if "backoffLimitPerIndex" not in spec:
        yield FieldError("spec.backoffLimitPerIndex", "Required", detail="when maxFailedIndexes is specified")
    if completions is not None and most_failed > completions:
        yield FieldError("spec.maxFailedIndexes", "Invalid", most_failed, "must be less than or equal to completions")
    if most_failed > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES}"
        yield FieldError("spec.maxFailedIndexes", "Invalid", most_failed, detail)


def _validate_selector(obj: JsonObject) -> Iterator[FieldError]:
    """Check that a selector which the user did not ask to write is the generated one."""
    spec = obj["spec"]
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    uid, name = obj["metadata"].get("uid"), obj["metadata"].get("name")
    generated = {"controller-uid": uid, "job-name": name}
    generated |= {f"batch.kubernetes.io/{key}": value for key, value in generated.items()}
    if not spec["manualSelector"] and not wanted.items() <= generated.items():
        yield FieldError("spec.selector", "Invalid", spec["selector"], "`selector` not auto-generated")


def _validate_template(spec: JsonObject) -> Iterator[FieldError]:
    template = spec["template"]
    yield from validate_pod_spec(template["spec"], "spec.template.spec")
    yield from _validate_restart(template["spec"]["restartPolicy"], has_failure_policy="podFailurePolicy" in spec)
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = template["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        yield FieldError(
            "spec.template.metadata.labels", "Invalid", labels, "`selector` does not match template `labels`"
        )


def _validate_restart(policy: str, *, has_failure_policy: bool) -> Iterator[FieldError]:
    path = "spec.template.spec.restartPolicy"
    if policy == "Always":  # what a pod gets that says nothing
        yield FieldError(path, "Required", detail='valid values: "OnFailure", "Never"')
    elif policy not in ("Never", "OnFailure"):
        yield unsupported(path, policy, ["Never", "OnFailure"])
    elif has_failure_policy and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield FieldError(path, "Invalid", policy, detail)


def validate_job_update(obj: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check that what the job controller relies on stays as it was."""
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


_COUNTERS = ("active", "ready", "succeeded", "failed", "terminating")
_PATH = "status"


def validate_job_status_update(job: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return the broken rules of a changed status."""
    status, before = job.get("status", {}), old.get("status", {})
    if status == before:
        return []
    known = list(_validate_state(old["spec"], before))
    found = [problem for problem in _validate_state(job["spec"], status) if problem not in known]
    return [*found, *_validate_transition(old["spec"], status, before)]


def _holding(status: JsonObject) -> set[str]:
    return {each["type"] for each in status.get("conditions") or () if each.get("status") == "True"}


def _validate_state(spec: JsonObject, status: JsonObject) -> Iterator[FieldError]:
    for counter in _COUNTERS:
        value = status.get(counter) or 0
        if value < 0:
            yield FieldError(f"{_PATH}.{counter}", "Invalid", value, "must be greater than or equal to 0")
    ready = status.get("ready")
    if ready is not None and ready > (status.get("active") or 0):
        yield FieldError(f"{_PATH}.ready", "Invalid", ready, "cannot set more ready pods than active")
    yield from _validate_condition(status)
    if _holding(status) & {"Complete", "Failed"}:
        yield from _validate_finished(status)
    yield from _validate_index(spec, status)


def _validate_condition(status: JsonObject) -> Iterator[FieldError]:
    holding = _holding(status)
    path = f"{_PATH}.conditions"
    for left, right in (
        ("Complete", "Failed"),
        ("Complete", "FailureTarget"),
        ("Failed", "SuccessCriteriaMet"),
        ("FailureTarget", "SuccessCriteriaMet"),
    ):
        if {left, right} <= holding:
            yield FieldError(path, "Invalid", OMITTED, f"cannot set {left}=True and {right}=true conditions")
    for final, announcement in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        if final in holding and announcement not in holding:
            detail = f"cannot set {final}=True condition without the {announcement}=true condition"
            yield FieldError(path, "Invalid", OMITTED, detail)
    completed = status.get("completionTime")
    here = f"{_PATH}.completionTime"
    if completed and "Complete" not in holding:
        yield FieldError(
            here, "Invalid", completed, "cannot set completionTime when there is no Complete=True condition"
        )
    elif not completed and "Complete" in holding:
        yield FieldError(here, "Required", detail="completionTime is required for Complete jobs")
    elif completed and status.get("startTime") and completed < status["startTime"]:
        yield FieldError(here, "Invalid", completed, "completionTime cannot be set before startTime")


def _validate_finished(status: JsonObject) -> Iterator[FieldError]:
    for counter in ("active", "terminating"):
        if status.get(counter):
            detail = f"{counter}>0 is invalid for finished job"
            yield FieldError(f"{_PATH}.{counter}", "Invalid", status[counter], detail)
    if not status.get("startTime"):
        yield FieldError(f"{_PATH}.startTime", "Required", detail="startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods") or {}
    if uncounted.get("succeeded") or uncounted.get("failed"):
        detail = "uncountedTerminatedPods needs to be empty for finished job"
        yield FieldError(f"{_PATH}.uncountedTerminatedPods", "Invalid", OMITTED, detail)


def _validate_index(spec: JsonObject, status: JsonObject) -> Iterator[FieldError]:
    completed, failed = status.get("completedIndexes"), status.get("failedIndexes")
    if completed and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield FieldError(f"{_PATH}.completedIndexes", "Invalid", completed, detail)
    if failed is not None and "backoffLimitPerIndex" not in spec:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield FieldError(f"{_PATH}.failedIndexes", "Invalid", failed, detail)
    if spec.get("completionMode") != "Indexed":
        return
    for field, text in (("completedIndexes", completed), ("failedIndexes", failed)):
        try:
            count_indexes(text or "", spec.get("completions") or 0)
        except IndexesMalformed as error:
            yield FieldError(f"{_PATH}.{field}", "Invalid", text, f"error parsing {field}: {error}")


def _validate_transition(spec: JsonObject, status: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    for final in ("Complete", "Failed"):
        if final in _holding(before) - _holding(status):
            detail = f"cannot disable the terminal {final}=True condition"
            yield FieldError(f"{_PATH}.conditions", "Invalid", OMITTED, detail)
    for announcement in ("FailureTarget", "SuccessCriteriaMet"):
        if announcement in _holding(before) - _holding(status):
            detail = f"cannot disable the {announcement}=True condition"
            yield FieldError(f"{_PATH}.conditions", "Invalid", OMITTED, detail)
    if before.get("completionTime") and status.get("completionTime") != before["completionTime"]:
        yield FieldError(f"{_PATH}.completionTime", "Invalid", status.get("completionTime"), "field is immutable")
    if before.get("startTime") and not spec.get("suspend"):
        if not status.get("startTime"):
            yield FieldError(f"{_PATH}.startTime", "Required", detail="startTime cannot be removed for unsuspended job")
        elif status["startTime"] != before["startTime"]:
            detail = "startTime cannot be modified for unsuspended job"
            yield FieldError(f"{_PATH}.startTime", "Invalid", status["startTime"], detail)
    if (status.get("failed") or 0) < (before.get("failed") or 0):
        yield FieldError(f"{_PATH}.failed", "Invalid", status.get("failed", 0), "cannot decrease the failed counter")
    # Indexes of an elastic Job can go away, and their successes with them.
    decreased = (status.get("succeeded") or 0) < (before.get("succeeded") or 0)
    if decreased and spec.get("completionMode") != "Indexed":
        detail = "cannot decrease the succeeded counter"
        yield FieldError(f"{_PATH}.succeeded", "Invalid", status.get("succeeded", 0), detail)
