"""The connections of one kind: how many there are, who waits for one, and which are used again.

Guarantees:
- T-4: no more than `limit` exchanges at a time; whoever comes beyond waits, and the oldest is next.
- T-5: a connection without work is kept for `IDLE_AT_MOST`, and the one that was used last is used first: what a burst
  has opened goes away after it.
- An idle connection is handed out only if it is open as far as we know and has the present TLS context.
- K-10: open connections are counted.
- Closing closes every connection at once; one that is just being opened is closed when it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from trainmaster.controller.kube.clock import Clock, Timer
from trainmaster.controller.kube.rest.errors import NotConnected
from trainmaster.controller.kube.rest.http1.connection import Connection
from trainmaster.controller.kube.rest.http1.dialing import Dialer
from trainmaster.controller.kube.rest.transport import IDLE_AT_MOST
from trainmaster.metrics import rest_client as metrics

_TURNS_TO_CLOSE: Final = 20
"""More turns of the event loop than a connection takes to notice that it was aborted."""


class Pool:
    """Connections to one server.

    Args:
        name: The pool, in the metric.
        dialer: Opens them.
        clock: The time.
        limit: How many exchanges there may be at a time; without it as many as are asked for, each on a connection of
            its own.
    """

    def __init__(self, name: str, dialer: Dialer, *, clock: Clock, limit: int | None) -> None:
        self._dialer = dialer
        self._clock = clock
        self._limit = limit
        self._gauge = metrics.CONNECTIONS.labels(name)
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        """The one that was used last is the last."""
        self._in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweeping: Timer | None = None
        self._closed = False

    async def take(self, where: str) -> Connection:
        """Return a connection for the request that `where` names; it comes back by `given_back`.

        Raises:
            NotConnected: There is none to be had.
        """
        if self._limit is not None and self._in_use >= self._limit:
            await self._turn()
        else:
            self._in_use += 1
        connection = self._take_idle()
        if connection is not None:
            return connection
        if self._closed:
            self._end_turn()
            raise NotConnected(f"{where}: the client was closed")
        try:
            return await self._dialer.dial(self, where)
        except BaseException:
            self._end_turn()
            raise

    async def close(self) -> None:
        """Close every connection, and turn away who waits for one."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._idle.clear()
        while self._waiting:
            self._end_turn()
        for connection in list(self._open):
            connection.abort()
        for _ in range(_TURNS_TO_CLOSE):
            if not self._open:
                break
            await asyncio.sleep(0)

    def opened(self, connection: Connection) -> None:
        """Take note of a connection that is open."""
        self._gauge.inc()
        self._open.add(connection)
        if self._closed:
            connection.abort()

    def given_back(self, connection: Connection, *, reusable: bool) -> None:
        """Take a connection back whose exchange is over."""
        if reusable and self._limit is not None and not self._closed:
            connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
            if self._sweeping is None:
                self._sweeping = self._clock.call_at(connection.idle_since + IDLE_AT_MOST, self._sweep)
        elif reusable:
            connection.close()
        self._end_turn()

    def lost(self, connection: Connection) -> None:
        """Take note of a connection that is closed."""
        self._gauge.dec()
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            is_ours = connection.is_open and connection.context is self._dialer.context
            if is_ours and self._clock.monotonic() - connection.idle_since < IDLE_AT_MOST:
                return connection
            connection.close()
        return None

    def _sweep(self) -> None:
        """Close what was idle for too long."""
        self._sweeping = None
        kept = self._clock.monotonic() - IDLE_AT_MOST
        old = [connection for connection in self._idle if connection.idle_since <= kept]
        del self._idle[: len(old)]
        for connection in old:
            connection.close()
        if self._idle:
            self._sweeping = self._clock.call_at(self._idle[0].idle_since + IDLE_AT_MOST, self._sweep)

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled():
                self._end_turn()
            raise

    def _end_turn(self) -> None:
        """Let the one go on who has waited for the longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_use -= 1
