"""The status server: who may report, by the review of tokens, and how it is served."""

import asyncio
import base64
import logging
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.authorities import Authority as Issuer
from support.commands import eventually
from support.devcluster.faults import Delay
from support.oddrequests import answer_to, odd_request
from support.resolutions import FRAMEWORK
from support.stack import Stack
from support.statusserver import NAMESPACE, OWNERS, REPORT, MovableClock, StatusClient, Trainers, reviews
from support.virtualtime import VirtualClock
from support.web import get, listening

from trainmaster.controller.configuration import CertManagement, Configuration, Plugins, Webhook
from trainmaster.controller.configuration import StatusServer as Settings
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.server import server as https_server
from trainmaster.controller.server.authentication import REFUSALS_BURST
from trainmaster.controller.server.healthz import Healthz
from trainmaster.controller.statusserver import authorizer
from trainmaster.controller.statusserver.authorizer import (
    CACHED_FOR,
    JOBS,
    REFUSED_FOR,
    OwnerKinds,
    PodIdentity,
    PodOwners,
    TokenReviewer,
    policy_rules,
)
from trainmaster.controller.statusserver.ca_bundle import CABundle
from trainmaster.controller.statusserver.handler import REPORTS_BURST
from trainmaster.controller.statusserver.server import StatusServer
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.api.constants import status_path
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

NEVER = 3600.0


class HurriedClock(MovableClock):
    """Waits take a moment only, or do not end."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds if seconds == NEVER else min(seconds, 0.02))


def configuration(directory: Path, **more: Any) -> Configuration:
    return Configuration(
        webhook=Webhook(cert_dir=str(directory)), status_server=Settings(port=free_port(), qps=0), **more
    )


class Running:
    """A status server that runs."""

    def __init__(self, server: StatusServer, port: int) -> None:
        self.server = server
        self.port = port
        self.enqueued = 0

    def enqueue(self) -> None:
        self.enqueued += 1

    async def post(self, issuer: Issuer, token: str) -> int:
        trust = ssl.create_default_context(cadata=issuer.pem.decode())
        url = f"https://127.0.0.1:{self.port}{status_path(NAMESPACE, 'train')}"
        headers = {"Authorization": f"Bearer {token}"}
        connector = aiohttp.TCPConnector(ssl=trust)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, json=REPORT, headers=headers) as answer,
        ):
            return answer.status


@asynccontextmanager
async def serving(
    stack: Stack, trainers: Trainers, directory: Path, *, clock: Clock | None = None
) -> AsyncIterator[Running]:
    settings = configuration(directory)
    running = Running(StatusServer(settings, clock=clock or HurriedClock()), settings.status_server.port)

    async def synced() -> None:
        pass

    task = asyncio.create_task(
        running.server.run(
            stack.access, trainers.cache, OWNERS, user_agent="tests", wait_for_sync=synced, enqueue_all=running.enqueue
        )
    )
    try:
        yield running
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_served_from_the_first_certificate_on(stack: Stack, trainers: Trainers, tmp_path: Path) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    async with serving(stack, trainers, tmp_path) as running:
        readiness, liveness = running.server.http.readiness, running.server.http.liveness
        await eventually(lambda: "for want of a certificate" in (readiness() or ""))
        assert liveness() is None, "another process would have no certificate either"
        issuer = Issuer()
        issuer.mount(tmp_path)
        await eventually(lambda: readiness() is None)
        assert await running.post(issuer, token) == 200
    assert readiness() == "the status server is not served any more"


@pytest.mark.defect("S6")
async def test_a_new_authority_and_its_certificate_are_taken_up(
    stack: Stack, trainers: Trainers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together: a pod that is told of the authority may report at once, whenever the server looks at its files."""
    monkeypatch.setattr(https_server, "REFRESH_INTERVAL", NEVER)
    token = await trainers.token("train", pod=await trainers.create("train"))
    old, new = Issuer("old"), Issuer("new")
    old.mount(tmp_path)
    async with serving(stack, trainers, tmp_path) as running:
        authority = running.server.plugin_options()["trainjobstatus"]["authority"]
        assert authority() == old.pem.decode()
        await eventually(lambda: running.server.http.readiness() is None)
        assert await running.post(old, token) == 200
        assert running.enqueued == 0
        new.mount(tmp_path)
        await eventually(lambda: running.enqueued == 1)
        assert authority() == new.pem.decode()
        assert await running.post(new, token) == 200


def test_the_plugin_is_told_the_service_unless_the_configuration_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kubeflow")
    settings = configuration(tmp_path)
    port = settings.status_server.port
    others = settings.model_copy(update={"plugins": Plugins(options={"other": {"a": 1}})})
    options = StatusServer(others).plugin_options()
    assert options["other"] == {"a": 1}
    assert options["trainjobstatus"]["server"] == f"https://kubeflow-trainer-controller-manager.kubeflow.svc:{port}"
    called = settings.model_copy(update={"cert_management": CertManagement(webhook_service_name="chosen")})
    assert StatusServer(called).plugin_options()["trainjobstatus"]["server"] == f"https://chosen.kubeflow.svc:{port}"
    given = Plugins(options={"trainjobstatus": {"server": "https://elsewhere"}})
    elsewhere = StatusServer(settings.model_copy(update={"plugins": given}))
    assert elsewhere.plugin_options()["trainjobstatus"]["server"] == "https://elsewhere"


async def test_the_probes_have_the_names_of_the_original(tmp_path: Path) -> None:
    healthz = Healthz()
    StatusServer(configuration(tmp_path)).add_checks(healthz)
    async with listening(healthz.application()) as port:
        assert (await get(port, "healthz/status-server-healthz"))[:2] == (200, "ok")
        status, text, _ = await get(port, "readyz/status-server-readyz")
    assert (status, text) == (500, "internal server error: the status server is not served yet\n")


ROUNDS = 600


async def test_nothing_that_is_sent_is_an_error_of_ours(
    http: StatusClient, trainers: Trainers, caplog: pytest.LogCaptureFixture
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    random_ = random.Random(0)
    codes: set[int | None] = set()
    with capture_logs() as logs, caplog.at_level(logging.WARNING):
        for _ in range(ROUNDS):
            sent = odd_request(random_, token)
            code = await answer_to(http.port, sent)
            codes.add(code)
            assert code is None or code < 500, sent
            http.clock.pushed += 1
    assert {200, 403, 404, 422} <= codes
    assert not [log for log in logs if log["log_level"] in ("error", "critical") or "exc_info" in log]
    assert [record.getMessage() for record in caplog.records] == []
    http.clock.pushed += 60
    assert (await http.post("train", token)).code == 200


def test_only_certificates_leave_the_file(tmp_path: Path) -> None:
    authority = Authority()
    _, key = authority.issue(tmp_path)
    (tmp_path / "ca.crt").write_bytes(key.read_bytes() + b"a comment\n" + authority.pem + Authority("next").pem)
    bundle = CABundle(tmp_path)
    assert bundle.refresh()
    text = bundle.current()
    assert text is not None
    assert text.count("BEGIN CERTIFICATE") == 2
    assert "KEY" not in text
    assert "comment" not in text


@pytest.mark.parametrize(
    "content", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_unusable_bundle_is_logged_once_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    bundle = CABundle(tmp_path)
    assert bundle.refresh()
    assert not bundle.refresh()
    (tmp_path / "ca.crt").write_bytes(content)
    with capture_logs() as logs:
        assert not bundle.refresh()
        assert not bundle.refresh()
    assert [log["event"] for log in logs] == ["the new authority for trainers cannot be used; the old one stays"]
    assert bundle.current() == authority.pem.decode()
    (tmp_path / "ca.crt").unlink()
    assert not bundle.refresh()
    assert bundle.current() == authority.pem.decode()


def forged(token: str, count: int) -> list[str]:
    """Tokens that say the same as a good one, with wrong signatures."""
    head, claims, signature = token.split(".")
    return [f"{head}.{claims}.{number:03}{signature[3:]}" for number in range(count)]


async def test_who_is_refused_too_often_is_not_reviewed_for_a_while(http: StatusClient, trainers: Trainers) -> None:
    """Who can make up tokens must not use up the requests of those who report, also when their review is over."""
    good = await trainers.token("train", pod=await trainers.create("train"))
    assert (await http.post("train", good)).code == 200
    http.clock.pushed += CACHED_FOR + 1
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


async def test_a_token_that_comes_often_is_reviewed_once(stack: Stack, http: StatusClient, trainers: Trainers) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    assert stack.cluster is not None
    seen = stack.cluster.faults.add(Delay(0), verb="create", resource="tokenreviews")
    read = stack.cluster.faults.add(Delay(0), verb="get", resource="jobsets")
    codes = [each.code for each in await asyncio.gather(*(http.post("train", token, {}) for _ in range(REPORTS_BURST)))]
    assert codes == [200] * REPORTS_BURST
    assert (seen.count, read.count) == (1, 1)


async def test_junk_costs_nothing_and_nobody_else_of_its_address(http: StatusClient, trainers: Trainers) -> None:
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


@pytest.mark.parametrize(("accept", "seconds"), [(True, CACHED_FOR), (False, REFUSED_FOR)])
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
    monkeypatch.setattr(authorizer, "CACHE_SIZE", 2)
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
