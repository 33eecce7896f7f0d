"""Who may report, by the review of tokens."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import orjson
import pytest
from support.resolutions import FRAMEWORK
from support.stack import Stack
from support.statusserver import NAMESPACE, StatusClient, Trainers, reviews
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.server.throttle import REFUSALS_BURST
from trainmaster.controller.statusserver import token_review
from trainmaster.controller.statusserver.authorizer import JOBS, OwnerKinds, PodOwners, policy_rules
from trainmaster.controller.statusserver.handler import REPORTS_BURST
from trainmaster.controller.statusserver.token_review import ACCEPTED_FOR, REFUSED_FOR, PodIdentity, TokenReviewer
from trainmaster.devcluster.testing.faults import Delay
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch


def forged(token: str, count: int) -> list[str]:
    """Tokens that say the same as a good one, with wrong signatures."""
    head, claims, signature = token.split(".")
    return [f"{head}.{claims}.{number:03}{signature[3:]}" for number in range(count)]


async def test_who_is_refused_too_often_is_not_reviewed_again_for_a_while(
    http: StatusClient, trainers: Trainers
) -> None:
    """Who can make up tokens must not use up the requests of those who report, also when their review is over."""
    good = await trainers.token("train", pod=await trainers.create("train"))
    assert (await http.post("train", good)).code == 200
    http.clock.pushed += ACCEPTED_FOR + 1
    before = reviews()
    codes = [(await http.post("train", token)).code for token in forged(good, REFUSALS_BURST + 5)]
    assert codes == [403] * REFUSALS_BURST + [429] * 5
    assert reviews() == before + REFUSALS_BURST
    assert (await http.post("train", good)).code == 200, "who is known goes on"


async def test_forged_tokens_that_come_at_once_are_reviewed_as_seldom_as_one_after_the_other(
    http: StatusClient, trainers: Trainers
) -> None:
    good = await trainers.token("train", pod=await trainers.create("train"))
    assert (await http.post("train", good)).code == 200
    before, tokens = reviews(), forged(good, REFUSALS_BURST * 3)
    answers = await asyncio.gather(*(http.post("train", token) for token in tokens))
    assert sorted(answer.code for answer in answers) == [403] * REFUSALS_BURST + [429] * (REFUSALS_BURST * 2)
    assert reviews() == before + REFUSALS_BURST
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers if answer.code == 429)
    assert (await http.post("train", good)).code == 200, "who is known goes on"


async def test_many_good_tokens_of_one_address_get_through_at_once(http: StatusClient, trainers: Trainers) -> None:
    """Pods behind one node's address report for the first time in the same moment."""
    first = await trainers.create("train")
    owner = (await trainers.client.get(JOBS, NAMESPACE, "train-node-0")) | {"apiVersion": "batch/v1", "kind": "Job"}
    labels = first["metadata"]["labels"]
    pods = [await trainers.pod(f"more-{index}", labels=labels, owner=owner) for index in range(REFUSALS_BURST * 3)]
    tokens = [await trainers.token("train", pod=pod) for pod in pods]
    before = reviews()
    answers = await asyncio.gather(*(http.post("train", token, {}) for token in tokens))
    limit_of_a_trainjob = [200] * REPORTS_BURST + [429] * (len(tokens) - REPORTS_BURST)
    assert sorted(answer.code for answer in answers) == limit_of_a_trainjob
    assert reviews() == before + len(tokens), "each was reviewed, though only so many may be under way"


async def test_one_token_is_reviewed_once_however_often_it_comes_at_once(
    stack: Stack, http: StatusClient, trainers: Trainers
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    assert stack.cluster is not None
    seen = stack.cluster.faults.add(Delay(0), verb="create", resource="tokenreviews")
    read = stack.cluster.faults.add(Delay(0), verb="get", resource="jobsets")
    codes = [each.code for each in await asyncio.gather(*(http.post("train", token, {}) for _ in range(REPORTS_BURST)))]
    assert codes == [200] * REPORTS_BURST
    assert (seen.count, read.count) == (1, 1)


async def test_junk_costs_nothing_and_takes_nothing_from_others_of_its_address(
    http: StatusClient, trainers: Trainers
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    before = reviews()
    codes = [(await http.post("train", f"a.{'x' * n}.c")).code for n in range(REFUSALS_BURST * 3)]
    assert (set(codes), reviews()) == ({403}, before)
    assert (await http.post("train", token)).code == 200


WORKERS = Watch("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", writes=True, workload=True)
SETS = Watch("apps/v1", "StatefulSet", "statefulsets", metadata_only=True)
JOB = Watch("batch/v1", "Job", "jobs", writes=True, workload=True)
SERVICE = Watch("v1", "Service", "services", writes=True)


class Owned:
    """A server that knows the metadata of some objects, each of which the next one controls."""

    def __init__(self, *kinds: tuple[str, str], labels: JsonObject | None = None, trainjob: str = "train") -> None:
        chain = [("v1", "Pod"), *kinds, ("trainer.kubeflow.org/v1alpha1", "TrainJob")]
        self.asked: list[str] = []
        self._objects: dict[str, JsonObject] = {}
        for (_, kind), (api_version, owner) in pairwise(chain):
            name = trainjob if owner == "TrainJob" else f"{owner}-0".lower()
            if owner == "JobSet":
                name = trainjob
            reference = {"apiVersion": api_version, "kind": owner, "name": name, "uid": f"uid-of-{owner}"}
            metadata = {"uid": f"uid-of-{kind}", "labels": labels or {}}
            self._objects[kind] = {"metadata": {**metadata, "ownerReferences": [{**reference, "controller": True}]}}

    async def get(self, resource: Resource, namespace: str, name: str, *, metadata_only: bool) -> JsonObject:
        assert metadata_only
        self.asked.append(resource.kind)
        if resource.kind not in self._objects:
            raise NotFound(status=404)
        return self._objects[resource.kind]


JOBSET_OF = [("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet")]


@pytest.mark.defect("S2")
@pytest.mark.parametrize(
    ("watches", "kinds", "expected"),
    [
        ([JOB, SERVICE], [("batch/v1", "Job")], True),
        ([WORKERS, SETS], [("apps/v1", "StatefulSet"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")], True),
        ([WORKERS], [("apps/v1", "StatefulSet"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")], False),
        ([WORKERS, SETS], [("apps/v1", "StatefulSet")], False),
        ([WORKERS, SETS], [("batch/v1", "Job")], False),
        ([WORKERS, SETS], [], False),
        ([JOB], JOBSET_OF, False),
        ([], [("batch/v1", "Job")], False),
    ],
    ids=["Job", "LeaderWorkerSet", "undeclared", "no workload", "other", "none", "without JobSet", "nothing declared"],
)
async def test_a_pod_belongs_to_a_trainjob_through_what_plugins_declared(
    watches: list[Watch], kinds: list[tuple[str, str]], expected: bool
) -> None:
    """What is no workload, nor below one by the word of its plugin, belongs to nobody: anyone may have made it."""
    declared = [replace(watch, declared_by="acme") for watch in watches]
    server = Owned(*kinds)
    owners = PodOwners(cast("KubeClient", server), OwnerKinds.of(declared), clock=VirtualClock())
    pod = PodIdentity("training", "pod-0", "uid-of-Pod")
    assert await owners.is_owned(pod, trainjob="train", uid="uid-of-TrainJob") is expected
    assert not await owners.is_owned(pod, trainjob="train", uid="another")
    assert not await owners.is_owned(pod, trainjob="other", uid="uid-of-TrainJob")
    assert {rule.resource.kind for rule in policy_rules(declared)} >= set(server.asked), "with the rights declared"


@pytest.mark.defect("S2")
async def test_pods_of_a_jobset_say_so_by_their_label_as_well() -> None:
    for label, expected in (("train", True), ("other", False), (None, False)):
        server = Owned(*JOBSET_OF, labels={"jobset.sigs.k8s.io/jobset-name": label} if label else {})
        owners = PodOwners(cast("KubeClient", server), OwnerKinds.of(FRAMEWORK.watches()), clock=VirtualClock())
        pod = PodIdentity("training", "pod-0", "uid-of-Pod")
        assert await owners.is_owned(pod, trainjob="train", uid="uid-of-TrainJob") is expected


AUDIENCE = "the status server"


class ApiServer:
    """Authenticates every token, or none; counts."""

    def __init__(self, *, accept: bool = True) -> None:
        self.reviews = 0
        self.hold = asyncio.Event()
        self.hold.set()
        self._accept = accept

    async def create(self, _resource: Any, review: JsonObject) -> JsonObject:
        self.reviews += 1
        await self.hold.wait()
        bound = {"authentication.kubernetes.io/pod-name": ["p"], "authentication.kubernetes.io/pod-uid": ["u"]}
        user = {"username": "system:serviceaccount:team:default", "extra": bound}
        return {"status": {"authenticated": self._accept, "audiences": review["spec"]["audiences"], "user": user}}


class Reviewed:
    """A reviewer with a clock of its own."""

    def __init__(self, *, accept: bool = True) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(accept=accept)
        self._reviewer = TokenReviewer(cast("KubeClient", self.server), clock=self.clock)

    def token(self, name: str, *, lives: float = 3600) -> str:
        claims = {"aud": [AUDIENCE], "exp": self.clock.now().timestamp() + lives, "name": name}
        return f"a.{base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip('=')}.c"

    async def review(self, token: str) -> PodIdentity | None:
        return await self._reviewer.review(token, audience=AUDIENCE)

    async def is_cached(self, token: str) -> bool:
        before = self.server.reviews
        await self.review(token)
        return self.server.reviews == before

    def may_be_good(self, token: str) -> bool:
        return self._reviewer.may_be_good(token, audience=AUDIENCE)


@pytest.mark.parametrize(("accept", "seconds"), [(True, ACCEPTED_FOR), (False, REFUSED_FOR)])
async def test_a_review_is_good_for_a_while(accept: bool, seconds: float) -> None:
    reviewed = Reviewed(accept=accept)
    token = reviewed.token("a")
    pods = {await reviewed.review(token) for _ in range(3)}
    assert pods == {PodIdentity("team", "p", "u") if accept else None}
    reviewed.clock.step(seconds - 1)
    assert reviewed.may_be_good(token) == accept
    assert await reviewed.is_cached(token)
    reviewed.clock.step(1)
    assert reviewed.may_be_good(token)
    assert not await reviewed.is_cached(token)


async def test_no_review_is_good_for_longer_than_its_token() -> None:
    reviewed = Reviewed()
    token = reviewed.token("a", lives=5)
    assert await reviewed.review(token) is not None
    reviewed.clock.step(5)
    assert not reviewed.may_be_good(token)
    assert await reviewed.review(token) is None


async def test_only_so_many_reviews_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_review, "CACHE_SIZE", 2)
    reviewed = Reviewed()
    a, b, c = (reviewed.token(name) for name in "abc")
    for token in (a, b, a, c):
        await reviewed.review(token)
    assert [await reviewed.is_cached(token) for token in (a, c, b)] == [True, True, False], "b was not needed longest"


async def test_who_gives_up_a_review_leaves_it_to_the_next_who_waits_for_it() -> None:
    reviewed = Reviewed()
    token = reviewed.token("a")
    reviewed.server.hold = asyncio.Event()
    first, second = (asyncio.create_task(reviewed.review(token)) for _ in range(2))
    while reviewed.server.reviews == 0:
        await asyncio.sleep(0)
    first.cancel()
    reviewed.server.hold.set()
    assert await second == PodIdentity("team", "p", "u")
    assert reviewed.server.reviews == 2
