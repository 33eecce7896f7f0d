"""What clients see of faults, over HTTPS, and the control API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from support.commands import TIMEOUT, eventually
from support.devcluster.envtest import Environment, start_environment
from support.devcluster.faults import Delay, FaultRequest, Faults, Refuse, Reset, StallWatch

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.server import ServerTiming

_LIST = "/api/v1/namespaces/default/configmaps"
_CONTROL = "/trainmaster.dev/faults"


async def _post(server: Environment, name: str = "a", **headers: str) -> int:
    async with (
        server.session() as session,
        session.post(_LIST, json={"metadata": {"name": name}}, headers=headers) as response,
    ):
        return response.status


async def _create(server: Environment, name: str) -> None:
    await server.api.create(CONFIGMAPS, {"metadata": {"name": name}}, namespace="default")


def _names(server: Environment) -> list[str]:
    return [record.metadata["name"] for record in server.api.list(CONFIGMAPS, "default")[0]]


@asynccontextmanager
async def _watch(server: Environment, **query: str) -> AsyncIterator[Any]:
    async with server.session() as session, session.get(_LIST, params={"watch": "true", **query}) as response:
        assert response.status == 200
        yield response.content


async def _next(stream: Any) -> tuple[str, Any]:
    event = orjson.loads(await stream.readline())
    return event["type"], event["object"]


# What clients see


async def test_a_delayed_request_is_carried_out_later(devcluster_server: Environment) -> None:
    with devcluster_server.faults.add(Delay(3600), verb="create") as fault:
        waiting = asyncio.create_task(_post(devcluster_server))
        await eventually(lambda: fault.count == 1)
        assert (waiting.done(), _names(devcluster_server)) == (False, [])
        waiting.cancel()
        await asyncio.wait([waiting])
    with devcluster_server.faults.add(Delay(0.01), verb="create"):
        assert await _post(devcluster_server) == 201


@pytest.mark.parametrize(("code", "reason"), [(409, "Conflict"), (503, "ServiceUnavailable")])
async def test_a_refused_request_is_not_carried_out(devcluster_server: Environment, code: int, reason: str) -> None:
    devcluster_server.faults.add(Refuse(code, retry_after=3), resource="configmaps", times=1)
    async with (
        devcluster_server.session() as session,
        session.post(_LIST, json={"metadata": {"name": "a"}}) as response,
    ):
        status = await response.json()
        assert (response.status, status["code"], status["reason"]) == (code, code, reason)
        assert (response.headers["Retry-After"], status["details"]["retryAfterSeconds"]) == ("3", 3)
    assert _names(devcluster_server) == []
    assert await _post(devcluster_server) == 201


async def test_a_connection_can_be_reset_before_the_request_is_carried_out(devcluster_server: Environment) -> None:
    devcluster_server.faults.add(Reset("before"), times=1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await _post(devcluster_server)
    assert _names(devcluster_server) == []
    assert await _post(devcluster_server) == 201


async def test_an_answer_can_be_lost(devcluster_server: Environment) -> None:
    """The hardest case for a client: the write was done, but nobody told it."""
    devcluster_server.faults.add(Reset("after"), verb="create", times=1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await _post(devcluster_server)
    assert _names(devcluster_server) == ["a"]
    assert await _post(devcluster_server) == 409


async def test_faults_add_up_until_one_ends_the_request(devcluster_server: Environment) -> None:
    delay = devcluster_server.faults.add(Delay(0))
    refusal = devcluster_server.faults.add(Refuse(503))
    assert await _post(devcluster_server) == 503
    assert (delay.count, refusal.count) == (1, 1)


async def test_requests_that_are_not_let_in_meet_no_fault(devcluster_server: Environment) -> None:
    fault = devcluster_server.faults.add(Refuse(500))
    async with devcluster_server.session(headers={}) as session, session.get(_LIST) as response:
        assert response.status == 401
    assert fault.seen == 0


async def test_a_stalled_watch_says_nothing_until_the_fault_is_removed(tmp_path: Path) -> None:
    """Neither events nor bookmarks, and not the orderly end at its timeout either."""
    timing = ServerTiming(bookmark_interval=0.01)
    async with start_environment(tmp_path, timing=timing) as server:
        await _create(server, "a")
        fault = server.faults.add(StallWatch(after=1))
        async with _watch(server, allowWatchBookmarks="true", timeoutSeconds="1") as stream:
            assert (await _next(stream))[0] == "ADDED"
            await _create(server, "b")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.3):
                    await stream.readline()
            fault.remove()
            with pytest.raises(aiohttp.ClientError):
                await stream.readline()


async def test_a_server_stops_although_a_watch_is_stalled(tmp_path: Path) -> None:
    async with start_environment(tmp_path) as server:
        server.faults.add(StallWatch())
        async with _watch(server) as stream:
            async with asyncio.timeout(TIMEOUT):
                await server.server.stop()
            with pytest.raises(aiohttp.ClientError):
                await stream.readline()


# The control API


@pytest.fixture
async def controlled(tmp_path: Path) -> AsyncIterator[Environment]:
    async with start_environment(tmp_path, fault_control=True, rbac=True) as served:
        yield served


async def test_faults_can_be_programmed_over_http(controlled: Environment) -> None:
    wanted = {"rule": {"verb": "create", "times": 1}, "action": {"type": "refuse", "code": 429, "retry_after": 2}}
    async with controlled.session() as session:
        for remove, answers in ((False, [429, 201]), (True, [409])):
            async with session.post(_CONTROL, json=wanted) as response:
                assert response.status == 201
            if remove:
                await session.delete(_CONTROL)
            assert [await _post(controlled) for _ in answers] == answers


async def test_only_administrators_may_inject_faults(controlled: Environment) -> None:
    async with controlled.session(headers={}) as session, session.delete(_CONTROL) as response:
        assert response.status == 401
    impersonating = {"Authorization": f"Bearer {controlled.token}", "Impersonate-User": "somebody"}
    async with controlled.session(headers=impersonating) as session:
        for method in ("POST", "DELETE"):
            async with session.request(method, _CONTROL) as response:
                assert response.status == 403


async def test_the_control_api_is_not_there_unless_it_was_asked_for(devcluster_server: Environment) -> None:
    async with devcluster_server.session() as session, session.delete(_CONTROL) as response:
        assert response.status == 404


def _request(**parts: str) -> FaultRequest:
    usual = {
        "verb": "get",
        "group": "",
        "resource": "configmaps",
        "subresource": "",
        "namespace": "default",
        "name": "a",
        "user_agent": "kubectl/v1.33",
    }
    return FaultRequest(**{**usual, **parts})


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        ({}, True),
        ({"verb": "list,get"}, True),
        ({"verb": "list"}, False),
        ({"resource": "configmaps", "group": ""}, True),
        ({"group": "batch"}, False),
        ({"resource": "secrets"}, False),
        ({"subresource": "status"}, False),
        ({"namespace": "default", "name": "a"}, True),
        ({"namespace": "other"}, False),
        ({"name": "b"}, False),
        ({"user_agent": "kubectl"}, True),
        ({"user_agent": "trainmaster"}, False),
    ],
)
def test_rules_say_which_requests_are_struck(rule: dict[str, str], struck: bool) -> None:
    faults = Faults()
    fault = faults.add(Delay(1), **rule)
    assert bool(faults.striking(_request())) is struck
    assert (fault.seen, fault.count) == (struck, struck)


def test_one_request_or_the_first_ones_can_be_chosen() -> None:
    faults = Faults()
    second, first_two = faults.add(Delay(1), nth=2), faults.add(Delay(2), times=2)
    struck = [faults.striking(_request()) for _ in range(4)]
    assert struck == [[first_two], [second, first_two], [], []]
    assert (second.seen, second.count, first_two.count) == (4, 1, 2)
