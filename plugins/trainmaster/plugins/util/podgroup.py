"""PodGroups: which pods of a TrainJob start together or not at all. Shared by the plugins of gang schedulers.

A gang scheduler binds no pod of a group before all of its quorum exist, so a quorum must not count pods that come into
being only after others have started or ended (B10). The gang of a TrainJob is made so that it can always become
complete:

- No member waits for another one, by `dependsOn` (be it for Ready or for Complete) or by a start-up in order. So an
  initializer that others wait for is no member, and one that nobody waits for, which runs beside them, is.
- A ReplicatedJob that works through a list is no member: its pods do not all exist at once.
- Those that train come first, then the largest, initializers last; everything joins that can start together with all
  of those before.

A member that has ended still counts for both schedulers, so that a pod of another one can be replaced.

The pods of all other ReplicatedJobs bear no mark of the group and are scheduled one by one, before, beside or after the
gang. Thus an MPI launcher that waits for its nodes follows a gang of nodes, and one that does not wait is a member.
A gang of nobody has no group.

What the members request is what their pods will request once the API server has admitted them. A template gets none of
the defaults that a pod gets, so they are added here, in the order of Kubernetes:

- a limit without a request is the request (B22: GPUs are usually given as limits alone);
- what a container then still lacks comes from the LimitRanges of the namespace;
- a RuntimeClass adds its overhead.

Both kinds are read whenever the objects of a TrainJob are built. A change of them enqueues nothing (B21): what
was built while a TrainJob was suspended is built again when it is resumed, from what holds then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.plugins.util.owned_objects import workload_runs
from trainmaster.runtime.api.constants import DATASET_INITIALIZER, MODEL_INITIALIZER, POD_GROUP_KIND
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldWarning
from trainmaster.runtime.framework.interface import ApplyWhen, Desired, Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.resource_requirements import Resources, pod_requests, sum_resources, times
from trainmaster.runtime.scheduling import awaited

_INITIALIZERS = (DATASET_INITIALIZER, MODEL_INITIALIZER)

TWO_SCHEDULERS = (
    "the runtime sets both podGroupPolicy.coscheduling and podGroupPolicy.volcano, but pods have one scheduler: "
    "remove one of them, or use another runtime"
)


@dataclass(frozen=True, slots=True)
class Gang:
    """The ReplicatedJobs of a TrainJob, in the order of the template."""

    members: list[PodSet]
    """Those whose pods start together."""

    others: list[PodSet]

    @property
    def quorum(self) -> int:
        """How many pods have to start together: all of the members, in all of their Jobs, or the fewest of them."""
        return sum(map(fewest, self.members))

    def resources(self, namespace: str, listers: Listers) -> Resources:
        """What the quorum takes up."""
        return sum_resources(
            times(admitted_pod_requests(pods.pod_spec, namespace, listers), fewest(pods)) for pods in self.members
        )


def gang_of(info: Info) -> Gang:
    """Tell which pods start together."""
    before = awaited(info.template)
    chosen: list[PodSet] = []
    # What works through a list does not all exist at once, and what has no pods starts nothing.
    whole = [pods for pods in info.pod_sets if pods.size > 0 and not info.works_through(pods)]
    for pods in sorted(whole, key=lambda pods: _rank(info, pods)):
        if not any(each.name in before[pods.name] or pods.name in before[each.name] for each in chosen):
            chosen.append(pods)
    names = {pods.name for pods in chosen}
    members = [pods for pods in info.pod_sets if pods.name in names]
    return Gang(members, [pods for pods in info.pod_sets if pods.name not in names])


def watches(api_version: str) -> list[Watch]:
    """The PodGroups of a scheduler, which may be installed later, and what their resources depend on."""
    return [Watch(api_version, POD_GROUP_KIND, "podgroups", writes=True, optional=True), *_RESOURCE_WATCHES]


def fewest(pods: PodSet) -> int:
    """Return how few pods of a ReplicatedJob may start together."""
    return pods.min_size or pods.size


def pod_group(gang: Gang, job: TrainJob, listers: Listers, *, api_version: str, **spec: Any) -> Iterator[Desired]:
    """Build the PodGroup of a gang: like the JobSet, it is brought up to date until the workload runs."""
    if not gang.members:
        return
    resources = gang.resources(job.metadata.namespace, listers)
    group: JsonObject = {
        "apiVersion": api_version,
        "kind": POD_GROUP_KIND,
        "metadata": {"name": job.metadata.name},
        "spec": {
            "minMember": gang.quorum,
            "minResources": {name: str(amount) for name, amount in resources.items()},
            **spec,
        },
    }
    yield Desired(group, ApplyWhen.MISSING if workload_runs(job, listers) else ApplyWhen.ALWAYS)


def mark(pods: PodSet, field: str, key: str, value: str) -> None:
    """Set a label or an annotation of the pods of one ReplicatedJob."""
    metadata = pods.pod_template["metadata"]
    metadata[field] = {**(metadata.get(field) or {}), key: value}


def has_two_schedulers(info: Info) -> bool:
    """Whether the runtime asks for both gang schedulers (U18)."""
    policy = info.pod_group_policy
    return policy is not None and policy.coscheduling is not None and policy.volcano is not None


def refuse_two_schedulers(info: Info) -> None:
    """Refuse to build for both gang schedulers at once.

    Raises:
        Rejected: The runtime asks for both.
    """
    if has_two_schedulers(info):
        raise Rejected(TWO_SCHEDULERS)


def left_out(info: Info) -> Iterator[FieldWarning]:
    """Warn about pods that train and cannot be scheduled together with the others."""
    waits_for = awaited(info.template)
    training = [pods.name for pods in info.pod_sets if info.takes_part(pods)]
    for name in training:
        before = [other for other in training if other in waits_for[name]]
        if before:
            yield FieldWarning(
                "spec.runtimeRef",
                f"replicated job {name} waits for {', '.join(before)}, so that the gang scheduler cannot start both "
                "at once: it may find no room later; use a runtime in which it does not wait",
            )


def _rank(info: Info, pods: PodSet) -> tuple[bool, bool, int]:
    """Order ReplicatedJobs by how much they matter to the gang."""
    return not info.takes_part(pods), pods.ancestor in _INITIALIZERS, -pods.size


_LIMIT_RANGE: Final = ("v1", "LimitRange")
_RUNTIME_CLASS: Final = ("node.k8s.io/v1", "RuntimeClass")

# Optional, since a controller that may see a single namespace can do without.
_RESOURCE_WATCHES: Iterable[Watch] = (
    Watch(*_LIMIT_RANGE, "limitranges", optional=True),
    Watch(*_RUNTIME_CLASS, "runtimeclasses", namespaced=False, optional=True),
)
"""The kinds that the requests of pods depend on."""


def admitted_pod_requests(pod_spec: JsonObject, namespace: str, listers: Listers) -> Resources:
    """Compute what the scheduler will reserve for one pod of a template."""
    defaults = _default_requests(namespace, listers)
    admitted = {**pod_spec, "overhead": _overhead(pod_spec, listers)}
    for field in ("initContainers", "containers"):
        admitted[field] = [
            {**container, "resources": {"requests": {**defaults, **_own_requests(container)}}}
            for container in pod_spec.get(field) or ()
        ]
    admitted["resources"] = {"requests": _pod_level_requests(pod_spec)}
    return pod_requests(admitted)


def _own_requests(holder: Mapping[str, Any]) -> dict[str, Any]:
    resources = holder.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _pod_level_requests(pod_spec: JsonObject) -> dict[str, Any]:
    """Requests of the pod as a whole, where a limit counts only for what no container names itself."""
    requests = (pod_spec.get("resources") or {}).get("requests") or {}
    containers = [*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())]
    named = {name for container in containers for name in _own_requests(container)} - requests.keys()
    return {name: amount for name, amount in _own_requests(pod_spec).items() if name not in named}


def _default_requests(namespace: str, listers: Listers) -> dict[str, Any]:
    """What LimitRanges give a container that says nothing; of several the first one counts."""
    defaults: dict[str, Any] = {}
    for limit_range in sorted(listers.list(*_LIMIT_RANGE, namespace), key=lambda obj: str(obj["metadata"]["name"])):
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            if limit.get("type") == "Container":
                defaults = {**(limit.get("default") or {}), **(limit.get("defaultRequest") or {}), **defaults}
    return defaults


def _overhead(pod_spec: JsonObject, listers: Listers) -> JsonObject:
    name = pod_spec.get("runtimeClassName")
    if pod_spec.get("overhead") or not name:
        return pod_spec.get("overhead") or {}
    runtime_class = listers.get(*_RUNTIME_CLASS, None, name) or {}
    return (runtime_class.get("overhead") or {}).get("podFixed") or {}
