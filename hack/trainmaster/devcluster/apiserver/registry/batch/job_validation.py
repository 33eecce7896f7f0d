"""Rules of the spec of a Job, and of its changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.batch.job_policy_validation import (
    validate_pod_failure_policy,
    validate_success_policy,
)
from trainmaster.devcluster.apiserver.registry.core.podspec_validation import validate_pod_spec
from trainmaster.devcluster.apiserver.registry.field_errors import immutable, unsupported
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
