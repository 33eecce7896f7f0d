"""Requests that are tried again, and those that are not: which, how often, after which waits."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from support.requests import OBJECT, WRITES, reset
from support.series import value_of

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import Conflict, ServerError, TooManyRequests, TransportError
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS
from trainmaster.controller.kube.rest.retry import TRIES, WAITS_AT_MOST
from trainmaster.controller.reconciling.controller import RECONCILE_TIMEOUT


@pytest.mark.guarantee("R-33")
async def test_server_error_without_retry_after_is_final(server: Any, client: KubeClient, clock: Any) -> None:
    server.on("list", server.status(503, "ServiceUnavailable"))
    with pytest.raises(ServerError):
        await client.get(PODS, "ns", "a")
    assert clock.slept == []


@pytest.mark.guarantee("T-3")
async def test_tries_are_bounded(server: Any, client: KubeClient) -> None:
    server.on("list", *[server.status(429, "TooManyRequests", Retry_After="1")] * 20)
    with pytest.raises(TooManyRequests):
        await client.get(PODS, "ns", "a")
    assert len(server.seen) == 5


@pytest.mark.guarantee("C-9")
async def test_conflict_is_not_tried_again(server: Any, client: KubeClient) -> None:
    server.on("PUT", server.status(409, "Conflict"))
    with pytest.raises(Conflict):
        await client.update(CONFIGMAPS, OBJECT)
    assert len(server.seen) == 1


async def test_broken_connection_is_tried_again_for_a_read(server: Any, client: KubeClient) -> None:
    server.on("list", reset, reset, server.reply(200, OBJECT))
    assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT


async def test_broken_connection_is_tried_again_for_a_delete_by_uid(server: Any, client: KubeClient) -> None:
    server.on("DELETE", reset, server.reply(200, {"kind": "Status"}))
    await client.delete(PODS, "ns", "a", uid="u1")
    assert len(server.seen) == 2


@pytest.mark.guarantee("T-3")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("reused", [False, True])
async def test_write_whose_answer_was_lost_is_sent_once(
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


@pytest.mark.guarantee("T-3")
async def test_read_on_a_connection_that_broke_is_sent_by_us_alone(server: Any, clock: Any) -> None:
    server.on("list", reset, server.reply(200, OBJECT))
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, tries=1) as client:
        with pytest.raises(TransportError):
            await client.get(CONFIGMAPS, "ns", "a")
    assert len(server.seen) == 1


@pytest.mark.guarantee("R-33", "T-2", "T-3")
@pytest.mark.parametrize(("status", "sent"), [(429, 2), (503, 2), (500, 1), (504, 1)])
async def test_retry_after_of_a_create(server: Any, client: KubeClient, clock: Any, status: int, sent: int) -> None:
    """A create that the server turned away goes again; one that it may have performed does not."""
    server.on("POST", server.status(status, "Trouble", Retry_After="3"), server.reply(201, OBJECT))
    with nullcontext() if sent == 2 else pytest.raises(ServerError):
        await client.create(CONFIGMAPS, OBJECT)
    assert len(server.seen) == sent
    assert clock.slept == [3.0] * (sent - 1)


@pytest.mark.guarantee("T-3")
async def test_retry_after_of_hours_is_left_to_the_caller(server: Any, client: KubeClient, clock: Any) -> None:
    server.on("POST", server.status(429, "TooManyRequests", Retry_After="7200"))
    with pytest.raises(TooManyRequests) as caught:
        await client.create(CONFIGMAPS, OBJECT)
    assert caught.value.retry_after == 7200
    assert clock.slept == []


@pytest.mark.guarantee("T-3")
async def test_all_waits_for_one_request_are_bounded_together(server: Any, client: KubeClient, clock: Any) -> None:
    """Five tries with a minute between them would outlast the reconcile that waits for the answer."""
    refusal = server.status(429, "TooManyRequests", Retry_After="25")
    server.on("POST", *[refusal] * TRIES)
    with pytest.raises(TooManyRequests):
        await client.create(CONFIGMAPS, OBJECT)
    assert clock.slept == [25, 25]
    assert sum(clock.slept) <= WAITS_AT_MOST < RECONCILE_TIMEOUT


@pytest.mark.guarantee("T-1")
async def test_no_limit_of_our_own_by_default(server: Any, client: KubeClient, clock: Any) -> None:
    server.on("list", *[server.reply(200, OBJECT)] * 50)
    await asyncio.gather(*[client.get(CONFIGMAPS, "ns", "a") for _ in range(50)])
    assert clock.slept == []


@pytest.mark.guarantee("T-1")
async def test_limit_applies_to_every_attempt(server: Any, clock: Any) -> None:
    server.on("list", server.status(429, "TooManyRequests", Retry_After="0"), server.reply(200, OBJECT))
    limiter = RateLimiter(qps=0.1, burst=1, clock=clock)
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, limiter=limiter) as client:
        await client.get(CONFIGMAPS, "ns", "a")
    assert clock.slept == [pytest.approx(10, abs=0.5)]
    labels = {"verb": "GET", "host": server.url.removeprefix("http://")}
    waited = value_of("rest_client_rate_limiter_duration_seconds_sum", labels)
    assert waited == pytest.approx(10, abs=0.5)
