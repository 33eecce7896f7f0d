"""A connection that is lost before, while or after who waits for it is cancelled: no failure is left to nobody."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.http1.connection import Connection

CONTEXT = ssl.create_default_context()
STEPS = ("cancel", "lose", "reset", "garbage", "turn", "resume")


def connected(*, tls: bool, **behaviour: Any) -> Connection:
    socket = MagicMock(asyncio.Transport)
    socket.configure_mock(**{"is_closing.return_value": False, **behaviour})
    connection = Connection(MagicMock(), context=CONTEXT if tls else None, server_hostname="server")
    connection.connection_made(socket)
    return connection


async def complaints_of(connection: Connection, waiting: Awaitable[Any], steps: list[str]) -> list[str]:
    """Return what the event loop has to complain about after these steps."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    take: dict[str, Callable[[], object]] = {
        "cancel": task.cancel,
        "lose": lambda: connection.connection_lost(None),
        "reset": lambda: connection.connection_lost(ConnectionResetError("reset")),
        "garbage": lambda: connection.data_received(b"garbage"),
        "resume": connection.resume_writing,
    }
    for step in steps:
        if step == "turn":
            await asyncio.sleep(0)
        else:
            take[step]()
    connection.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert task.done()
    _ = task.cancelled() or task.exception()
    del task, take, waiting
    gc.collect(1)  # what this has made is young; all of a process that has run other tests takes a second each time
    await asyncio.sleep(0)
    return complaints


@given(steps=st.lists(st.sampled_from(STEPS), max_size=6))
def test_no_failure_of_a_handshake_is_left_to_nobody(steps: list[str]) -> None:
    async def run() -> list[str]:
        connection = connected(tls=True)
        return await complaints_of(connection, connection.shake_hands(), steps)

    assert asyncio.run(run()) == []


@given(steps=st.lists(st.sampled_from(STEPS), max_size=6), size=st.sampled_from([1, 2**20]))
def test_no_failure_of_an_exchange_is_left_to_nobody(steps: list[str], size: int) -> None:
    async def run() -> list[str]:
        connection = connected(tls=False)
        connection.pause_writing()
        return await complaints_of(connection, connection.exchange(bytes(size), where="x", bodiless=False), steps)

    assert asyncio.run(run()) == []


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ({"is_closing.return_value": True}, ConnectionAbortedError),
        ({"write.side_effect": RuntimeError("the event loop does not write")}, RuntimeError),
    ],
)
async def test_nobody_waits_for_a_handshake_that_has_not_begun(
    behaviour: dict[str, Any], error: type[Exception]
) -> None:
    connection = connected(tls=True, **behaviour)
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    with pytest.raises(error):
        await connection.shake_hands()
    connection.connection_lost(None)
    del connection
    gc.collect(1)
    await asyncio.sleep(0)
    assert complaints == []
