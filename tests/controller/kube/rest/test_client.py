"""Requests on the wire, and what becomes of the answers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest
from support.requests import OBJECT

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import MalformedResponse, ResponseTooLarge, StreamBroken
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.guarantee("A-1", "T-6", "T-7")
async def test_apply_sends_the_intent_with_its_manager(server: Any, client: KubeClient) -> None:
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


@pytest.mark.guarantee("C-10")
async def test_delete_is_bound_to_the_object_that_was_seen(server: Any, client: KubeClient) -> None:
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
    await client.patch_status(TRAINJOBS, "ns", "j", {"status": {}}, field_manager="m")
    await client.list(TRAINJOBS, label_selector="a=b", limit=5, continue_token="c")
    await client.get(CLUSTER_TRAINING_RUNTIMES, None, "torch")
    root = "/apis/trainer.kubeflow.org/v1alpha1"
    assert [(seen.method, seen.path, seen.query) for seen in server.seen] == [
        ("POST", f"{root}/namespaces/ns/trainjobs", {"fieldManager": "m"}),
        ("PUT", f"{root}/namespaces/ns/trainjobs/j/status", {}),
        ("PATCH", f"{root}/namespaces/ns/trainjobs/j/status", {"fieldManager": "m"}),
        ("GET", f"{root}/trainjobs", {"labelSelector": "a=b", "limit": "5", "continue": "c"}),
        ("GET", f"{root}/clustertrainingruntimes/torch", {}),
    ]
    assert server.seen[2].headers["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"metadata": {"resourceVersion": "7"}, "spec": {}, "status": {"a": 1}}, ({"a": 1}, "7")),
        ({"status": {"a": 1}, "metadata": {"resourceVersion": "7"}}, ({"a": 1}, "7")),
        ({"metadata": {"resourceVersion": "7"}, "spec": {}}, ({}, "7")),
        ({"metadata": {}, "status": {"a": 1}}, ({"a": 1}, "")),
    ],
)
async def test_a_status_that_was_patched_is_as_the_server_has_it(
    server: Any, client: KubeClient, answer: JsonObject, expected: tuple[JsonObject, str]
) -> None:
    server.on("PATCH", server.reply(200, answer))
    assert await client.patch_status(TRAINJOBS, "ns", "j", {"status": {"a": 1}}, field_manager="m") == expected


async def test_an_answer_to_a_status_that_is_no_object_is_an_error(server: Any, client: KubeClient) -> None:
    server.on("PATCH", server.reply(200, "Welcome"))
    with pytest.raises(MalformedResponse, match="is there a proxy"):
        await client.patch_status(TRAINJOBS, "ns", "j", {}, field_manager="m")


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


async def test_answer_that_is_too_large(server: Any, clock: Any) -> None:
    big = {"kind": "ConfigMap", "x": "y" * 5000}
    server.on("list", server.reply(200, big), server.stream(*[big] * 5))
    config = RestConfig(server=server.url)
    async with KubeClient(config, user_agent="test", clock=clock, response_limit=1000) as client:
        for _ in ("with a length", "without a length"):
            with pytest.raises(ResponseTooLarge, match="exceeds 1000 bytes"):
                await client.get(PODS, "ns", "a")


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
    refusal = server.status(400, "BadRequest", "waiting to start")
    server.on("list", server.stream(b"one\n", b"two\n"), refusal, server.stream(b"one\n", then="reset"))
    path = PODS.path("ns", "a", "log")
    async with client.stream(path, {"follow": "true"}) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == b"one\ntwo\n"
    with pytest.raises(Exception, match="waiting to start"):
        async with client.stream(path):
            pass
    assert server.seen[0].query == {"follow": "true"}
    async with client.stream(path) as chunks:
        assert await anext(chunks) == b"one\n"
        with pytest.raises(StreamBroken):
            await anext(chunks)


@pytest.mark.nightly
@pytest.mark.guarantee("A-9", "P-1", "P-2", "P-9")
def test_objects_are_plain_json() -> None:
    """The client needs nothing of kubernetes_asyncio, neither its models nor its watch."""
    program = (
        "import sys, trainmaster.controller.kube.rest.client; "
        "sys.exit(any(name.startswith('kubernetes_asyncio') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
