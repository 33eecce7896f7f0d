"""Requests on the wire, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import orjson
import pytest
from aiohttp import web
from support.authorities import Authority
from support.series import value_of

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import (
    Conflict,
    KubeError,
    MalformedResponse,
    NotConnected,
    NotFound,
    NotLeading,
    RequestTimeout,
    ResponseTooLarge,
    ServerError,
    StreamBroken,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS
from trainmaster.controller.kube.rest.retry import TRIES, WAITS_AT_MOST
from trainmaster.controller.kube.rest.transport import IDLE_AT_MOST
from trainmaster.controller.reconciling.controller import RECONCILE_TIMEOUT
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}


async def test_a1_t6_t7_apply_sends_the_intent_with_its_manager(server: Any, client: KubeClient) -> None:
    server.on("PATCH", server.reply(200, OBJECT))
    assert await client.apply(CONFIGMAPS, OBJECT, field_manager="trainer") == OBJECT
    (seen,) = server.seen
    assert seen.path == "/api/v1/namespaces/ns/configmaps/a"
    assert seen.query == {"fieldManager": "trainer", "force": "true"}
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"
    assert seen.headers["Accept"] == "application/json"
    assert seen.headers["Accept-Encoding"] == "identity"
    assert seen.headers["User-Agent"] == "test"
    assert orjson.loads(seen.body) == OBJECT


async def test_a_body_of_several_megabytes_arrives(server: Any, client: KubeClient) -> None:
    """In pieces: written at once it would hold up everybody else, which aiohttp warns about."""
    large = {**OBJECT, "data": {"text": "x" * 3_000_000}}
    server.on("PATCH", server.reply(200, OBJECT))
    await client.apply(CONFIGMAPS, large, field_manager="trainer")
    (seen,) = server.seen
    assert seen.headers["Content-Length"] == str(len(seen.body))
    assert orjson.loads(seen.body) == large


async def test_c10_delete_is_bound_to_the_object_that_was_seen(server: Any, client: KubeClient) -> None:
    server.on("DELETE", server.reply(200, {"kind": "Status"}))
    await client.delete(PODS, "ns", "a", uid="u1", resource_version="7")
    assert orjson.loads(server.seen[0].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
    }


async def test_paths_of_the_other_verbs(server: Any, client: KubeClient) -> None:
    job = {"metadata": {"name": "j", "namespace": "ns"}}
    server.on("POST", server.reply(201, job))
    server.on("PUT", server.reply(200, job))
    server.on("PATCH", server.reply(200, job))
    server.on("list", server.reply(200, {"items": []}), server.reply(200, {"metadata": {}}))
    await client.create(TRAINJOBS, job, field_manager="m")
    await client.update(TRAINJOBS, job, subresource="status")
    await client.patch(TRAINJOBS, "ns", "j", {"status": {}}, subresource="status")
    await client.list(TRAINJOBS, label_selector="a=b", limit=5, continue_token="c")
    await client.get(CLUSTER_TRAINING_RUNTIMES, None, "torch")
    root = "/apis/trainer.kubeflow.org/v1alpha1"
    assert [(seen.method, seen.path, seen.query) for seen in server.seen] == [
        ("POST", f"{root}/namespaces/ns/trainjobs", {"fieldManager": "m"}),
        ("PUT", f"{root}/namespaces/ns/trainjobs/j/status", {}),
        ("PATCH", f"{root}/namespaces/ns/trainjobs/j/status", {}),
        ("GET", f"{root}/trainjobs", {"labelSelector": "a=b", "limit": "5", "continue": "c"}),
        ("GET", f"{root}/clustertrainingruntimes/torch", {}),
    ]
    assert server.seen[2].headers["Content-Type"] == "application/merge-patch+json"


def test_impossible_paths_are_refused() -> None:
    with pytest.raises(ValueError, match="not namespaced"):
        CLUSTER_TRAINING_RUNTIMES.path("ns", "a")
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path(None, "a")


async def test_incomplete_objects_are_refused_before_they_are_sent(server: Any, client: KubeClient) -> None:
    with pytest.raises(ValueError, match="namespace"):
        await client.create(PODS, {"metadata": {"name": "a"}})
    with pytest.raises(ValueError, match=r"metadata\.name"):
        await client.update(PODS, {"metadata": {"namespace": "ns"}})
    assert server.seen == []


async def test_refusal_is_an_api_error(server: Any, client: KubeClient) -> None:
    server.on("list", server.status(404, "NotFound", 'pods "a" not found'))
    with pytest.raises(NotFound, match='pods "a" not found'):
        await client.get(PODS, "ns", "a")
    assert len(server.seen) == 1


async def test_r33_t2_t3_too_many_requests_waits_as_told(server: Any, client: KubeClient, clock: Any) -> None:
    """Also for a create, which the server has certainly not performed."""
    server.on("POST", server.status(429, "TooManyRequests", Retry_After="3"), server.reply(201, OBJECT))
    assert await client.create(CONFIGMAPS, OBJECT) == OBJECT
    assert clock.slept == [3.0]


async def test_r33_server_error_without_retry_after_is_final(server: Any, client: KubeClient, clock: Any) -> None:
    server.on("list", server.status(503, "ServiceUnavailable"))
    with pytest.raises(ServerError):
        await client.get(PODS, "ns", "a")
    assert clock.slept == []


async def test_t3_tries_are_bounded(server: Any, client: KubeClient) -> None:
    server.on("list", *[server.status(429, "TooManyRequests", Retry_After="1")] * 20)
    with pytest.raises(TooManyRequests):
        await client.get(PODS, "ns", "a")
    assert len(server.seen) == 5


async def test_c9_conflict_is_not_tried_again(server: Any, client: KubeClient) -> None:
    server.on("PUT", server.status(409, "Conflict"))
    with pytest.raises(Conflict):
        await client.update(CONFIGMAPS, OBJECT)
    assert len(server.seen) == 1


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_broken_connection_is_tried_again_for_a_read(server: Any, client: KubeClient) -> None:
    server.on("list", reset, reset, server.reply(200, OBJECT))
    assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT


async def test_broken_connection_is_not_tried_again_for_a_create(server: Any, client: KubeClient) -> None:
    """Whether the server acted is unknown; the caller looks before it tries again."""
    server.on("POST", reset, server.reply(201, OBJECT))
    with pytest.raises(TransportError):
        await client.create(CONFIGMAPS, OBJECT)
    assert len(server.seen) == 1


async def test_refused_connection(clock: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = RestConfig(server=f"http://127.0.0.1:{port}")
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        with pytest.raises(NotConnected, match=f"127.0.0.1:{port}"):
            await client.create(CONFIGMAPS, OBJECT)
    assert len(clock.slept) == 4


async def test_p4_silent_server_times_out(server: Any, clock: Any) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    server.on("list", never)
    config = RestConfig(server=server.url)
    async with KubeClient(config, user_agent="test", clock=clock, timeout=0.05, tries=1) as client:
        with pytest.raises(RequestTimeout, match=r"no complete answer within 0\.05 s"):
            await client.get(PODS, "ns", "a")


@pytest.mark.parametrize("body", [b"<html>", b"", b"[1]"])
async def test_answer_that_is_no_object(server: Any, client: KubeClient, body: bytes) -> None:
    server.on("list", server.reply(200, body))
    with pytest.raises(MalformedResponse):
        await client.get(PODS, "ns", "a")


async def test_answer_that_is_too_large(server: Any, clock: Any) -> None:
    big = {"kind": "ConfigMap", "x": "y" * 5000}
    server.on("list", server.reply(200, big), server.stream(*[big] * 5))
    config = RestConfig(server=server.url)
    async with KubeClient(config, user_agent="test", clock=clock, response_limit=1000) as client:
        for _ in ("with a length", "without a length"):
            with pytest.raises(ResponseTooLarge, match="exceeds 1000 bytes"):
                await client.get(PODS, "ns", "a")


class Changing:
    """Credentials of which the first are stale."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.tokens[0]}"}

    async def renew(self) -> bool:
        if len(self.tokens) == 1:
            return False
        self.tokens.pop(0)
        return True


async def test_stale_credentials_are_renewed_once(server: Any, clock: Any) -> None:
    refusal = server.status(401, "Unauthorized")
    server.on("list", refusal, server.reply(200, OBJECT), refusal)
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        with pytest.raises(Unauthorized):
            await client.get(CONFIGMAPS, "ns", "a")
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new", "Bearer new"]


async def test_a_late_refusal_of_stale_credentials_finds_those_that_another_request_brought(
    server: Any, clock: Any
) -> None:
    """There is nothing left to renew then, and still no reason to fail."""
    renewed = asyncio.Event()

    async def refuse_late(request: web.Request) -> Any:
        await renewed.wait()
        return await server.status(401, "Unauthorized")(request)

    server.on("list", refuse_late, server.status(401, "Unauthorized"), *[server.reply(200, OBJECT)] * 2)
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        late = asyncio.create_task(client.get(CONFIGMAPS, "ns", "a"))
        while not server.seen:
            await asyncio.sleep(0)
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        renewed.set()
        assert await late == OBJECT


async def test_closed_client_says_so(server: Any) -> None:
    client = KubeClient(RestConfig(server=server.url), user_agent="test")
    with pytest.raises(RuntimeError, match="not open"):
        await client.get(PODS, "ns", "a")


async def test_raw_returns_refusals_as_they_are(server: Any, client: KubeClient) -> None:
    server.on("list", server.status(403, "Forbidden"))
    status, headers, body = await client.raw("GET", "/version")
    assert status == 403
    assert headers["Content-Type"] == "application/json"
    assert orjson.loads(body)["reason"] == "Forbidden"


async def test_log_stream(server: Any, client: KubeClient) -> None:
    server.on("list", server.stream(b"one\n", b"two\n"), server.status(400, "BadRequest", "waiting to start"))
    path = PODS.path("ns", "a", "log")
    async with client.stream(path, {"follow": "true"}) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"one\ntwo\n"
    with pytest.raises(Exception, match="waiting to start"):
        async with client.stream(path):
            pass
    assert server.seen[0].query == {"follow": "true"}


async def test_broken_stream(server: Any, client: KubeClient) -> None:
    server.on("list", server.stream(b"one\n", then="reset"))
    async with client.stream("/log") as chunks:
        assert await anext(chunks) == b"one\n"
        with pytest.raises(StreamBroken):
            await anext(chunks)


async def test_p36_leaving_a_watch_closes_its_connection(server: Any, client: KubeClient, until: Any) -> None:
    server.on("watch", server.stream(then="hang"))
    async with client.watch(PODS, resource_version="5", timeout_seconds=300):
        await until(lambda: server.open_streams == 1)
    await until(lambda: server.open_streams == 0)
    assert server.seen[0].query == {
        "watch": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
        "allowWatchBookmarks": "true",
    }


async def test_k10_requests_are_counted(server: Any, client: KubeClient) -> None:
    host = server.url.removeprefix("http://")
    server.on("list", server.status(404, "NotFound"))
    with pytest.raises(NotFound):
        await client.get(PODS, "ns", "a")
    labels = {"code": "404", "method": "GET", "host": host}
    assert value_of("rest_client_requests_total", labels) == 1


async def test_t4_connections_of_watches_do_not_starve_requests(server: Any, clock: Any, until: Any) -> None:
    config = RestConfig(server=server.url)
    server.on("list", server.reply(200, OBJECT))
    async with (
        KubeClient(config, user_agent="test", clock=clock, connections=1) as client,
        asyncio.TaskGroup() as tasks,
    ):

        async def hold() -> None:
            async with client.watch(PODS, resource_version="5", timeout_seconds=300):
                await asyncio.sleep(3600)

        held = [tasks.create_task(hold()) for _ in range(3)]
        await until(lambda: server.open_streams == 3)
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        for task in held:
            task.cancel()


async def test_broken_connection_is_tried_again_for_a_delete_by_uid(server: Any, client: KubeClient) -> None:
    server.on("DELETE", reset, server.reply(200, {"kind": "Status"}))
    await client.delete(PODS, "ns", "a", uid="u1")
    assert len(server.seen) == 2


WRITES: dict[str, Callable[[KubeClient], Awaitable[object]]] = {
    "POST": lambda client: client.create(CONFIGMAPS, OBJECT),
    "PUT": lambda client: client.update(CONFIGMAPS, OBJECT),
    "PATCH": lambda client: client.patch(CONFIGMAPS, "ns", "a", {"data": {}}),
    "an apply that may create": lambda client: client.apply(CONFIGMAPS, OBJECT, field_manager="trainer"),
    "DELETE": lambda client: client.delete(CONFIGMAPS, "ns", "a"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("reused", [False, True])
async def test_t3_write_whose_answer_was_lost_is_sent_once(
    server: Any, client: KubeClient, write: str, *, reused: bool
) -> None:
    """Neither by us nor by aiohttp, which would send PUT and DELETE again by itself, on old connections too."""
    method = write if write.isupper() else "PATCH"
    if reused:
        server.on("list", server.reply(200, OBJECT))
        await client.get(CONFIGMAPS, "ns", "a")
    server.on(method, reset, server.reply(200, OBJECT))
    with pytest.raises(TransportError, match=f"^{method} http.* closed the connection without an answer"):
        await WRITES[write](client)
    assert len(server.requests(method)) == 1


async def test_t3_read_on_a_connection_that_broke_is_sent_by_us_alone(server: Any, clock: Any) -> None:
    server.on("list", reset, server.reply(200, OBJECT))
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, tries=1) as client:
        with pytest.raises(TransportError):
            await client.get(CONFIGMAPS, "ns", "a")
    assert len(server.seen) == 1


@pytest.mark.parametrize(("status", "sent"), [(429, 2), (503, 2), (500, 1), (504, 1)])
async def test_r33_t3_retry_after_of_a_create(server: Any, client: KubeClient, status: int, sent: int) -> None:
    """A create that the server turned away goes again; one that it may have performed does not."""
    server.on("POST", server.status(status, "Trouble", Retry_After="1"), server.reply(201, OBJECT))
    with nullcontext() if sent == 2 else pytest.raises(ServerError):
        await client.create(CONFIGMAPS, OBJECT)
    assert len(server.seen) == sent


async def test_t3_retry_after_of_hours_is_left_to_the_caller(server: Any, client: KubeClient, clock: Any) -> None:
    server.on("POST", server.status(429, "TooManyRequests", Retry_After="7200"))
    with pytest.raises(TooManyRequests) as caught:
        await client.create(CONFIGMAPS, OBJECT)
    assert caught.value.retry_after == 7200
    assert clock.slept == []


async def test_t3_all_waits_for_one_request_are_bounded_together(server: Any, client: KubeClient, clock: Any) -> None:
    """Five tries with a minute between them would outlast the reconcile that waits for the answer."""
    refusal = server.status(429, "TooManyRequests", Retry_After="25")
    server.on("POST", *[refusal] * TRIES)
    with pytest.raises(TooManyRequests):
        await client.create(CONFIGMAPS, OBJECT)
    assert clock.slept == [25, 25]
    assert sum(clock.slept) <= WAITS_AT_MOST < RECONCILE_TIMEOUT


async def test_p4_answer_that_stops_in_the_middle_times_out(server: Any, clock: Any) -> None:
    """The limit covers the whole of a request, not only its beginning; also of a refusal."""
    config = RestConfig(server=server.url)
    server.on("list", server.stream(b'{"kind":', then="hang"), server.stream(b"<html>", then="hang", status=502))
    async with KubeClient(config, user_agent="test", clock=clock, timeout=0.1, tries=1) as client:
        for _ in ("an object", "a refusal"):
            with pytest.raises(RequestTimeout, match=r"GET http://.*/pods/a: no complete answer within 0\.1 s"):
                await client.get(PODS, "ns", "a")


async def test_p4_watch_that_does_not_open_times_out(server: Any, clock: Any) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    server.on("watch", never)
    config = RestConfig(server=server.url)
    async with KubeClient(config, user_agent="test", clock=clock, timeout=0.05) as client:
        with pytest.raises(RequestTimeout):
            async with client.watch(PODS, resource_version="5", timeout_seconds=300):
                pass


async def test_p36_every_answer_gives_its_connection_back(server: Any, clock: Any) -> None:
    """With one connection only, whatever becomes of the answers, the next request finds it or a new one."""
    answers = [
        server.reply(200, OBJECT),
        server.status(404, "NotFound"),
        server.reply(200, b"<html>"),
        server.stream(b"x" * 2000),
        server.stream(b"x" * 2**21, status=500),
        reset,
    ]
    config = RestConfig(server=server.url)
    async with KubeClient(
        config, user_agent="test", clock=clock, connections=1, tries=1, timeout=2.0, response_limit=1000
    ) as client:
        for answer in answers:
            server.on("list", answer, server.reply(200, OBJECT))
            with suppress(KubeError):
                await client.get(PODS, "ns", "a")
            assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
            assert open_connections("request") == 1
    assert open_connections("request") == 0


async def test_p36_l12_leaving_the_client_closes_what_was_given_up(tmp_path: Path) -> None:
    """A server that does not answer, not even to the end of TLS, holds no connection of a client that is gone."""
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    asked, over = asyncio.Semaphore(0), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        cast("asyncio.Transport", writer.transport).pause_reading()
        asked.release()
        await over.wait()
        writer.transport.abort()

    listener = await asyncio.start_server(say_nothing, "127.0.0.1", 0, ssl=authority.server_context(tmp_path))
    config = RestConfig(server=f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", ssl_context=trusting)
    async with listener:
        async with KubeClient(config, user_agent="test") as client:
            request = asyncio.create_task(client.get(PODS, "ns", "a"))
            watch = asyncio.create_task(client.stream("/").__aenter__())
            await asked.acquire()
            await asked.acquire()
            request.cancel()
            watch.cancel()
            await asyncio.wait((request, watch))
        left = open_connections("request"), open_connections("watch")
        over.set()
    assert left == (0, 0)


async def test_k10_connections_are_counted_by_pool(server: Any, client: KubeClient, until: Any) -> None:
    server.on("list", server.reply(200, OBJECT))
    await client.get(CONFIGMAPS, "ns", "a")
    async with client.watch(PODS, resource_version="5", timeout_seconds=300):
        assert (open_connections("request"), open_connections("watch")) == (1, 1)
    await until(lambda: open_connections("watch") == 0)


def open_connections(pool: str) -> float | None:
    return value_of("trainmaster_client_connections", {"pool": pool})


async def test_k10_all_series_exist_before_the_first_request() -> None:
    KubeClient(RestConfig(server="https://fresh.example:6443"), user_agent="test")
    host = {"host": "fresh.example:6443"}
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        for code in ("403", "429", "<error>"):
            labels = {"code": code, "method": method, **host}
            assert value_of("rest_client_requests_total", labels) == 0
        labels = {"verb": method, **host}
        for name in (
            "request_duration_seconds", "rate_limiter_duration_seconds", "request_size_bytes", "response_size_bytes",
        ):  # fmt: skip
            assert value_of(f"rest_client_{name}_count", labels) == 0
        assert value_of("rest_client_request_retries_total", {"code": "429", **labels}) == 0


async def test_k10_sizes_durations_and_retries(server: Any, client: KubeClient) -> None:
    host = {"host": server.url.removeprefix("http://")}
    server.on("POST", server.status(429, "TooManyRequests", Retry_After="1"), server.reply(201, OBJECT))
    await client.create(CONFIGMAPS, OBJECT)
    size = len(orjson.dumps(OBJECT))
    labels = {"verb": "POST", **host}
    assert value_of("rest_client_request_size_bytes_sum", labels) == 2 * size
    assert value_of("rest_client_response_size_bytes_sum", labels) == size
    assert value_of("rest_client_request_duration_seconds_count", labels) == 2
    assert value_of("rest_client_request_retries_total", {"code": "429", **labels}) == 1
    for code, count in (("201", 1), ("429", 1), ("<error>", 0)):
        labels = {"code": code, "method": "POST", **host}
        assert value_of("rest_client_requests_total", labels) == count


async def test_k10_name_resolution_is_measured(server: Any, clock: Any) -> None:
    server.on("list", server.reply(200, OBJECT))
    count = "rest_client_dns_resolution_duration_seconds_count"
    before = value_of(count, {"host": "localhost"}) or 0
    config = RestConfig(server=server.url.replace("127.0.0.1", "localhost"))
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        await client.get(CONFIGMAPS, "ns", "a")
    assert value_of(count, {"host": "localhost"}) == before + 1


async def test_t1_no_limit_of_our_own_by_default(server: Any, client: KubeClient, clock: Any) -> None:
    server.on("list", *[server.reply(200, OBJECT)] * 50)
    await asyncio.gather(*[client.get(CONFIGMAPS, "ns", "a") for _ in range(50)])
    assert clock.slept == []


async def test_t1_limit_applies_to_every_attempt(server: Any, clock: Any) -> None:
    server.on("list", server.status(429, "TooManyRequests", Retry_After="0"), server.reply(200, OBJECT))
    limiter = RateLimiter(qps=0.1, burst=1, clock=clock)
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, limiter=limiter) as client:
        await client.get(CONFIGMAPS, "ns", "a")
    assert clock.slept == [pytest.approx(10, abs=0.5)]
    labels = {"verb": "GET", "host": server.url.removeprefix("http://")}
    waited = value_of("rest_client_rate_limiter_duration_seconds_sum", labels)
    assert waited == pytest.approx(10, abs=0.5)


async def test_guard_is_asked_before_each_attempt_of_a_write(server: Any, clock: Any) -> None:
    """Whoever loses the lease while a request waits for its second try does not send it."""
    asked: list[int] = []

    def guard() -> None:
        asked.append(len(server.seen))
        if len(asked) == 2:
            raise NotLeading("the lease is lost")

    server.on("POST", server.status(429, "TooManyRequests", Retry_After="1"), server.reply(201, OBJECT))
    server.on("list", server.reply(200, OBJECT))
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, guard=guard) as client:
        with pytest.raises(NotLeading):
            await client.create(CONFIGMAPS, OBJECT)
        assert asked == [0, 1]
        await client.get(CONFIGMAPS, "ns", "a")
    assert asked == [0, 1]
    assert [seen.method for seen in server.seen] == ["POST", "GET"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_guard_holds_every_write_back(server: Any, clock: Any, method: str) -> None:
    def guard() -> None:
        raise NotLeading("the lease is lost")

    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, guard=guard) as client:
        with pytest.raises(NotLeading):
            await WRITES[method](client)
        with pytest.raises(NotLeading):
            await client.raw(method, "/api/v1/namespaces/ns/configmaps")
    assert server.seen == []
    assert clock.slept == []


async def test_s18_metadata_only(server: Any, client: KubeClient) -> None:
    """A server that cannot answer with metadata only may answer with everything."""
    server.on("list", server.reply(200, {"items": []}))
    server.on("watch", server.stream())
    await client.list(PODS, metadata_only=True)
    async with client.watch(PODS, resource_version="5", timeout_seconds=300, metadata_only=True):
        pass
    form = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
    assert [seen.headers["Accept"] for seen in server.seen] == [form.format("List"), form.format("")]


async def test_t8_watch_that_begins_with_the_present_state(server: Any, client: KubeClient) -> None:
    server.on("stream", server.stream())
    async with client.watch(PODS, resource_version="", timeout_seconds=300, send_initial_events=True):
        pass
    (seen,) = server.seen
    assert (seen.query["sendInitialEvents"], seen.query["resourceVersionMatch"]) == ("true", "NotOlderThan")


async def test_t5_connection_is_used_again(server: Any, client: KubeClient) -> None:
    peers = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.json_response(OBJECT)

    server.on("list", answer, answer)
    for _ in range(2):
        await client.get(CONFIGMAPS, "ns", "a")
    assert len(peers) == 1
    assert IDLE_AT_MOST < 60


async def test_stale_credentials_of_a_watch_are_renewed(server: Any, clock: Any) -> None:
    server.on("watch", server.status(401, "Unauthorized"), server.stream())
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with (
        KubeClient(config, user_agent="test", clock=clock) as client,
        client.watch(PODS, resource_version="5", timeout_seconds=300),
    ):
        pass
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]


def test_a9_p1_p2_p9_objects_are_plain_json() -> None:
    """The client needs nothing of kubernetes_asyncio, neither its models nor its watch."""
    program = (
        "import sys, trainmaster.controller.kube.rest.client; "
        "sys.exit(any(name.startswith('kubernetes_asyncio') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


class Scripted:
    """A transport without a network, as a simulation has one."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[tuple[str, str, bool]] = []
        self.entered = False

    async def send(self, method: str, path: str, *, streaming: bool, **_: Any) -> Any:
        self.sent.append((method, path, streaming))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def __aenter__(self) -> Self:
        self.entered = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.entered = False


@dataclass
class Canned:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    closed: bool = False

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body

    def close(self) -> None:
        self.closed = True


async def test_everything_above_the_transport_works_with_any_transport(clock: Any) -> None:
    refusal = Canned(429, b"", {"Retry-After": "2"})
    transport = Scripted(NotConnected("gone"), refusal, Canned(200, orjson.dumps(OBJECT)))
    config = RestConfig(server="http://simulated")
    async with KubeClient(config, user_agent="test", clock=clock, transport=transport, random=lambda: 0.5) as client:
        assert transport.entered
        assert await client.create(CONFIGMAPS, OBJECT) == OBJECT
    assert not transport.entered
    assert refusal.closed
    assert transport.sent == [("POST", "/api/v1/namespaces/ns/configmaps", False)] * 3
    assert clock.slept == [0.2, 2.0]
