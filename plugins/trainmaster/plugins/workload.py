"""Workload: gangs that Kubernetes itself schedules, without another scheduler (KEP-3015, alpha).

The pods name their PodGroup in `spec.schedulingGroup`. Workload and PodGroups are built before the JobSet, and are not
there while the TrainJob is suspended.

- Pods that terminate count for their gang, so that those of the next attempt could start without their peers. They
  wait: Kubernetes keeps a deleted PodGroup until its pods have ended, and a TrainJob is resumed only after that; a
  JobSet creates the pods of an attempt after those of the last one are gone (`BlockingRecreate`). New groups for each
  attempt are not possible, since the pod templates of a JobSet cannot change.
- All Jobs of a ReplicatedJob have one pod template. Where each of them is a group, pods get theirs by the
  MutatingAdmissionPolicy in `deploy/slice-pod-groups`.
- What an API server does not know it drops without a word. So what it has stored is read back. Jobs and pods are not
  read: where pods are ready and their PodGroup was never scheduled, they do not name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trainmaster.plugins.util.podgroup import fewest, mark
from trainmaster.plugins.util.scheduling_api import APIS, SchedulingAPI
from trainmaster.runtime.api.constants import (
    JOBSET_KIND,
    POD_GROUP_KIND,
    SCHEDULING_GATE,
    SLICE_GROUP_LABEL,
    WORKLOAD_KIND,
)
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldWarning
from trainmaster.runtime.framework.interface import ApplyWhen, Desired, NotReady, Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import JobKey, Listers, Watch
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.resource_claims import claims_of
from trainmaster.runtime.scheduling import Group, groups_of, object_name, scheduling_problems

SLICE_POLICY: Final = "slice-pod-groups.trainmaster.dev"
"""Name of the MutatingAdmissionPolicy."""

_POLICIES: Final = ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")
_NOT_SERVED: Final = (
    f"the cluster does not serve {WORKLOAD_KIND} and {POD_GROUP_KIND} ({', '.join(api.api_version for api in APIS)}), "
    "or the manager may not read them. The runtime asks for them by spec.scheduling: use another runtime, or tell your "
    "administrator to open the feature gates GenericWorkload and GangScheduling of kube-apiserver and kube-scheduler, "
    "and to serve the API (--runtime-config); an embedded cluster takes `cluster up --workload-aware-scheduling`"
)


class _PodGroup(NamedTuple):
    """One PodGroup that is to be."""

    template: str
    name: str
    members: tuple[str, ...]
    """ReplicatedJobs."""

    spec: JsonObject


class Workload:
    """Serves `spec.scheduling` of runtimes."""

    name = "workload"
    feature_gate = SCHEDULING_GATE
    maturity = "alpha"
    policies = ("scheduling",)
    after = ("resilience",)

    def watch_extension(self) -> Iterable[Watch]:
        """The objects of all versions of the API, and the names of admission policies."""
        for api in APIS:
            for kind, plural in ((WORKLOAD_KIND, "workloads"), (POD_GROUP_KIND, "podgroups")):
                yield Watch(api.api_version, kind, plural, writes=True, prunes=True, optional=True)
        yield Watch(
            *_POLICIES,
            "mutatingadmissionpolicies",
            namespaced=False,
            jobs=_nobody,
            metadata_only=True,
            optional=True,
        )

    def enforce_pod_group(self, info: Info, job: TrainJob) -> None:
        """Refuse groups that cannot be."""
        if info.scheduling is None:
            return
        problem = next(scheduling_problems(info.scheduling, info.pod_group_policy, info.template), None)
        if problem is not None:
            raise Rejected(f"the runtime cannot be used, {problem.path}: {problem.detail}")

    def pre_build(self, info: Info, job: TrainJob) -> None:
        """Write their group into the pods, and have a restart leave gangs whole."""
        groups = _groups(info)
        for group, pods in _members(info, groups):
            base = object_name(job.metadata.name, group.name)
            if _is_sliced(group, pods):
                mark(pods, "labels", SLICE_GROUP_LABEL, base)
            else:
                pods.pod_spec.update(_api(info.listers).pod_fields(base))
        policy = info.template.get("failurePolicy")
        if policy and any(group.is_gang for group in groups):
            policy.setdefault("restartStrategy", "BlockingRecreate")

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the Workload and the PodGroups, unless the TrainJob is suspended."""
        groups = _groups(info)
        if job.spec.suspend or not groups:
            return
        api = _api(listers)
        if not listers.is_served(api.api_version, POD_GROUP_KIND):
            raise NotReady(_NOT_SERVED)
        if any(_is_sliced(*each) for each in _members(info, groups)) and not _policy_exists(listers):
            raise NotReady(
                f"each Job of a ReplicatedJob is a group, for which pods need the {_POLICIES[1]} {SLICE_POLICY}: tell "
                "your administrator to apply deploy/slice-pod-groups"
            )
        wanted = list(_pod_groups(info, job, groups, api))
        workload = object_name(job.metadata.name)
        objects = [api.workload(workload, job, [(each.template, each.spec) for each in wanted])]
        objects += [api.pod_group(each.name, each.spec, workload=workload, template=each.template) for each in wanted]
        _read_back(api, wanted, info, job, listers)
        for obj in objects:
            yield Desired(obj, ApplyWhen.MISSING)  # no field of theirs can be changed

    def validate(self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers) -> Iterator[FieldWarning]:
        """Warn of what keeps a gang from starting, or from being treated, as a whole."""
        gangs = [group for group in _groups(info) if group.is_gang]
        if gangs and (info.template.get("failurePolicy") or {}).get("restartStrategy") == "Recreate":
            detail = (
                "failurePolicy.restartStrategy of its JobSet is Recreate, by which a gang that is restarted may start "
                "in part while its last pods terminate: leave it out, or write BlockingRecreate"
            )
            yield FieldWarning("spec.runtimeRef", detail)
        for group in gangs:
            classes = {pods.pod_spec.get("priorityClassName") or "none" for _, pods in _members(info, [group])}
            if len(classes) > 1:
                detail = (
                    f"the pods of one gang have several priority classes: {', '.join(sorted(classes))}; the gang gets "
                    "that of its first ReplicatedJob which has one, and is preempted by it"
                )
                yield FieldWarning("spec.runtimeRef", detail)
        for group, pods in _members(info, _groups(info)):
            for claim in [each for each in group.claims if each not in claims_of(pods)]:
                detail = (
                    f'the claim "{claim["name"]}" of the ReplicatedJob "{pods.name}" is another one than that of its '
                    "group, so that each pod has its own: give it another name"
                )
                yield FieldWarning("spec.runtimeRef", detail)


def _nobody(_policy: JsonObject) -> Iterable[JobKey]:
    return ()


def _groups(info: Info) -> list[Group]:
    return [] if info.scheduling is None else groups_of(info.scheduling, info.template)


def _members(info: Info, groups: Iterable[Group]) -> Iterator[tuple[Group, PodSet]]:
    """Return the ReplicatedJobs that have pods, each with its group."""
    for group in groups:
        for pods in info.pod_sets:
            if pods.name in group.members and pods.size > 0:
                yield group, pods


def _is_sliced(group: Group, pods: PodSet) -> bool:
    return group.per_job and pods.replicas > 1


def _api(listers: Listers) -> SchedulingAPI:
    """Return the version that counts."""
    return next((api for api in APIS if listers.is_served(api.api_version, POD_GROUP_KIND)), APIS[0])


def _policy_exists(listers: Listers) -> bool:
    return listers.get(*_POLICIES, None, SLICE_POLICY) is not None


def _pod_groups(info: Info, job: TrainJob, groups: Iterable[Group], api: SchedulingAPI) -> Iterator[_PodGroup]:
    for group in groups:
        members = [pods for _, pods in _members(info, [group])]
        if not members:
            continue
        base = object_name(job.metadata.name, group.name)
        # The scheduler preempts by the priority of the group: those of its pods do not count.
        priority = next((each for pods in members if (each := pods.pod_spec.get("priorityClassName"))), None)
        count = sum(map(fewest, members)) // (members[0].replicas if group.per_job else 1)
        spec = api.pod_group_spec(group, count=count, priority_class=priority)
        if _is_sliced(group, members[0]):
            for index in range(members[0].replicas):
                yield _PodGroup(f"{group.name}-{index}", f"{base}-{index}", group.members, spec)
        else:
            yield _PodGroup(group.name, base, group.members, spec)


def _read_back(api: SchedulingAPI, groups: Sequence[_PodGroup], info: Info, job: TrainJob, listers: Listers) -> None:
    """Compare what is stored with what was written, and find pods that run beside their groups.

    Raises:
        NotReady: Pods are scheduled otherwise than the runtime says.
    """
    found = [listers.get(api.api_version, POD_GROUP_KIND, job.metadata.namespace, each.name) for each in groups]
    stored = {each["metadata"]["name"]: each for each in found if each is not None and is_controlled_by(each, job)}
    problems = list(_dropped_fields(api, groups, stored))
    for jobset in (each for each in listers.workloads(job) if each["kind"] == JOBSET_KIND):
        problems += [*_not_in_jobset(info, jobset), *_not_in_pods(api, groups, stored, jobset)]
    if problems:
        raise NotReady(problems[0])


def _dropped_fields(api: SchedulingAPI, groups: Iterable[_PodGroup], stored: Mapping[str, JsonObject]) -> Iterator[str]:
    for group in groups:
        for field, gate in api.dropped(group.spec, (stored.get(group.name) or {}).get("spec") or group.spec):
            yield (
                f"the API server has dropped {field} of PodGroup {group.name}, so that its pods are scheduled without: "
                f"the feature gate {gate} of kube-apiserver is off"
            )


def _not_in_jobset(info: Info, jobset: JsonObject) -> Iterator[str]:
    wanted, stored = _scheduling_groups(info.template), _scheduling_groups(jobset.get("spec") or {})
    lost = [name for name, group in wanted.items() if group and not stored.get(name)]
    if lost:
        yield (
            f"schedulingGroup of the pods of {', '.join(lost)} was dropped from JobSet {jobset['metadata']['name']}, "
            "so that they are scheduled one by one: the definition of JobSets does not know the field. Install JobSet "
            "0.12 or later, suspend the TrainJob, delete its JobSet and resume it"
        )


def _not_in_pods(
    api: SchedulingAPI, groups: Sequence[_PodGroup], stored: Mapping[str, JsonObject], jobset: JsonObject
) -> Iterator[str]:
    if (jobset.get("spec") or {}).get("suspend"):
        return  # its counts may be of the run before
    counts = (jobset.get("status") or {}).get("replicatedJobsStatus") or ()
    ready = {each["name"] for each in counts if each.get("ready")}
    tried = {each.members for each in groups if api.is_tried(stored.get(each.name) or {})}
    for group in groups:
        if group.name in stored and group.members not in tried and not ready.isdisjoint(group.members):
            yield (
                f"the pods of {', '.join(group.members)} run, and PodGroup {group.name} was never scheduled: they do "
                "not name it, so that they are scheduled one by one. Open the feature gate GenericWorkload of "
                "kube-apiserver and kube-scheduler, install JobSet 0.12 or later, and if slices are groups, the "
                f"{_POLICIES[1]} {SLICE_POLICY} with its binding; then suspend the TrainJob, "
                "delete its JobSet and resume it"
            )


def _scheduling_groups(jobset_spec: JsonObject) -> dict[str, JsonObject | None]:
    return {
        each["name"]: each["template"]["spec"]["template"]["spec"].get("schedulingGroup")
        for each in jobset_spec.get("replicatedJobs") or []
    }
