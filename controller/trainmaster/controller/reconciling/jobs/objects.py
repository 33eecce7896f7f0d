"""Objects: which of them a plan creates or applies: pods, Services, the PodGroup, and what a kind builds. Pure.

Rules (Training Operator V1):

- With Volcano there are no pods before their PodGroup has been enqueued.
- The annotations of a PodGroup stay as they were copied when it was made.
- What a kind builds comes before the pods, and is deleted when it is not built any more.
- An object of the same name that belongs to somebody else is never touched; a job that lacks one of its names does
  nothing until it is free.
- A Role that a job controls never names pods that do not exist or belong to others, in whatever state the job is:
  their names may be taken by pods of other jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.drift import Drift, drift, owned_fields
from trainmaster.controller.reconciling.expectations import WrittenStore
from trainmaster.controller.reconciling.jobs.observe import Observed
from trainmaster.controller.reconciling.jobs.replicas import Replicas, is_terminating
from trainmaster.controller.reconciling.jobs.status import StatusUpdate
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.writes import Apply, Create, Decision, JobEvent, name_taken
from trainmaster.runtime.api.constants import POD_GROUP_KIND
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jobs.interface import Job, contained
from trainmaster.runtime.jobs.podgroup import GangScheduler, has_other_scheduler
from trainmaster.runtime.jobs.pods import build_pod, build_service, owned
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import is_controlled_by, is_left_by_earlier

RBAC_GROUP: Final = "rbac.authorization.k8s.io"

MOST_CREATIONS: Final = 1000
"""Bounds the memory of one plan; 32 at a time, these take seconds."""


@dataclass(slots=True, kw_only=True)
class Plan(Decision):
    """What a reconcile of a job is to do."""

    update: StatusUpdate
    """The status that follows, as long as nothing goes wrong with the writes."""

    has_pods: bool = False
    """Whether the job had pods when it was observed."""

    replaced: list[list[JsonObject]] = field(default_factory=list)
    """Failed pods, by replica type, that are replaced, and were not when the job was looked at before."""

    def status(self, problem: Problem | None, *, now: str) -> JsonObject:  # noqa: ARG002 - that of the plan
        """Return the status that follows, given what stands in the way."""
        if problem is not None and not self.has_pods:
            self.update.not_started()
        self.update.blocked(problem)
        return self.update.to_json()


def plan_pods(observed: Observed, gang: GangScheduler | None, replicas: Iterable[Replicas], planned: Plan) -> None:
    """Create what lacks: pods of empty slots, and the Service of each slot."""
    job, stores = observed.job, observed.stores
    for each in replicas:
        for index in each.missing:
            make = partial(_contained, build_pod, job, each.replica_type, index, gang)
            _plan_creation(Create("Pod", each.names[index], JOB_NAME_LABEL, make), stores.pods, observed, planned)
        if each.missing:
            planned.events += _template_warnings(job, each.replica_type, gang)
        if not job.kind.has_services:
            continue
        for index, name in enumerate(each.names):
            if name not in observed.services:
                make = partial(_contained, build_service, job, each.replica_type, index)
                _plan_creation(Create("Service", name, JOB_NAME_LABEL, make), stores.services, observed, planned)
    if planned.is_stuck:
        planned.creates = []


def _plan_creation(creation: Create, store: Store, observed: Observed, planned: Plan) -> None:
    job, existing = observed.job, observed.existing(store, creation.name)
    if existing is None and len(planned.creates) >= MOST_CREATIONS:
        planned.is_partial = True
    elif existing is None:
        planned.creates.append(creation)
    elif is_left_by_earlier(existing, job.kind.kind, job, group=job.kind.group):
        planned.waiting = True
    elif planned.problem is None and not is_controlled_by(existing, job):
        planned.problem = name_taken(creation.kind, creation.name, job.kind.kind)


def _contained(build: Callable[..., JsonObject], *arguments: Any) -> JsonObject:
    with contained():
        return build(*arguments)


def _template_warnings(job: Job, replica_type: str, gang: GangScheduler | None) -> Iterator[JobEvent]:
    if (job.replica_specs[replica_type].template.get("spec") or {}).get("restartPolicy"):
        note = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        yield JobEvent("SetPodTemplateRestartPolicy", note, "Warning")
    if gang is not None and has_other_scheduler(job, replica_type, gang):
        note = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
        yield JobEvent("SetPodTemplateSchedulerName", note, "Warning")


def plan_objects(observed: Observed, planned: Plan) -> None:
    """Bring what the kind builds to where it wants it, and delete what it does not build any more."""
    job = observed.job
    pods = [pod for pod in observed.pods.values() if not is_terminating(pod)]
    built: set[tuple[str, str, str]] = set()
    for obj in job.kind.build(job, pods, observed.listers):
        built.add((obj["apiVersion"], obj["kind"], obj["metadata"]["name"]))
        _plan_apply(owned(job, obj), observed, planned)
    for (api_version, kind), objects in observed.others.items():
        if kind != POD_GROUP_KIND and not job.kind.keeps_objects:
            planned.deletes += [
                obj
                for name, obj in objects.items()
                if (api_version, kind, name) not in built and not is_terminating(obj)
            ]


def plan_roles(observed: Observed, planned: Plan) -> None:
    """Remove pods that do not exist or belong to others from the Roles of a job that does not run."""
    pods = {name for name, pod in observed.pods.items() if not is_terminating(pod)}
    for (api_version, kind), objects in observed.others.items():
        if kind != "Role" or api_version.partition("/")[0] != RBAC_GROUP:
            continue
        for name, role in objects.items():
            metadata = {"name": name, "labels": role["metadata"].get("labels") or {}}
            rules = [each for rule in role.get("rules") or () if (each := _of_pods(rule, pods)) is not None]
            built = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules}
            _plan_apply(owned(observed.job, built), observed, planned)


def _of_pods(rule: JsonObject, pods: Collection[str]) -> JsonObject | None:
    """Return a rule for no other pods than these; None: it is for none of them."""
    names = rule.get("resourceNames")
    if not names or all(each.partition("/")[0] != "pods" for each in rule.get("resources") or ()):
        return rule
    kept = [name for name in names if name in pods]
    return {**rule, "resourceNames": kept} if kept else None


def _plan_apply(obj: JsonObject, observed: Observed, planned: Plan) -> None:
    job, kind, name = observed.job, (obj["apiVersion"], obj["kind"]), obj["metadata"]["name"]
    other = observed.stores.others[kind]
    existing = observed.existing(other.store, name)
    if existing is None:
        if planned.problem is None:
            planned.applies.append(Apply(obj, create=other.creates_only))
    elif not obj["metadata"]["ownerReferences"]:
        pass  # nobody's, and there
    elif is_left_by_earlier(existing, job.kind.kind, job, group=job.kind.group):
        if isinstance(other.store, WrittenStore):
            # Its end will not be seen: the server is asked.
            planned.applies.append(Apply(obj, create=other.creates_only))
        else:
            planned.waiting = True
    elif not is_controlled_by(existing, job):
        planned.problem = planned.problem or name_taken(obj["kind"], name, job.kind.kind)
    elif is_terminating(existing):
        planned.waiting = True
    elif not other.creates_only and drift(obj, existing, owned_fields=owned_fields(existing)) is Drift.CERTAIN:
        planned.applies.append(Apply(obj, uid=existing["metadata"]["uid"]))


def plan_pod_group(observed: Observed, gang: GangScheduler, planned: Plan) -> bool:
    """Bring the PodGroup up to date; tells whether pods may be created."""
    job = observed.job
    existing = observed.pod_group(gang)
    group = gang.pod_group(job, existing, observed.priorities())
    if existing is not None:
        _keep_annotations(group, existing)
    _plan_apply(group, observed, planned)
    return existing is not None and gang.admits(existing)


def _keep_annotations(group: JsonObject, existing: JsonObject) -> None:
    """Leave the annotations of a PodGroup as they were copied when it was made."""
    fields = (owned_fields(existing) or {}).get("f:metadata") or {}
    ours = {each.removeprefix("f:") for each in fields.get("f:annotations") or {}}
    annotations = existing["metadata"].get("annotations") or {}
    group["metadata"]["annotations"] = {key: value for key, value in annotations.items() if key in ours}
    if not group["metadata"]["annotations"]:
        del group["metadata"]["annotations"]
