"""The authorizer: may the bearer of this token report for this TrainJob?

Guarantees:
- trainer S2: only a pod of the TrainJob may, and only while the TrainJob is not finished. A token of another pod of the
  namespace is refused even if it was made for this TrainJob.
- trainer S2: which TrainJob a pod belongs to follows the controllers of the pod, pod -> Job -> JobSet -> TrainJob for
  instance, each by UID, through no kinds but those of workloads, and what their plugins say stands below them. That the
  label of a JobSet's pods says the same is demanded, and not enough. Only metadata is read. Objects of one UID never
  change their controller here, so what was read serves all pods of a TrainJob for a short time.
- A refusal does not say why: it is the same for a TrainJob that does not exist, a wrong token, and none. Only who has
  proven to belong to a TrainJob gets to know that it has finished.
- What costs the API server nothing is checked first. Who has proven nothing yet is throttled before anything is asked
  (`throttle`); a token that was accepted is not, until it is refused.
- No token is in a log, a metric or an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cachetools import TTLCache

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS, watched_resource
from trainmaster.controller.server import authentication
from trainmaster.controller.server.authentication import bearer_token
from trainmaster.controller.server.singleflight import SingleFlight
from trainmaster.controller.server.throttle import Denied, ReviewThrottle
from trainmaster.controller.statusserver.token_review import PodIdentity, TokenKey, TokenReviewer, token_key
from trainmaster.runtime.api.constants import COMPLETE, FAILED, GROUP, TRAINJOB_KIND, status_audience
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

FINAL: Final = frozenset({COMPLETE, FAILED})

ACCEPTED_SIZE: Final = 16_384
ACCEPTED_TTL: Final = 3600.0
"""How many tokens that were accepted are remembered, and for how many seconds; Kubernetes renews them hourly."""


class Finished(Exception):
    """The bearer belongs to the TrainJob, but that has finished."""


@dataclass(frozen=True, slots=True)
class Target:
    """The TrainJob that a report is about."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    """The last one that is known here; the server may have a later one."""


class Authorizer:
    """Decides who may report.

    Args:
        client: Reviews tokens and reads metadata.
        trainjobs: The cache of TrainJobs.
        owners: Whom pods may belong to.
        clock: The time.
    """

    def __init__(self, client: KubeClient, trainjobs: Store, owners: OwnerKinds, *, clock: Clock) -> None:
        self._trainjobs = trainjobs
        self._reviewer = TokenReviewer(client, clock=clock)
        self._owners = PodOwners(client, owners, clock=clock)
        self._throttle = ReviewThrottle(clock=clock)
        self._accepted: TTLCache[TokenKey, None] = TTLCache(ACCEPTED_SIZE, ttl=ACCEPTED_TTL, timer=clock.monotonic)

    async def authorize(self, authorization: str | None, *, namespace: str, name: str, peer: str) -> Target:
        """Return the TrainJob that the bearer may report for.

        Raises:
            Denied: It may not.
            Finished: It may not any more.
            TooMany: The peer was refused too often, or too much is under way.
            KubeError: The API server could not be asked.
        """
        token = bearer_token(authorization)
        trainjob = self._trainjobs.get(f"{namespace}/{name}")
        if not token or trainjob is None:
            raise Denied
        audience, uid = status_audience(namespace, name), trainjob["metadata"]["uid"]
        if not self._reviewer.may_be_good(token, audience=audience):
            raise Denied
        key = token_key(token, audience)
        if key in self._accepted:
            await self._check(token, audience, namespace=namespace, name=name, uid=uid)
        else:
            async with self._throttle.place(peer):
                await self._check(token, audience, namespace=namespace, name=name, uid=uid)
            self._accepted[key] = None
        conditions = (trainjob.get("status") or {}).get("conditions") or ()
        if any(condition.get("type") in FINAL and condition.get("status") == "True" for condition in conditions):
            raise Finished
        return Target(namespace, name, uid, trainjob["metadata"]["resourceVersion"])

    async def _check(self, token: str, audience: str, *, namespace: str, name: str, uid: str) -> None:
        """Raise `Denied` unless a token is that of a pod of the TrainJob."""
        pod = await self._reviewer.review(token, audience=audience)
        if pod is None or pod.namespace != namespace or not await self._owners.is_owned(pod, trainjob=name, uid=uid):
            self._accepted.pop(token_key(token, audience), None)
            raise Denied


JOBS: Final = Resource("batch", "v1", "Job", "jobs", namespaced=True)

_PART: Final = "status server"

_BELOW: Final[Mapping[str, Sequence[Resource]]] = MappingProxyType({JOBSETS.name: (JOBS,)})
"""What stands between pods and a workload whose plugin has no other use for it, by name of the workload."""


@dataclass(frozen=True, slots=True)
class OwnerKinds:
    """The kinds by which pods belong to a TrainJob."""

    workloads: Sequence[Resource]
    between: Sequence[Resource]
    """What may stand between a pod and a workload."""

    @classmethod
    def of(cls, watches: Iterable[Watch]) -> OwnerKinds:
        """Return them from what plugins declared: beside a workload, what its plugin watches and does not build."""
        watches = list(watches)
        plugins = {watch.declared_by for watch in watches if watch.workload}
        workloads = dict.fromkeys(watched_resource(watch) for watch in watches if watch.workload)
        read = (watch for watch in watches if watch.declared_by in plugins and watch.namespaced and not watch.writes)
        below = [each for workload in workloads for each in _BELOW.get(workload.name, ())]
        between = dict.fromkeys([*below, *map(watched_resource, read)])
        return cls(list(workloads), [each for each in between if each not in workloads and each != PODS])


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes to tell which pod reports, and to which TrainJob it belongs."""
    yield from authentication.policy_rules(_PART, "find out which pod reports")
    owners = OwnerKinds.of(watches)
    for resource in dict.fromkeys((PODS, *owners.between, *owners.workloads)):
        yield PolicyRule(
            resource=resource,
            verbs=("get",),
            needed_by=_PART,
            reason="find out which TrainJob the pod that reports belongs to, by the metadata of its controllers alone",
        )


CACHED_FOR: Final = 60.0
"""Seconds."""

CACHE_SIZE: Final = 4096

_JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"


@dataclass(frozen=True, slots=True)
class _Controller:
    group: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Dependent:
    """What counts of an object that another one controls."""

    jobset: str | None
    controller: _Controller | None


class PodOwners:
    """Follows controllers.

    Args:
        client: Where metadata is read.
        owners: Whom pods may belong to.
        clock: The time.
    """

    def __init__(self, client: KubeClient, owners: OwnerKinds, *, clock: Clock) -> None:
        self._client = client
        self._workloads = frozenset(owners.workloads)
        self._resources = {(each.group, each.kind): each for each in (*owners.between, *owners.workloads)}
        self._cache: TTLCache[tuple[Resource, str, str, str], _Dependent] = TTLCache(
            CACHE_SIZE, ttl=CACHED_FOR, timer=clock.monotonic
        )
        self._reading: SingleFlight[tuple[Resource, str, str, str]] = SingleFlight()

    async def is_owned(self, pod: PodIdentity, *, trainjob: str, uid: str) -> bool:
        """Tell whether the owner of a pod is the TrainJob of a name in its namespace, and of a UID.

        Raises:
            KubeError: The API server could not be asked.
        """
        resource = PODS
        dependent = await self._read(PODS, pod.namespace, pod.name, pod.uid)
        jobset = dependent.jobset if dependent is not None else None
        for _ in range(len(self._resources) + 1):
            controller = dependent.controller if dependent is not None else None
            if controller is None:
                return False
            if (controller.group, controller.kind) == (GROUP, TRAINJOB_KIND):
                return resource in self._workloads and (controller.name, controller.uid) == (trainjob, uid)
            found = self._resources.get((controller.group, controller.kind))
            if found is None or (found == JOBSETS and not jobset == controller.name == trainjob):
                return False
            resource = found
            dependent = await self._read(resource, pod.namespace, controller.name, controller.uid)
        return False  # each kind stands in it once at most

    async def _read(self, resource: Resource, namespace: str, name: str, uid: str) -> _Dependent | None:
        """Read the object of a name and a UID; None if there is no such object."""
        key = (resource, namespace, name, uid)
        async with self._reading.turn(key):
            dependent = self._cache.get(key)
            if dependent is None:
                try:
                    obj = await self._client.get(resource, namespace, name, metadata_only=True)
                except NotFound:
                    return None
                metadata = obj["metadata"]
                if metadata.get("uid") != uid:
                    return None
                dependent = _Dependent((metadata.get("labels") or {}).get(_JOBSET_LABEL), _controller_of(metadata))
                self._cache[key] = dependent
        return dependent


def _controller_of(metadata: JsonObject) -> _Controller | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            group = reference["apiVersion"].rpartition("/")[0]
            return _Controller(group, reference["kind"], reference["name"], reference["uid"])
    return None
