"""Requests on the wire, and what becomes of the answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from aiohttp import web

from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.configuration import ClusterAccess
from trainmaster.controller.kube.errors import (
    Conflict,
    MalformedResponse,
    NotConnected,
    NotFound,
    RequestTimeout,
    ResponseTooLarge,
    ServerError,
    StreamBroken,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from trainmaster.controller.kube.resources import CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS, PODS, TRAINJOBS
from trainmaster.metrics.registry import REGISTRY

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}


async def test_apply_sends_the_intent_with_its_manager(server: Any, client: KubeClient) -> None:
    """A-1"""
    server.on("PATCH", server.reply(200, OBJECT))
    assert await client.apply(CONFIGMAPS, OBJECT, field_manager="trainer") == OBJECT
    (seen,) = server.seen
    assert seen.path == "/api/v1/namespaces/ns/configmaps/a"
    assert seen.query == {"fieldManager": "trainer", "force": "true"}
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"
    assert seen.headers["Accept-Encoding"] == "identity"
    assert orjson.loads(seen.body) == OBJECT


async def test_delete_is_bound_to_the_object_that_was_seen(server: Any, client: KubeClient) -> None:
    """C-10"""
    server.on("DELETE", server.reply(200, {"kind": "Status"}))
    await client.delete(PODS, "ns", "a", uid="u1", resource_version="7", grace_seconds=0)
    assert orjson.loads(server.seen[0].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
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
    assert PODS.path("n/s", "a?b") == "/api/v1/namespaces/n%2Fs/pods/a%3Fb"


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


async def test_too_many_requests_waits_as_told(server: Any, client: KubeClient, clock: Any) -> None:
    """R-33, T-3: also for a create, which the server has certainly not performed."""
    server.on("POST", server.status(429, "TooManyRequests", Retry_After="3"), server.reply(201, OBJECT))
    assert await client.create(CONFIGMAPS, OBJECT) == OBJECT
    assert clock.slept == [3.0]


async def test_server_error_without_retry_after_is_final(server: Any, client: KubeClient, clock: Any) -> None:
    """R-33"""
    server.on("list", server.status(503, "ServiceUnavailable"))
    with pytest.raises(ServerError):
        await client.get(PODS, "ns", "a")
    assert clock.slept == []


async def test_tries_are_bounded(server: Any, client: KubeClient) -> None:
    server.on("list", *[server.status(429, "TooManyRequests", Retry_After="1")] * 20)
    with pytest.raises(TooManyRequests):
        await client.get(PODS, "ns", "a")
    assert len(server.seen) == 5


async def test_conflict_is_not_tried_again(server: Any, client: KubeClient) -> None:
    """C-9"""
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
    access = ClusterAccess(server=f"http://127.0.0.1:{port}")
    async with KubeClient(access, user_agent="test", clock=clock) as client:
        with pytest.raises(NotConnected, match=f"127.0.0.1:{port}"):
            await client.create(CONFIGMAPS, OBJECT)
    assert len(clock.slept) == 4


async def test_silent_server_times_out(server: Any, clock: Any) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    server.on("list", never)
    access = ClusterAccess(server=server.url)
    async with KubeClient(access, user_agent="test", clock=clock, timeout=0.05, tries=1) as client:
        with pytest.raises(RequestTimeout, match="no answer in time"):
            await client.get(PODS, "ns", "a")


@pytest.mark.parametrize("body", [b"<html>", b"", b"[1]"])
async def test_answer_that_is_no_object(server: Any, client: KubeClient, body: bytes) -> None:
    server.on("list", server.reply(200, body))
    with pytest.raises(MalformedResponse):
        await client.get(PODS, "ns", "a")


async def test_answer_that_is_too_large(server: Any, clock: Any) -> None:
    big = {"kind": "ConfigMap", "x": "y" * 5000}
    server.on("list", server.reply(200, big), server.stream(*[big] * 5))
    access = ClusterAccess(server=server.url)
    async with KubeClient(access, user_agent="test", clock=clock, response_limit=1000) as client:
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
    access = ClusterAccess(server=server.url, credentials=Changing("old", "new"))
    async with KubeClient(access, user_agent="test", clock=clock) as client:
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        with pytest.raises(Unauthorized):
            await client.get(CONFIGMAPS, "ns", "a")
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new", "Bearer new"]


async def test_closed_client_says_so(server: Any) -> None:
    client = KubeClient(ClusterAccess(server=server.url), user_agent="test")
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


async def test_leaving_a_watch_closes_its_connection(server: Any, client: KubeClient, until: Any) -> None:
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


async def test_requests_are_counted(server: Any, client: KubeClient) -> None:
    """K-10"""
    host = server.url.removeprefix("http://")
    server.on("list", server.status(404, "NotFound"))
    with pytest.raises(NotFound):
        await client.get(PODS, "ns", "a")
    labels = {"code": "404", "method": "GET", "host": host}
    assert REGISTRY.get_sample_value("rest_client_requests_total", labels) == 1


async def test_connections_of_watches_do_not_starve_requests(server: Any, clock: Any, until: Any) -> None:
    """T-4"""
    access = ClusterAccess(server=server.url)
    server.on("list", server.reply(200, OBJECT))
    async with (
        KubeClient(access, user_agent="test", clock=clock, connections=1) as client,
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
    """Two failures in a row, because aiohttp repeats a DELETE once by itself."""
    server.on("DELETE", reset, reset, server.reply(200, {"kind": "Status"}))
    await client.delete(PODS, "ns", "a", uid="u1")
    server.on("DELETE", reset, reset, server.reply(200, {"kind": "Status"}))
    with pytest.raises(TransportError):
        await client.delete(PODS, "ns", "a")
