"""Metrics of requests and connections."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from support.requests import OBJECT, open_connections
from support.series import value_of

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import ServerError
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS


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
async def test_a_write_that_is_refused_counts_as_sent_again_only_if_the_server_asked_for_that(
    server: Any, client: KubeClient
) -> None:
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
