"""Requests that are tried again, and how many at once and in a second."""

import asyncio
import heapq
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oddrequests import OBJECT, WRITES, reset
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.concurrency_limit import INITIAL, MAXIMUM, MINIMUM, PERIOD, ConcurrencyLimit
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import Conflict, ServerError, TooManyRequests, TransportError
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter, RateLimiter
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
async def test_writes_without_answer_go_out_once(server: Any, client: KubeClient, write: str, *, reused: bool) -> None:
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


@dataclass
class Server:
    """Performs `parallel` writes at once, and is sent as many as the limit allows."""

    parallel: int = 1000
    takes: float = 0.01
    refuses_above: int = 10**9
    clock: VirtualClock = field(default_factory=VirtualClock)
    done: int = 0
    refused: int = 0
    waits: list[float] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limit = ConcurrencyLimit(self.clock.monotonic())

    def work(self, seconds: float, *, wanted: Callable[[], int] = lambda: 10**9) -> None:
        end = self.clock.monotonic() + seconds
        in_flight: list[tuple[float, float, int]] = []
        free = [self.clock.monotonic()] * self.parallel
        while in_flight or self.clock.monotonic() < end:
            now = self.clock.monotonic()
            while now < end and len(in_flight) < min(self.limit.limit, wanted()):
                if sum(status == 200 for _, _, status in in_flight) >= self.refuses_above:
                    heapq.heappush(in_flight, (now + self.takes, now, 429))
                else:
                    ends = max(now, heapq.heappop(free)) + self.takes
                    heapq.heappush(free, ends)
                    heapq.heappush(in_flight, (ends, now, 200))
            ends, sent, status = heapq.heappop(in_flight)
            self.clock.step(ends - now)
            self.limit.answered(sent=sent, now=ends, status=status)
            self.done += status == 200
            self.refused += status == 429
            self.waits.append(ends - sent)
            self.limits.append(self.limit.limit)


def test_a_server_that_performs_many_at_once_is_sent_many() -> None:
    server = Server()
    server.work(2.0)
    assert server.limits[-1] == MAXIMUM
    assert server.done > 0.9 * 2.0 * MAXIMUM / server.takes


@pytest.mark.parametrize("parallel", [20, 40])
def test_it_settles_where_the_server_is_never_idle_and_a_third_waits(parallel: int) -> None:
    server = Server(parallel, takes=0.02)
    server.work(PERIOD + 2.0)
    assert server.done > 0.98 * (PERIOD + 2.0) * parallel / server.takes
    assert max(server.limits) <= 1.75 * parallel
    assert sum(server.waits) / len(server.waits) < 1.6 * server.takes


@pytest.mark.parametrize("parallel", [1, 16])
def test_a_server_that_performs_few_at_once_is_not_sent_many_more_than_ever(parallel: int) -> None:
    server = Server(parallel, takes=0.02)
    server.work(PERIOD + 2.0)
    assert server.done > 0.98 * (PERIOD + 2.0) * parallel / server.takes
    assert min(server.limits) >= INITIAL
    assert max(server.limits) <= 1.75 * INITIAL


def test_a_server_that_refuses_is_sent_fewer_and_one_that_recovers_more() -> None:
    server = Server(refuses_above=10)
    server.work(5.0)
    assert MINIMUM <= server.limits[-1] <= 11
    assert server.refused < 0.05 * server.done
    server.refuses_above = 10**9
    server.work(PERIOD)
    assert server.limits[-1] == MAXIMUM


def test_writes_that_run_into_their_timeout_take_it_down_to_the_minimum() -> None:
    limit = ConcurrencyLimit(now=0.0)
    for second in range(200):
        limit.answered(sent=second, now=second + 30.0, status=None)
    assert limit.limit == MINIMUM


def test_a_server_that_becomes_slower_is_not_taken_for_a_busy_one_for_long() -> None:
    server = Server()
    server.work(2.0)
    server.takes = 0.1
    server.work(2.0)
    assert server.limits[-1] == INITIAL
    server.work(PERIOD)
    assert server.limits[-1] == MAXIMUM


def test_one_slow_answer_decides_nothing() -> None:
    server = Server()
    for _ in range(2):
        began = server.clock.monotonic()
        server.clock.step(5.0)
        server.limit.answered(sent=began, now=server.clock.monotonic(), status=200)
        server.work(1.0)
    assert server.limits[-1] == MAXIMUM


def test_it_does_not_grow_while_it_is_not_made_use_of() -> None:
    server = Server()
    server.work(5.0, wanted=lambda: 2)
    assert max(server.limits) == INITIAL


_STATUSES = st.sampled_from([None, 200, 201, 404, 409, 429, 500, 503, 504])


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 60), _STATUSES), max_size=500))
def test_whatever_the_answers_it_keeps_its_bounds(answers: list[tuple[float, float, int | None]]) -> None:
    now = 0.0
    limit = ConcurrencyLimit(now)
    for later, seconds, status in answers:
        now += later
        limit.answered(sent=now - seconds, now=now, status=status)
        assert MINIMUM <= limit.limit <= MAXIMUM


@pytest.mark.guarantee("T-1")
async def test_burst_at_once_then_so_many_a_second() -> None:
    clock = VirtualClock()
    limiter = RateLimiter(qps=10, burst=3, clock=clock)
    passed: list[float] = []

    async def request() -> None:
        await limiter.wait()
        passed.append(round(clock.monotonic(), 6))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(request())
        await settle()
        assert passed == [0, 0, 0]
        await clock.advance(1)
    assert passed == [0, 0, 0, 0.1, 0.2, 0.3]


@pytest.mark.guarantee("T-1")
async def test_tokens_come_back_up_to_the_burst() -> None:
    clock = VirtualClock()
    limiter = RateLimiter(qps=10, burst=2, clock=clock)
    for _ in range(2):
        await limiter.wait()
    await clock.advance(3600)
    for _ in range(2):
        await limiter.wait()
    third = asyncio.create_task(limiter.wait())
    await clock.advance(0.05)
    assert not third.done()
    await clock.advance(0.05)
    assert third.done()


@pytest.mark.guarantee("T-1")
async def test_cancelled_request_gives_its_token_back() -> None:
    clock = VirtualClock()
    limiter = RateLimiter(qps=1, burst=1, clock=clock)
    await limiter.wait()
    cancelled = asyncio.create_task(limiter.wait())
    await settle()
    cancelled.cancel()
    await settle()
    following = asyncio.create_task(limiter.wait())
    await clock.advance(1)
    assert following.done()


@pytest.mark.parametrize(("qps", "burst"), [(0.0, 1), (-1.0, 1), (5.0, 0)])
def test_impossible_limits(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="positive qps and burst"):
        RateLimiter(qps=qps, burst=burst, clock=VirtualClock())


def test_each_key_has_its_own_bucket() -> None:
    clock = VirtualClock()
    limiter: KeyedRateLimiter[str] = KeyedRateLimiter(qps=0.5, burst=2, maxsize=100, clock=clock)
    assert [limiter.try_accept("a") for _ in range(3)] == [0, 0, 2]
    assert limiter.try_accept("b") == 0
    clock.step(1)
    assert limiter.try_accept("a") == 1
    clock.step(1)
    assert (limiter.try_accept("a"), limiter.try_accept("a")) == (0, 2)
    single = RateLimiter(qps=0.5, burst=1, clock=clock)
    assert (single.delay(), single.try_accept(), single.delay()) == (0, 0, 2)


def test_of_too_many_keys_the_one_that_came_longest_ago_starts_over() -> None:
    limiter: KeyedRateLimiter[str] = KeyedRateLimiter(qps=1, burst=1, maxsize=2, clock=VirtualClock())
    assert [limiter.try_accept(key) for key in ("a", "b", "a", "c")] == [0, 0, 1, 0]
    assert [limiter.try_accept(key) for key in ("a", "c", "b")] == [1, 1, 0]


def test_what_was_taken_for_nothing_can_be_given_back() -> None:
    limiter: KeyedRateLimiter[str] = KeyedRateLimiter(qps=0.5, burst=2, maxsize=1, clock=VirtualClock())
    assert [limiter.try_accept("a") for _ in range(3)] == [0, 0, 2]
    limiter.give_back("a")
    assert [limiter.try_accept("a") for _ in range(2)] == [0, 2]
    for _ in range(5):
        limiter.give_back("a")
    assert [limiter.try_accept("a") for _ in range(3)] == [0, 0, 2], "no more than the burst"
    limiter.give_back("forgotten")
