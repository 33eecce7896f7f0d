"""The authorizer: may the bearer of this token report for this TrainJob?

Guarantees:
- trainer S2: only a pod of the TrainJob may, and only while the TrainJob is not finished. A token of another pod of the
  namespace is refused even if it was made for this TrainJob, and so is one that is not bound to a pod.
- trainer S4: which pod a token belongs to the API server knows (TokenReview), and nobody else is asked: there is no
  discovery of issuers, so the manager's own credentials go to the API server only.
- Only a token that the API server has authenticated for exactly this audience counts. What a token says about itself
  is looked at before that, to spare the API server tokens that cannot be good; it never makes one good.
- trainer S2: which TrainJob a pod belongs to follows the controllers of the pod, pod -> Job -> JobSet -> TrainJob for
  instance, each by UID, through no kinds but those of workloads, and what their plugins say stands below them. That the
  label of a JobSet's pods says the same is demanded, and not enough. Only metadata is read. Objects of one UID never
  change their controller here, so what was read serves all pods of a TrainJob for a short time.
- A refusal does not say why: it is the same for a TrainJob that does not exist, a wrong token, and none. Only who has
  proven to belong to a TrainJob gets to know that it has finished.
- What costs the API server nothing is checked first. Who has proven nothing yet is throttled before anything is asked
  (`ReviewThrottle`).
- Reviews are cached for a minute at most, never beyond the end of the token, by digest. A token is reviewed once,
  however many requests bring it at the same time; no token is in a log, a metric, an error, or memory for longer.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from cachetools import TLRUCache, TTLCache

from trainmaster.controller.job_fields import JobFields, mapping
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.controller.resources import JOBSETS, TRAINJOBS, watched_resource
from trainmaster.controller.server import authentication
from trainmaster.controller.server.authentication import (
    Denied,
    ReviewThrottle,
    SingleFlight,
    bearer_token,
    review_token,
    texts_of,
    token_digest,
)
from trainmaster.metrics.statusserver import count_review
from trainmaster.runtime.api.constants import GROUP, JOBSET_LABEL, TRAINJOB_KIND, status_audience
from trainmaster.runtime.jsontext import load_json
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

JOBS: Final = Resource("batch", "v1", "Job", "jobs", namespaced=True)

_BELOW: Final[Mapping[str, Sequence[Resource]]] = MappingProxyType({JOBSETS.name: (JOBS,)})
"""What stands between pods and a workload whose plugin has no other use for it, by name of the workload."""

CACHED_FOR: Final = 60.0
REFUSED_FOR: Final = 10.0
"""Seconds for which a review, or the owner of a pod, is cached, and one that refuses."""

CACHE_SIZE: Final = 4096

TokenKey: TypeAlias = tuple[bytes, str]
"""Digest of a token, and its audience."""

_Link: TypeAlias = tuple[str | None, JsonObject | None]
"""What counts of an object: the JobSet by its label, and the reference to its controller."""

_PART: Final = "status server"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT: Final = "system:serviceaccount:"


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
        owners: Whom pods may belong to.
    """

    def __init__(self, client: KubeClient, trainjobs: Store, owners: OwnerKinds, *, clock: Clock) -> None:
        self._trainjobs = trainjobs
        self._reviewer = TokenReviewer(client, clock=clock)
        self._owners = PodOwners(client, owners, clock=clock)
        self._throttle = ReviewThrottle(clock=clock)

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
        async with self._throttle.place(peer, token_key(token, audience)):
            pod = await self._reviewer.review(token, audience=audience)
            if pod is None or pod.namespace != namespace:
                raise Denied
            if not await self._owners.is_owned(pod, trainjob=name, uid=uid):
                raise Denied
        if JobFields(trainjob).outcome is not None:
            raise Finished
        return Target(namespace, name, uid, trainjob["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a token is bound to."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Review:
    pod: PodIdentity | None
    seconds: float
    """For which it is good."""


class TokenReviewer:
    """Has tokens reviewed by the API server."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._cache: TLRUCache[TokenKey, _Review] = TLRUCache(
            CACHE_SIZE, ttu=lambda _key, review, now: now + review.seconds, timer=clock.monotonic
        )
        self._reviewing: SingleFlight[TokenKey] = SingleFlight()

    def may_be_good(self, token: str, *, audience: str) -> bool:
        """Tell whether a token is worth a review: it says that it is good, and none has just refused it."""
        if not self._lifetime(token, audience):
            return False
        cached = self._cache.get(token_key(token, audience))
        return cached is None or cached.pod is not None

    async def review(self, token: str, *, audience: str) -> PodIdentity | None:
        """Return the pod that a token of that audience is bound to; None if the token is not good.

        Raises:
            KubeError: The API server could not be asked.
        """
        left = self._lifetime(token, audience)
        if not left:
            return None
        key = token_key(token, audience)
        async with self._reviewing.turn(key):
            cached = self._cache.get(key)
            if cached is not None:
                return cached.pod
            try:
                user = await review_token(self._client, token, audience=audience)
            except KubeError:
                count_review("failed")
                raise
            pod = _pod(user, _claims(token)) if user is not None else None
            count_review("accepted" if pod else "refused")
            self._cache[key] = _Review(pod, min(CACHED_FOR, left) if pod else REFUSED_FOR)
        return pod

    def _lifetime(self, token: str, audience: str) -> float:
        """Return the seconds for which a token says that it is good for an audience; zero if it does not."""
        claims = _claims(token)
        if audience not in texts_of(claims.get("aud")):
            return 0.0
        return max(0.0, _number(claims, "exp") - self._clock.now().timestamp())


def _pod(user: JsonObject, claims: JsonObject) -> PodIdentity | None:
    """Read the pod from what the API server says about the user; from the token itself where it is too old to say."""
    username = user.get("username")
    if not isinstance(username, str) or not username.startswith(_ACCOUNT):
        return None
    namespace = username.removeprefix(_ACCOUNT).partition(":")[0]
    extra = mapping(user.get("extra"))
    names, uids = texts_of(extra.get(_POD_NAME)), texts_of(extra.get(_POD_UID))
    if not names and not uids:
        bound = mapping(mapping(claims.get("kubernetes.io")).get("pod"))
        names, uids = texts_of([bound.get("name")]), texts_of([bound.get("uid")])
    if len(names) != 1 or len(uids) != 1:
        return None
    return PodIdentity(namespace, names[0], uids[0])


def token_key(token: str, audience: str) -> TokenKey:
    """Return what a token and its audience are known by; the token cannot be told from it."""
    return token_digest(token), audience


def _claims(token: str) -> JsonObject:
    """Read what a token says about itself, without believing it; nothing if it is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return mapping(load_json(base64.b64decode(padded, altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError):
        return {}


def _number(claims: JsonObject, name: str) -> float:
    value = claims.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


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
    """Return the rights of the status server: it tells which TrainJob the pod that reports belongs to, and writes."""
    yield from authentication.policy_rules(_PART, "find out which pod reports")
    owners = OwnerKinds.of(watches)
    for resource in dict.fromkeys((PODS, *owners.between, *owners.workloads)):
        yield PolicyRule(
            resource=resource,
            verbs=("get",),
            needed_by=_PART,
            reason="find out which TrainJob the pod that reports belongs to, by the metadata of its controllers alone",
        )
    yield PolicyRule(
        resource=TRAINJOBS,
        verbs=("get",),
        needed_by=_PART,
        reason="write a report to the TrainJob that it is about, and to no successor of its name",
    )
    yield PolicyRule(
        resource=TRAINJOBS,
        subresource="status",
        verbs=("patch",),
        needed_by=_PART,
        reason="write reports of trainers",
    )


class PodOwners:
    """Follows controllers.

    Args:
        owners: Whom pods may belong to.
    """

    def __init__(self, client: KubeClient, owners: OwnerKinds, *, clock: Clock) -> None:
        self._client = client
        self._workloads = frozenset(owners.workloads)
        self._resources = {(each.group, each.kind): each for each in (*owners.between, *owners.workloads)}
        self._links: TTLCache[tuple[Resource, str, str, str], _Link] = TTLCache(
            CACHE_SIZE, ttl=CACHED_FOR, timer=clock.monotonic
        )
        self._reading: SingleFlight[tuple[Resource, str, str, str]] = SingleFlight()

    async def is_owned(self, pod: PodIdentity, *, trainjob: str, uid: str) -> bool:
        """Tell whether the owner of a pod is the TrainJob of a name in its namespace, and of a UID.

        Raises:
            KubeError: The API server could not be asked.
        """
        resource = PODS
        jobset, controller = await self._read(PODS, pod.namespace, pod.name, pod.uid)
        for _ in range(len(self._resources) + 1):  # each kind stands in it once at most
            if controller is None:
                return False
            group, kind, name = controller["apiVersion"].rpartition("/")[0], controller["kind"], controller["name"]
            if (group, kind) == (GROUP, TRAINJOB_KIND):
                return resource in self._workloads and (name, controller["uid"]) == (trainjob, uid)
            found = self._resources.get((group, kind))
            if found is None or (found == JOBSETS and not jobset == name == trainjob):
                return False
            resource = found
            _, controller = await self._read(resource, pod.namespace, name, controller["uid"])
        return False

    async def _read(self, resource: Resource, namespace: str, name: str, uid: str) -> _Link:
        """Read the object of a name and a UID; it leads nowhere if there is no such object."""
        key = (resource, namespace, name, uid)
        async with self._reading.turn(key):
            link = self._links.get(key)
            if link is None:
                try:
                    obj = await self._client.get(resource, namespace, name, metadata_only=True)
                except NotFound:
                    return None, None
                metadata = obj["metadata"]
                if metadata.get("uid") != uid:
                    return None, None
                references = metadata.get("ownerReferences") or ()
                controller = next((each for each in references if each.get("controller")), None)
                link = self._links[key] = (metadata.get("labels") or {}).get(JOBSET_LABEL), controller
        return link
