"""Observe: what the caches say about one TrainJob, taken together at one moment.

A runtime that the cache does not hold is read from the server before anybody is told that there is none: TrainJobs and
runtimes come by watches of their own, in no common order, so of two that are created in a row the second may be seen
first.

A workload with a `ttlSecondsAfterFinished` may be deleted before its end was observed. Whether its TrainJob has trained
or has lost it on the way then depends on its last state (`DeletedWorkloads`), guarantees:
- The last state is that of the deletion itself. Of a workload that vanished while nobody watched, it is what was seen
  last, and only an end counts, which is final: anything else may have been followed by one. One that cannot be read
  tells nothing. What is an end, its plugin says.
- What is remembered is bounded by the TrainJobs that have not ended: it is forgotten with the TrainJob, or when that
  ends, also by managers that only stand by.
- Nothing but convenience depends on it: after a restart nothing is remembered, and the plan is made without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import orjson

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.controller.diagnosis.diagnosis import NOTHING, Findings
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.errors import Forbidden, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.missing_rights import ASK
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.controller.reconciling.listers import StoreListers, readable
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.trainjobs.event_handlers import owner_keys
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resilience.ledger import Verdict
from trainmaster.controller.resources import RUNTIMES
from trainmaster.runtime.api.constants import FINAL_CONDITIONS, JOBSET_API_VERSION, JOBSET_KIND, snapshot_name
from trainmaster.runtime.api.decoding import ObjectUnreadable
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, why_unreadable
from trainmaster.runtime.names import dns_label, dns_subdomain
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.validation.runtime_ref import live_runtime, runtime_key, unsupported_runtime

ObjectIdentity = tuple[str, str, str]
"""API version, kind and name."""

CONFIG_MAP: GroupVersionKind = ("v1", "ConfigMap")

_UNREADABLE: Final = orjson.dumps(UNREADABLE)
"""What is found in the JSON of every object of which only the metadata could be read."""

POLICY_RULES: Final = tuple(
    PolicyRule(
        resource=resource,
        verbs=("get",),
        needed_by="trainjob_controller",
        reason="look twice for the runtime of a new TrainJob, past the cache",
    )
    for resource in RUNTIMES.values()
)


def identity_of(obj: JsonObject) -> ObjectIdentity:
    """Return what tells an object from all others of its namespace."""
    return obj["apiVersion"], obj["kind"], obj["metadata"]["name"]


@dataclass(frozen=True, slots=True)
class DeletedWorkload:
    """A workload that is gone."""

    state: JsonObject
    """What was seen of it last."""

    seen: bool
    """Whether that is the state in which it was deleted."""


class Observed(NamedTuple):
    """One TrainJob and what belongs to it, decoded from the caches for this reconcile alone."""

    job: TrainJob
    raw: JsonObject
    """The TrainJob as the server gave it."""

    snapshot: bytes | None
    """The JSON of the ConfigMap with the name of the runtime snapshot, whoever owns it; few need it decoded."""

    runtime: bytes | None
    """The JSON of the live runtime that the TrainJob names; it is of no interest any more when there is a snapshot."""

    workloads: Mapping[ObjectIdentity, JsonObject]
    """The workloads that it controls: objects of the kinds that plugins declared to be such."""

    listers: StoreListers

    deleted_workloads: Sequence[DeletedWorkload] = ()
    """Workloads that it had and that are gone, as far as their last states are known."""

    snapshot_digest: str = ""
    """Of the snapshot that was frozen for it, as far as that is known."""

    runtime_denied: str | None = None
    """Why nobody knows whether there is a runtime: it may not be read."""

    report: StatusReport | None = None
    """What plugins say of the workload."""

    report_problem: Problem | None = None
    """Why they say nothing."""

    verdict: Verdict | None = None
    """What its resilience policy has done; None if it has none."""

    findings: Findings = NOTHING
    """What was found of why it fails or waits."""

    @property
    def jobset(self) -> JsonObject | None:
        """The JobSet that it controls, if there is one."""
        return self.workloads.get((JOBSET_API_VERSION, JOBSET_KIND, self.job.metadata.name))

    @property
    def size(self) -> int:
        """How many bytes the caches have of what a plan is made from, apart from the TrainJob itself."""
        workloads = self.listers.workload_size(self.job) if self.workloads else 0
        return len(self.snapshot or b"") + len(self.runtime or b"") + workloads

    def read_snapshot(self) -> JsonObject | None:
        """Decode the snapshot, if there is one; raises `ObjectUnreadable` if only its metadata could be read."""
        return None if self.snapshot is None else readable(orjson.loads(self.snapshot))

    def existing(self, api_version: str, kind: str, name: str) -> JsonObject | None:
        """Return an object in the namespace of the TrainJob, not to be changed."""
        if (own := self.workloads.get((api_version, kind, name))) is not None:
            return own
        return self.listers.get(api_version, kind, self.job.metadata.namespace, name)

    def is_workload(self, identity: ObjectIdentity) -> bool:
        """Tell whether an object is of a kind of workloads."""
        return identity[:2] in self.listers.workload_kinds

    def deletion_seen(self, identity: ObjectIdentity) -> bool:
        """Tell whether the deletion of a workload was seen, so that it is known whether that had ended by then."""
        return any(each.seen for each in self.deleted_workloads if identity_of(each.state) == identity)


def observe(
    job: TrainJob, raw: JsonObject, listers: StoreListers, *, deleted_workloads: Iterable[DeletedWorkload] = ()
) -> Observed:
    """Look up everything that the decisions about a TrainJob rest on.

    Raises:
        ObjectUnreadable: Its runtime or a workload of it exists but cannot be read.
    """
    namespace, name = job.metadata.namespace, job.metadata.name
    snapshot = listers.body(*CONFIG_MAP, namespace, snapshot_name(name))
    wants_runtime = snapshot is None and unsupported_runtime(job.spec.runtime_ref) is None
    runtime = listers.body(*runtime_key(job)) if wants_runtime else None
    if runtime is not None and _UNREADABLE in runtime:
        raise ObjectUnreadable(orjson.loads(runtime))
    workloads = {identity_of(each): each for each in listers.workloads(job)}
    replaced = job.status.resilience.replaced_job_set if job.status.resilience else None
    gone = [
        each
        for each in deleted_workloads
        if identity_of(each.state) not in workloads
        and is_controlled_by(each.state, job)
        and not (replaced and each.state["metadata"]["uid"] == replaced)
    ]
    return Observed(
        job=job,
        raw=raw,
        snapshot=snapshot,
        runtime=runtime,
        workloads=workloads,
        listers=listers,
        deleted_workloads=gone,
        snapshot_digest=job.status.runtime_snapshot_digest,
    )


class RuntimeDenied(Exception):
    """There may be the runtime that a TrainJob names, but the manager may not read it."""


class APIReader(Protocol):
    """Reads objects from the server, past the caches."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object; raises `NotFound`, or another error of the client."""


def lacks_runtime(job: TrainJob, listers: StoreListers) -> bool:
    """Tell whether a TrainJob names a runtime that the listers do not hold, and that there may be all the same."""
    reference = job.spec.runtime_ref
    if unsupported_runtime(reference) is not None or live_runtime(job, listers) is not None:
        return False
    # No object has any other name or namespace, and they would become a part of the path of the request.
    is_namespaced = RUNTIMES[reference.kind].namespaced
    return not dns_subdomain(reference.name) and not (is_namespaced and dns_label(job.metadata.namespace))


async def with_live_runtime(job: TrainJob, listers: StoreListers, api_reader: APIReader) -> StoreListers:
    """Return listers that hold the runtime that a TrainJob names, if there is one.

    Raises:
        RuntimeDenied: The manager may not read it.
        KubeError: The server could not be read from.
    """
    if not lacks_runtime(job, listers):
        return listers
    reference = job.spec.runtime_ref
    resource = RUNTIMES[reference.kind]
    try:
        runtime = await api_reader.get(
            resource, job.metadata.namespace if resource.namespaced else None, reference.name
        )
    except NotFound:
        return listers
    except Forbidden as error:
        instead = "" if resource.namespaced else "name a TrainingRuntime of this namespace, or "
        raise RuntimeDenied(
            f'{resource.kind} "{reference.name}" cannot be read: Trainmaster may not get {resource.name} here; '
            f"{instead}{ASK}"
        ) from error
    return listers.with_objects([runtime])


class DeletedWorkloads:
    """The last states of workloads whose TrainJobs have not ended."""

    def __init__(self, trainjobs: Store) -> None:
        self._trainjobs = trainjobs
        self._last_states: dict[str, dict[tuple[str, str], tuple[bytes, bool]]] = {}
        """By key of the TrainJob, then by kind and key of the workload: encoded, since decoded ones are large."""

    def __len__(self) -> int:
        return len(self._last_states)

    def last_states(self, key: str) -> Sequence[DeletedWorkload]:
        """Return the last states of the workloads of a TrainJob that are gone."""
        states = self._last_states.get(key)
        if states is None:
            return ()
        return [DeletedWorkload(orjson.loads(state), seen) for state, seen in states.values()]

    def on_workload_event(self, change: Delta) -> None:
        """Handle an event of a workload."""
        if not change.is_deletion:
            return
        workload = change.old
        for key in owner_keys(workload) if workload is not None else ():
            if workload is None or why_unreadable(workload) is not None:
                self._forget(key, change.key)
            elif _is_unfinished(self._trainjobs.get(key)):
                states = self._last_states.setdefault(key, {})
                states[workload["kind"], change.key] = orjson.dumps(workload), not change.final_state_unknown

    def on_trainjob_event(self, change: Delta) -> None:
        """Handle an event of a TrainJob."""
        if change.key in self._last_states and not _is_unfinished(change.new):
            del self._last_states[change.key]

    def _forget(self, key: str, workload: str) -> None:
        states = self._last_states.get(key, {})
        for kind, name in list(states):
            if name == workload:
                del states[kind, name]
        if not states:
            self._last_states.pop(key, None)


def _is_unfinished(trainjob: JsonObject | None) -> bool:
    if trainjob is None:
        return False
    conditions = stored_status(trainjob)["conditions"]
    return not any(is_true(conditions, final) for final in FINAL_CONDITIONS)
