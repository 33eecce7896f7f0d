"""What the caches do not hold: the API server is asked before anybody is refused."""

import asyncio
from contextlib import closing

import orjson
import pytest
from structlog.testing import capture_logs
from support.objects import runtime_object, trainjob_object
from support.resolutions import FRAMEWORK, KnownServer
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.errors import Forbidden, NotConnected
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import RUNTIMES
from trainmaster.controller.webhooks import AdmissionHandlers, Workers
from trainmaster.controller.webhooks.handlers import LOOKUP_TIMEOUT, MAX_LOOKUPS, VALIDATE_TRAINJOB
from trainmaster.controller.webhooks.review import ALLOWED, AdmissionRequest, AdmissionResponse
from trainmaster.controller.webhooks.workers import LARGE
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject

MISSING = "specified trainingRuntime must be created before the TrainJob is created"


async def judge(server: KnownServer, obj: JsonObject, old: JsonObject | None = None) -> AdmissionResponse:
    with closing(Workers()) as workers:
        handlers = AdmissionHandlers(FRAMEWORK, {}, server, workers=workers, clock=VirtualClock()).handlers()
        request = AdmissionRequest("u-1", "CREATE" if old is None else "UPDATE", obj, old)
        return await handlers[VALIDATE_TRAINJOB](request)


async def test_a_runtime_that_no_cache_holds_is_asked_for_before_it_is_missing() -> None:
    server = KnownServer(runtime_object())
    assert (await judge(server, trainjob_object())).allowed, "both created in a row"
    assert server.asked == [("TrainingRuntime", "team", "rt")]
    unreachable, refusing = KnownServer(runtime_object()), KnownServer(runtime_object())
    unreachable.failure, refusing.failure = NotConnected("connection refused"), Forbidden(status=403)
    for missing in (KnownServer(), unreachable):
        response = await judge(missing, trainjob_object())
        assert (response.allowed, MISSING in response.message) == (False, True)
    response = await judge(refusing, trainjob_object())
    assert (response.allowed, response.message) == (
        False,
        (
            'TrainingRuntime "rt" cannot be read: Trainmaster may not get trainingruntimes.trainer.kubeflow.org here; '
            "tell your administrator, for whom the log of the manager says what to grant"
        ),
    )
    other = await judge(KnownServer(runtime_object()), trainjob_object(runtimeRef={"name": "rt"}))
    assert other.message.endswith("; there is a TrainingRuntime of that name: write kind: TrainingRuntime")
    stored = KnownServer()
    await judge(stored, trainjob_object(suspend=True), trainjob_object())
    assert stored.asked == [], "what is stored is not held up"


async def test_who_serves_named_namespaces_has_no_say_about_others() -> None:
    """Another installation may be in charge there; objects without a namespace are nobody's in particular."""
    with closing(Workers()) as workers, capture_logs() as logs:
        handlers = AdmissionHandlers(
            FRAMEWORK, {}, KnownServer(), namespaces=frozenset({"team"}), workers=workers, clock=VirtualClock()
        ).handlers()

        async def answers(namespace: str) -> dict[str, AdmissionResponse]:
            request = AdmissionRequest("u", "CREATE", trainjob_object(numNodes="odd"), None, namespace=namespace)
            return {path: await handler(request) for path, handler in handlers.items()}

        assert not (await answers("team"))[VALIDATE_TRAINJOB].allowed
        for namespace in ("", "other", "another"):
            assert set(map(repr, (await answers(namespace)).values())) == {repr(ALLOWED)}
    (told,) = logs
    assert told["namespace"] == "other"
    assert "namespaceSelector" in told["hint"]


async def test_nothing_is_asked_for_what_cannot_be_a_runtime() -> None:
    server = KnownServer(runtime_object())
    for name in ("", "..", "../../../../api/v1/namespaces/kube-system/secrets/a", "rt?x=y", "%2e"):
        response = await judge(server, trainjob_object(runtimeRef={"name": name, "kind": "TrainingRuntime"}))
        assert not response.allowed
    for namespace in ("", "..", "../../nodes", "team?x=y", "a.b"):
        obj = trainjob_object()
        obj["metadata"]["namespace"] = namespace
        assert (await judge(server, obj)).code == 403
    for reference in ({"kind": ""}, {"kind": "Pod"}, {"apiGroup": "acme.io"}):
        obj = trainjob_object(runtimeRef={"name": "rt", "kind": "TrainingRuntime", **reference})
        assert (await judge(server, obj)).message.startswith("unsupported runtime: ")
    oddities: list[JsonObject] = [
        {"metadata": None},
        {"spec": None},
        {"spec": {"runtimeRef": {"kind": [], "name": {}}}},
    ]
    for odd in oddities:
        assert (await judge(server, {**trainjob_object(), **odd})).code == 403
    assert server.asked == []


async def test_a_runtime_that_cannot_be_read_is_an_answer_and_holds_up_nothing_that_is_stored() -> None:
    unreadable = {key: value for key, value in runtime_object().items() if key != "spec"}
    unreadable["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    store = Store()
    store.put({**unreadable, UNREADABLE: "it is nested too deeply"})
    resource = RUNTIMES["TrainingRuntime"]
    with closing(Workers()) as workers:
        handlers = AdmissionHandlers(
            FRAMEWORK,
            {(resource.api_version, resource.kind): (resource, store)},
            KnownServer(),
            workers=workers,
            clock=VirtualClock(),
        ).handlers()
        obj = trainjob_object()
        created = await handlers[VALIDATE_TRAINJOB](AdmissionRequest("u", "CREATE", obj, None))
        suspended = await handlers[VALIDATE_TRAINJOB](
            AdmissionRequest("u", "UPDATE", trainjob_object(suspend=True), obj)
        )
    assert not created.allowed
    assert "TrainingRuntime team/rt exists but cannot be read: it is nested too deeply" in created.message
    assert suspended.allowed


class SilentServer(KnownServer):
    """A server that answers nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.waiting = 0

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError


@pytest.mark.guarantee("H-17")
async def test_a_server_that_does_not_answer_in_time_is_no_reason_to_call_a_runtime_missing() -> None:
    clock, server = VirtualClock(), SilentServer()
    with closing(Workers()) as workers:
        handlers = AdmissionHandlers(FRAMEWORK, {}, server, workers=workers, clock=clock).handlers()
        judged = [
            asyncio.ensure_future(handlers[VALIDATE_TRAINJOB](AdmissionRequest("u", "CREATE", trainjob_object(), None)))
            for _ in range(MAX_LOOKUPS * 3)
        ]
        while server.waiting < MAX_LOOKUPS:
            await asyncio.sleep(0)
        while not all(task.done() for task in judged):
            await asyncio.sleep(0)
            clock.step(LOOKUP_TIMEOUT)
        responses = [task.result() for task in judged]
    assert {(response.code, response.retry_after) for response in responses} == {(429, 5)}
    assert server.most == MAX_LOOKUPS, "nobody else waits for the rest"


async def test_a_trainjob_that_cannot_be_read_is_not_scaled() -> None:
    server = KnownServer(runtime_object())
    answers = []
    for failure in (None, NotConnected("connection refused"), TimeoutError()):
        server.failure = failure
        response = await judge(server, {"kind": "Scale", "metadata": {"name": "a", "namespace": "../b"}}, {})
        answers.append((response.allowed, response.code))
    assert answers == [(False, 500), (False, 500), (False, 429)]
    assert set(server.asked) == {("TrainJob", "../b", "a")}


class Spinning:
    """A plugin that computes until the event loop has turned."""

    name = "spinning"

    def __init__(self) -> None:
        self.turns = 0
        self.started = False

    def validate(
        self, info: object, job: object, old: object, listers: object
    ) -> tuple[list[FieldError], list[FieldWarning]]:
        self.started, before = True, self.turns
        while self.turns < before + 100:
            pass
        return [], []


@pytest.mark.guarantee("H-16")
@pytest.mark.parametrize("large", ["TrainJob", "runtime"])
async def test_the_event_loop_turns_while_a_large_trainjob_is_judged(large: str) -> None:
    """Also while a small one is, whose runtime is large."""
    plugin, runtime, obj = Spinning(), runtime_object(), trainjob_object()
    padded = obj if large == "TrainJob" else runtime
    padded["metadata"]["annotations"] = {"padding": "x" * LARGE}
    runtime["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    store, resource = Store(), RUNTIMES["TrainingRuntime"]
    store.put(runtime)
    stores = {(resource.api_version, resource.kind): (resource, store)}
    with closing(Workers()) as workers:
        handlers = AdmissionHandlers(
            Framework([plugin]), stores, KnownServer(), workers=workers, clock=VirtualClock()
        ).handlers()
        request = AdmissionRequest("u", "CREATE", obj, None, size=len(orjson.dumps(obj)))
        judged = asyncio.ensure_future(handlers[VALIDATE_TRAINJOB](request))
        while not judged.done():
            plugin.turns += 1
            await asyncio.sleep(0)
        assert plugin.started
        assert judged.result().code != 500
