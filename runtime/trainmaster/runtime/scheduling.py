"""Groups of pods that Kubernetes itself schedules together: what `spec.scheduling` of a runtime makes of its JobSet.

- Pods that never exist at the same time are in no common gang. The gang of a whole job in which one ReplicatedJob waits
  for another, or initializes, is therefore one gang for each ReplicatedJob.
- A ReplicatedJob that completes more pods than run at the same time is no gang: its last pods are fewer than it needs.
- What is wrong is said when the runtime is written, and again when a TrainJob is built, whose patches may have changed
  it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from trainmaster.runtime.api.constants import DATASET_INITIALIZER, MODEL_INITIALIZER, TRAINER_ANCESTOR
from trainmaster.runtime.api.scheduling import (
    BASIC,
    GANG,
    MAX_GROUPS,
    BasicSchedulingPolicy,
    GroupScheduling,
    PodResourceClaim,
    ReplicatedJobScheduling,
    Scheduling,
    SchedulingPolicy,
    claim_entry,
)
from trainmaster.runtime.api.trainingruntime import PodGroupPolicy
from trainmaster.runtime.field_errors import FieldError, did_you_mean
from trainmaster.runtime.info import ancestor_of
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label

PATH: Final = "spec.scheduling"
_ENTRIES: Final = f"{PATH}.replicatedJobs"
_PODS: Final = "spec.template.spec.replicatedJobs[{}].template.spec.template.spec"
_WHOLE: Final = "trainjob"
_INITIALIZERS: Final = (DATASET_INITIALIZER, MODEL_INITIALIZER)
_BY_ITSELF: Final = SchedulingPolicy(basic=BasicSchedulingPolicy())
_LONGEST_NAME: Final = 61
"""Characters, so that it has room for the index of a Job, and is the value of a label."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of pods; or one for each Job, if it is `per_job`."""

    name: str
    members: tuple[str, ...]
    """ReplicatedJobs."""

    rules: GroupScheduling
    per_job: bool = False
    claims: tuple[JsonObject, ...] = ()
    """Devices that its pods share, as pods and PodGroups declare them."""

    @property
    def is_gang(self) -> bool:
        """Whether all pods are scheduled together, or none."""
        return self.rules.policy == GANG


def groups_of(scheduling: Scheduling, template: JsonObject) -> list[Group]:
    """Return the groups of the pods of a JobSet with this spec."""
    if scheduling.replicated_jobs:
        return [_group_of(entry) for entry in scheduling.replicated_jobs if entry.target_replicated_jobs]
    jobs = template.get("replicatedJobs") or []
    if scheduling.policy == BASIC or not _comes_in_steps(template):
        return [Group(_WHOLE, tuple(each["name"] for each in jobs), scheduling)]
    single = scheduling.model_copy(update={"scheduling_policy": _BY_ITSELF})
    return [Group(each["name"], (each["name"],), single if _works_through(each) else scheduling) for each in jobs]


def _group_of(entry: ReplicatedJobScheduling) -> Group:
    members = tuple(entry.target_replicated_jobs)
    rules = entry if entry.job is None else entry.job
    claims = tuple(claim_entry(each) for each in rules.resource_claims)
    return Group(members[0], members, rules, per_job=entry.job is not None, claims=claims)


def _comes_in_steps(template: JsonObject) -> bool:
    jobs = template.get("replicatedJobs") or []
    return any(awaited(template).values()) or any(
        ancestor_of(each) in _INITIALIZERS or _works_through(each) for each in jobs
    )


def _works_through(replicated_job: JsonObject) -> bool:
    job_spec = (replicated_job.get("template") or {}).get("spec") or {}
    several = (job_spec.get("completions") or 0) > max(job_spec.get("parallelism") or 1, 1)
    return several and ancestor_of(replicated_job) != TRAINER_ANCESTOR


def awaited(template: JsonObject) -> dict[str, set[str]]:
    """Map each ReplicatedJob to all those that have to be ready or complete before it starts.

    JobSet allows dependencies on earlier ReplicatedJobs only. What has another shape than theirs is left to the schema.
    """
    policy = template.get("startupPolicy")
    in_order = isinstance(policy, dict) and policy.get("startupPolicyOrder") == "InOrder"
    before: dict[str, set[str]] = {}
    for replicated_job in template.get("replicatedJobs") or []:
        told = replicated_job.get("dependsOn")
        named = (each.get("name") for each in (told if isinstance(told, list) else ()) if isinstance(each, dict))
        direct = {name for name in named if isinstance(name, str)}
        if in_order:
            direct |= before.keys()
        before[replicated_job["name"]] = direct.union(*(before.get(name, set()) for name in direct))
    return before


def object_name(*parts: str) -> str:
    """Return the name of an object that belongs to a TrainJob: never too long, and of no other TrainJob."""
    digest = sha256("/".join(parts).encode()).hexdigest()[:8]
    return f"{'-'.join(parts)[: _LONGEST_NAME - 9].rstrip('-.')}-{digest}"


def scheduling_problems(
    scheduling: Scheduling, pod_group_policy: PodGroupPolicy | None, template: JsonObject
) -> Iterator[FieldError]:
    """Return what is wrong with `spec.scheduling` of a runtime.

    Args:
        scheduling: It.
        pod_group_policy: That of the runtime.
        template: The spec of the JobSet.
    """
    if pod_group_policy is not None:
        detail = "and podGroupPolicy exclude each other, since a pod has one scheduler: remove one of them"
        yield FieldError(PATH, detail, type="Forbidden")
    if scheduling.replicated_jobs and not scheduling.is_empty:
        detail = "must have nothing beside replicatedJobs, or no replicatedJobs: a pod is in one group"
        yield FieldError(PATH, detail, type="Forbidden")
    yield from _policy_problems(scheduling, PATH)
    yield from _entry_problems(scheduling.replicated_jobs, template)
    jobs = template.get("replicatedJobs") or []
    for position, replicated_job in enumerate(jobs):
        if _pod_spec(replicated_job).get("schedulingGroup") is not None:
            detail = "must be absent: the groups of a runtime with scheduling are made for each TrainJob"
            yield FieldError(f"{_PODS.format(position)}.schedulingGroup", detail, type="Forbidden")
    groups = groups_of(scheduling, template)
    replicas = {each["name"]: each.get("replicas", 1) for each in jobs}
    count = sum(replicas.get(group.members[0], 1) if group.per_job else 1 for group in groups)
    if count > MAX_GROUPS:
        detail = f"makes {count} groups, and a Workload has at most {MAX_GROUPS}: have ReplicatedJobs share groups"
        yield FieldError(PATH, detail, type="Forbidden")
    for group in groups:
        yield from _never_together(group, template)


def _policy_problems(rules: GroupScheduling, path: str) -> Iterator[FieldError]:
    policy = rules.scheduling_policy
    if policy is None or policy.gang is None:
        return
    if policy.basic is not None:
        yield FieldError(f"{path}.schedulingPolicy", "must have one of gang and basic, not both", type="Forbidden")
    if policy.gang.min_count is not None:
        detail = "must be absent: it is computed from the number of pods"
        yield FieldError(f"{path}.schedulingPolicy.gang.minCount", detail, type="Forbidden")


def _claim_problems(claims: Sequence[PodResourceClaim], path: str) -> Iterator[FieldError]:
    seen = set[str]()
    for position, claim in enumerate(claims):
        field = f"{path}.resourceClaims[{position}]"
        for problem in dns_label(claim.name):
            yield FieldError(f"{field}.name", problem, value=claim.name)
        if claim.name in seen:
            yield FieldError(f"{field}.name", "is the name of another claim", type="Duplicate", value=claim.name)
        if len(claim_entry(claim)) != 2:  # its name and one source
            detail = "must have exactly one of resourceClaimName and resourceClaimTemplateName"
            yield FieldError(field, detail, value=claim.to_json())
        seen.add(claim.name)


def _entry_problems(entries: Sequence[ReplicatedJobScheduling], template: JsonObject) -> Iterator[FieldError]:
    known = [each["name"] for each in template.get("replicatedJobs") or []]
    seen = set[str]()
    for number, entry in enumerate(entries):
        path = f"{_ENTRIES}[{number}]"
        yield from _policy_problems(entry, path)
        yield from _claim_problems(entry.resource_claims, path)
        for position, name in enumerate(entry.target_replicated_jobs):
            target = f"{path}.targetReplicatedJobs[{position}]"
            if name not in known:
                yield FieldError(target, f"is no ReplicatedJob of the template {did_you_mean(name, known)}", value=name)
            elif name in seen:
                yield FieldError(target, "is in a group already", type="Duplicate", value=name)
            seen.add(name)
        if not entry.target_replicated_jobs:
            yield FieldError(f"{path}.targetReplicatedJobs", "name ReplicatedJobs of the template", type="Required")
        if entry.job is None:
            continue
        yield from _policy_problems(entry.job, f"{path}.job")
        yield from _claim_problems(entry.job.resource_claims, f"{path}.job")
        if not entry.is_empty:
            yield FieldError(f"{path}.job", "excludes the other fields of this entry: move them into job", "Forbidden")
        if len(entry.target_replicated_jobs) > 1:
            detail = "must have one name, since each Job of it is a group"
            yield FieldError(f"{path}.targetReplicatedJobs", detail, value=entry.target_replicated_jobs)
    missing = [name for name in known if name not in seen]
    if entries and missing:
        yield FieldError(
            _ENTRIES, f"must name all ReplicatedJobs of the template; these miss: {', '.join(missing)}", "Required"
        )


def _never_together(group: Group, template: JsonObject) -> Iterator[FieldError]:
    """Return why a group can never be scheduled."""
    jobs = {each["name"]: each for each in template.get("replicatedJobs") or []}
    members = [jobs[name] for name in group.members if name in jobs]
    what = f"the group of {', '.join(group.members)} can never be scheduled: "
    if group.is_gang:
        before = awaited(template)
        for name in group.members:
            first = sorted(before.get(name, set()).intersection(group.members))
            if first:
                detail = f"{what}{name} starts after {', '.join(first)}; give each a group of its own"
                yield FieldError(PATH, detail, type="Forbidden")
        for each in filter(_works_through, members):
            detail = f"{what}{each['name']} completes more pods than run at once; give it a group with the policy basic"
            yield FieldError(PATH, detail, type="Forbidden")
        schedulers = {_pod_spec(each).get("schedulerName") or "default-scheduler" for each in members}
        if len(schedulers) > 1:
            detail = f"{what}its pods have several schedulers: {', '.join(sorted(schedulers))}"
            yield FieldError(PATH, detail, type="Forbidden")
    constraints = group.rules.scheduling_constraints
    for key in [each.key for each in constraints.topology] if constraints else []:
        selectors = [_pod_spec(each).get("nodeSelector") or {} for each in members]
        places = {str(each[key]) for each in selectors if key in each}
        if len(places) > 1:
            detail = f"{what}its pods select nodes with several values of {key}: {', '.join(sorted(places))}"
            yield FieldError(PATH, detail, type="Forbidden")


def _pod_spec(replicated_job: JsonObject) -> dict[str, Any]:
    node: JsonObject = replicated_job
    for step in ("template", "spec", "template", "spec"):
        node = node.get(step) or {}
    return node
