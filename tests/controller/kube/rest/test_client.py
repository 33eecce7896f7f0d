"""The client: requests, credentials, metrics."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from aiohttp import web
from support.oddrequests import OBJECT, WRITES, open_connections
from support.series import value_of

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import (
    KubeError,
    MalformedResponse,
    NotConnected,
    NotLeading,
    ResponseTooLarge,
    ServerError,
    StreamBroken,
    Unauthorized,
)
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
    client = KubeClient(RestConfig(server=server.url), user_agent="test", tries=1)
    with pytest.raises(NotConnected, match="the client is not open"):
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


@pytest.mark.guarantee("K-10")
async def test_connections_are_counted_by_pool(server: Any, client: KubeClient, until: Any) -> None:
    server.on("list", server.reply(200, OBJECT))
    await client.get(CONFIGMAPS, "ns", "a")
    async with client.watch(PODS, resource_version="5", timeout_seconds=300):
        assert (open_connections("request"), open_connections("watch")) == (1, 1)
    await until(lambda: open_connections("watch") == 0)


@pytest.mark.guarantee("K-10")
async def test_all_series_exist_before_the_first_request() -> None:
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


@pytest.mark.guarantee("M-11")
async def test_a_password_in_the_url_of_the_server_is_named_nowhere(server: Any) -> None:
    address = server.url.removeprefix("http://")
    server.on("list", server.status(401, "Unauthorized"), server.reply(200, b"<html>"))
    config = RestConfig(server=f"http://me:pass@{address}/")
    assert config.server == server.url
    async with KubeClient(config, user_agent="test", tries=1) as client:
        for _ in range(2):
            with pytest.raises(KubeError, match=f"GET http://{address}/api") as caught:
                await client.get(PODS, "ns", "a")
            assert "pass" not in str(caught.value)
    assert server.seen[0].headers["Authorization"] == "Basic bWU6cGFzcw=="
    assert value_of("rest_client_requests_total", {"code": "401", "method": "GET", "host": address}) == 1


@pytest.mark.guarantee("K-10")
async def test_sizes_durations_and_retries(server: Any, client: KubeClient) -> None:
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


@pytest.mark.guarantee("K-10")
async def test_a_refused_write_counts_as_a_retry_only_if_the_server_asked(server: Any, client: KubeClient) -> None:
    """As in client-go: without Retry-After, 503 is given to the caller, and its queue tries again."""
    labels = {"code": "503", "verb": "POST", "host": server.url.removeprefix("http://")}
    server.on("POST", server.status(503, "ServiceUnavailable"))
    with pytest.raises(ServerError):
        await client.create(CONFIGMAPS, OBJECT)
    assert value_of("rest_client_request_retries_total", labels) == 0
    server.on("POST", server.status(503, "ServiceUnavailable", Retry_After="1"), server.reply(201, OBJECT))
    await client.create(CONFIGMAPS, OBJECT)
    assert value_of("rest_client_request_retries_total", labels) == 1


@pytest.mark.guarantee("K-10")
async def test_name_resolution_is_measured(server: Any, clock: Any) -> None:
    server.on("list", server.reply(200, OBJECT))
    count = "rest_client_dns_resolution_duration_seconds_count"
    before = value_of(count, {"host": "localhost"}) or 0
    config = RestConfig(server=server.url.replace("127.0.0.1", "localhost"))
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        await client.get(CONFIGMAPS, "ns", "a")
    assert value_of(count, {"host": "localhost"}) == before + 1


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


async def test_a_late_refusal_of_stale_credentials_finds_those_of_another_request(server: Any, clock: Any) -> None:
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


async def test_stale_credentials_of_a_watch_are_renewed(server: Any, clock: Any) -> None:
    server.on("watch", server.status(401, "Unauthorized"), server.stream())
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with (
        KubeClient(config, user_agent="test", clock=clock) as client,
        client.watch(PODS, resource_version="5", timeout_seconds=300),
    ):
        pass
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]
