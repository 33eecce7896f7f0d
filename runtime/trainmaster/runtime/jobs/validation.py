"""Validation of jobs of `kubeflow.org/v1`: what is refused and warned about when one is written, or is not worked on.

Rules and texts are those of the webhooks of the Training Operator, in their order: the name, who manages the job, its
replicas, then what is special of the kind. Beyond them:

- V1-B4: `managedBy` is judged for all kinds alike.
- V1-B16: replica types may be written in any case, and what has a default may be left out.
- V1-B17: what behaves otherwise than its author may think is a warning: unknown policies, types that no kind has.
- V1-B36: nothing stands in the way of a job's end, nor of changes that are none of its spec: what is stored is stored.
- What pods or Services the API server would refuse for certain is refused here (`podtemplates`).

Jobs are validated as they were written; only what has a default is looked at with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trainmaster.runtime.api.constants import RESILIENCE_POLICY_ANNOTATION
from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.field_errors import FieldError, FieldWarning, ValidationResult
from trainmaster.runtime.jobs.constants import (
    ALWAYS,
    CLEAN_ALL,
    CLEAN_NONE,
    CLEAN_RUNNING,
    EXIT_CODE,
    MANAGED_BY_MULTIKUEUE,
    MANAGED_BY_TRAINING_OPERATOR,
    NEVER,
    ON_FAILURE,
)
from trainmaster.runtime.jobs.defaulting import canonical_type, parse_job, rank_of
from trainmaster.runtime.jobs.interface import Job, JobKind, contained
from trainmaster.runtime.jobs.podtemplates import check_names, check_pods
from trainmaster.runtime.jobs.types import ReplicaSpec
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label_1035
from trainmaster.runtime.podspec import warn_of_metadata
from trainmaster.runtime.resilience import (
    ANNOTATION_PATH,
    PolicyInvalid,
    annotated_policy,
    policy_conflicts,
    policy_problems,
)

_MANAGERS: Final = (MANAGED_BY_TRAINING_OPERATOR, MANAGED_BY_MULTIKUEUE)
_CLEAN_POD_POLICIES: Final = (CLEAN_ALL, CLEAN_RUNNING, CLEAN_NONE)
_RESTART_POLICIES: Final = (ALWAYS, ON_FAILURE, NEVER, EXIT_CODE)
_BOUND: Final = "the maxReplicas of the manager's configuration"


def validate_job(kind: JobKind, obj: JsonObject, old: JsonObject | None) -> ValidationResult:
    """Validate a job that has passed the rules of its schema.

    Args:
        old: The one that is stored, when it is an update.
    """
    if old is not None and (_is_being_deleted(obj) or _judged(obj) == _judged(old)):
        return ValidationResult()
    try:
        with contained():
            job = parse_job(kind, obj)
            before = _parsed(kind, old)
            found = [*_check_object(job, old), *check_job(job, before)]
    except ApiTypeError as error:
        return ValidationResult(refusal=f"the {kind.kind} cannot be read: {'; '.join(error.problems)}")
    found += warn_of_metadata(obj, instead=f"spec.{kind.replica_specs_field}[].template.metadata")
    if not any(isinstance(each, FieldError) for each in found):
        found += [*check_names(job), *check_pods(job)]
    return ValidationResult(
        [each for each in found if isinstance(each, FieldError)],
        list(dict.fromkeys(str(each) for each in found if isinstance(each, FieldWarning))),
    )


def check_job(job: Job, old: Job | None = None) -> Iterator[FieldError | FieldWarning]:
    """Return what is wrong with the spec of a job, and what to warn of.

    For jobs, too, that nobody admitted: what is an error here cannot be worked on.

    Args:
        old: The one that is stored, when it is an update.
    """
    excess = excess_of(job)
    if excess is not None:
        # Before anything that costs more than counting.
        yield excess
        return
    if not job.kind.own_rules:
        yield from _check_replica_specs(job)
    yield from job.kind.validate(job, old)
    if job.kind.own_rules:
        for replica_type, replica in job.replica_specs.items():
            yield from _check_replicas(replica, f"spec.{job.kind.replica_specs_field}[{replica_type}]")
    yield from _check_run_policy(job)
    yield from check_resilience(job)


def excess_of(job: Job) -> FieldError | None:
    """Return an error if a job has more pods than it may have; even to count them out could take too long."""
    most = job.kind.max_replicas
    path = f"spec.{job.kind.replica_specs_field}"
    total = 0
    for replica_type, replica in job.replica_specs.items():
        if replica.replicas > most:
            detail = f"must be less than or equal to {most}, {_BOUND}"
            return FieldError(f"{path}[{replica_type}].replicas", detail, value=replica.replicas)
        total += max(replica.replicas, 0)
    if total <= most:
        return None
    detail = f"a job may have {most} pods at most, {_BOUND}, and this one has {total}"
    return FieldError(path, detail, "Forbidden")


def _check_object(job: Job, old: JsonObject | None) -> Iterator[FieldError]:
    """Check what concerns the writing of an object, rather than what becomes of it."""
    problems = [] if job.kind.own_rules else dns_label_1035(job.name)
    if problems:
        yield FieldError("metadata.name", f"should match: {','.join(problems)}", value=job.name)
    path, manager = "spec.runPolicy.managedBy", _manager(job.raw)
    if old is not None and manager != _manager(old):
        yield FieldError(path, "field is immutable", value=manager)
    if manager is not None and manager not in _MANAGERS:
        yield FieldError(path, _supported(_MANAGERS), "NotSupported", manager)


def _check_replica_specs(job: Job) -> Iterator[FieldError | FieldWarning]:
    kind = job.kind
    path = f"spec.{kind.replica_specs_field}"
    given = _mapping(_mapping(job.raw.get("spec")).get(kind.replica_specs_field))
    if not given:
        yield FieldError(path, "must be required", "Required")
    seen: dict[str, str] = {}
    for name in sorted(given, key=lambda each: (*rank_of(kind, canonical_type(kind, each, given)), each)):
        replica_type = canonical_type(kind, name, given)
        place = f"{path}[{name}]"
        if (same := seen.setdefault(replica_type.lower(), name)) != name:
            # Their pods would have the same names.
            yield FieldError(place, f"it is the same as {same}", "Duplicate", name)
            continue
        if replica_type not in kind.replica_types:
            if not kind.other_types:
                yield FieldError(place, _supported(kind.replica_types), "NotSupported", name)
            else:
                known = ", ".join(kind.replica_types)
                yield FieldWarning(place, f"its pods run, and have no part in how the job fares; known are: {known}")
        yield from _check_containers(kind, _mapping(given[name]), f"{place}.template.spec")
        yield from _check_replicas(job.replica_specs[replica_type], place)


def check_resilience(job: Job) -> Iterator[FieldError | FieldWarning]:
    """Return what is wrong with the resilience policy of a job, and what of it has no effect on these jobs."""
    try:
        policy = annotated_policy(job.metadata.annotations)
    except PolicyInvalid as error:
        path, _, detail = str(error).partition(": ")
        yield FieldError(path, detail, "Forbidden")
        return
    if policy is None:
        return
    yield from policy_problems(policy, ANNOTATION_PATH)
    yield from policy_conflicts(policy, {}, ANNOTATION_PATH)
    for field, value in (
        ("nodes.lostAfter", policy.nodes and policy.nodes.lost_after),
        ("progress", policy.progress),
        ("logs", policy.logs),
        ("worldSize", policy.world_size),
    ):
        if value:
            yield FieldWarning(f"{ANNOTATION_PATH}.{field}", "has no effect on jobs of kubeflow.org/v1")
    if policy.nodes and not policy.counts_failures:
        yield FieldWarning(f"{ANNOTATION_PATH}.nodes", "has no effect without maxRestarts, disruptions or exitCodes")
    if policy.counts_failures and job.run_policy.backoff_limit is not None:
        detail = "has no effect beside a resilience policy: its maxRestarts counts instead"
        yield FieldWarning("spec.runPolicy.backoffLimit", detail)


def _check_containers(kind: JobKind, replica: JsonObject, path: str) -> Iterator[FieldError | FieldWarning]:
    spec = _mapping(_mapping(replica.get("template")).get("spec"))
    containers: list[JsonObject] = spec.get("containers") or []
    if not containers:
        yield FieldError(f"{path}.containers", "must be specified", "Required")
    for index, container in enumerate(containers):
        if not container.get("image"):
            yield FieldError(f"{path}.containers[{index}].image", "must be required", "Required")
    if not kind.any_container and all(each.get("name") != kind.container_name for each in containers):
        yield FieldError(f"{path}.containers", kind.lacks_container(), "Required")
    if spec.get("restartPolicy"):
        detail = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        yield FieldWarning(f"{path}.restartPolicy", detail)


def _check_replicas(replica: ReplicaSpec, path: str) -> Iterator[FieldError]:
    if replica.replicas < 0:
        yield FieldError(f"{path}.replicas", "must be greater than or equal to 0", value=replica.replicas)
    if replica.restart_policy not in _RESTART_POLICIES:
        # Pods with any other are refused.
        policies = _supported(_RESTART_POLICIES)
        yield FieldError(f"{path}.restartPolicy", policies, "NotSupported", replica.restart_policy)


def _check_run_policy(job: Job) -> Iterator[FieldWarning]:
    policy, total = job.run_policy, job.total_replicas
    if policy.clean_pod_policy not in _CLEAN_POD_POLICIES:
        detail = (
            f'"{policy.clean_pod_policy}" is none of {", ".join(_CLEAN_POD_POLICIES)}, and is taken for {CLEAN_ALL}'
        )
        yield FieldWarning("spec.runPolicy.cleanPodPolicy", detail)
    for field, given, least, effect in (
        ("backoffLimit", policy.backoff_limit, 0, "the job fails at once"),
        ("activeDeadlineSeconds", policy.active_deadline_seconds, 1, "the job fails at once"),
        ("ttlSecondsAfterFinished", policy.ttl_seconds_after_finished, 0, "the job is deleted as soon as it has ended"),
    ):
        if given is not None and given < least:
            yield FieldWarning(f"spec.runPolicy.{field}", f"{given} is less than {least}: {effect}")
    if (policy.backoff_limit or 0) > 0 and all(each.restart_policy == NEVER for each in job.replica_specs.values()):
        detail = (
            f"has no effect with restartPolicy {NEVER}: the first pod that fails ends the job; write {ON_FAILURE} or "
            f"{EXIT_CODE}"
        )
        yield FieldWarning("spec.runPolicy.backoffLimit", detail)
    members = policy.scheduling_policy.min_available
    if members is not None and members > total:
        detail = f"the job has {total} pods, so a gang scheduler waits for {members} for ever"
        yield FieldWarning("spec.runPolicy.schedulingPolicy.minAvailable", detail)
    if job.replica_specs and not total:
        yield FieldWarning(f"spec.{job.kind.replica_specs_field}", "there are no replicas: the job has no pods")


def _supported(values: tuple[str, ...]) -> str:
    return "supported values: " + ", ".join(f'"{value}"' for value in values)


def _manager(obj: Mapping[str, Any]) -> Any:
    return _mapping(_mapping(obj.get("spec")).get("runPolicy")).get("managedBy")


def _is_being_deleted(obj: JsonObject) -> bool:
    return bool(_mapping(obj.get("metadata")).get("deletionTimestamp"))


def _judged(obj: JsonObject) -> tuple[JsonObject, Any]:
    """Return the spec but for whether it is suspended, which may change at any time, and the resilience policy."""
    spec = _mapping(obj.get("spec"))
    resilience = _mapping(_mapping(obj.get("metadata")).get("annotations")).get(RESILIENCE_POLICY_ANNOTATION)
    policy = {name: value for name, value in _mapping(spec.get("runPolicy")).items() if name != "suspend"}
    return {**{name: value for name, value in spec.items() if name != "runPolicy"}, "runPolicy": policy}, resilience


def _parsed(kind: JobKind, obj: JsonObject | None) -> Job | None:
    try:
        return parse_job(kind, obj) if obj is not None else None
    except ApiTypeError:
        return None


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
