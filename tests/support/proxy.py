"""A TCP proxy that does to connections what networks do to them. TLS passes through, so that clients need no change.

- `delay`: bytes arrive later, in order;
- `reset_all`: every open connection is reset;
- `black_hole`: connections are accepted and nothing is said, bytes of open ones vanish. A connection that lost bytes
  stays silent when the black hole has ended, as behind a firewall that forgot it: only a client that gives up on its
  own gets out of it. Connections on which nothing was sent meanwhile go on;
- `cut`: open connections are reset, new ones refused, on the same port that works again afterwards.

Delays and black holes may concern one direction only: where answers alone vanish, the server has done what it was told.
"""

import asyncio
import contextlib
import enum
import functools
import socket
import struct
from typing import Any, Self

from support.oddrequests import abort

_CHUNK = 2**16
_CHUNKS_IN_FLIGHT = 64
"""How much one direction of a connection holds back while it is delayed; then the sender has to wait."""

_MORE = b"more"
"""Any bytes: an empty read is the end of a stream."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Direction(enum.Enum):
    """Which way bytes go."""

    TO_SERVER = enum.auto()
    TO_CLIENT = enum.auto()


_BOTH = tuple(Direction)


class FaultProxy:
    """Passes connections on to one server; an async context manager."""

    def __init__(self, target: tuple[str, int], reservation: socket.socket) -> None:
        self._target = target
        self._reservation = reservation
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._open: set[_Connection] = set()
        self._delays = dict.fromkeys(_BOTH, 0.0)
        self._dark: set[Direction] = set()
        self.port: int = reservation.getsockname()[1]
        self.accepted = 0
        """How many connections there were so far."""

    @classmethod
    async def start(cls, target_host: str, target_port: int) -> Self:
        """Listen on a free port of the loopback interface."""
        # This socket never listens: it keeps the port ours while connections to it are refused.
        proxy = cls((target_host, target_port), _bound(0))
        proxy._listen()
        return proxy

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Let bytes travel for this long from now on; zero ends it."""
        for each in _chosen(direction):
            self._delays[each] = seconds

    def reset_all(self) -> None:
        """Reset every open connection, at both ends."""
        for connection in list(self._open):
            connection.reset()

    def black_hole(self, on: bool, direction: Direction | None = None) -> None:
        """Let bytes vanish, or no longer."""
        for each in _chosen(direction):
            (self._dark.add if on else self._dark.discard)(each)

    def cut(self, on: bool) -> None:
        """Reset what is open and refuse what comes, or accept it again."""
        if on:
            self._deafen()
            self.reset_all()
        elif self._listener is None:
            self._listen()

    def heal(self) -> None:
        """End every fault; connections that lost bytes stay silent."""
        self.delay(0)
        self.black_hole(False)
        self.cut(False)

    async def close(self) -> None:
        """Refuse and reset everything, for good."""
        self.cut(True)
        while self._open:
            await asyncio.wait([connection.task for connection in self._open])
        self._reservation.close()

    def is_dark(self, direction: Direction) -> bool:
        """Whether bytes vanish on their way at the moment."""
        return direction in self._dark

    def latency(self, direction: Direction) -> float:
        """How many seconds bytes travel at the moment."""
        return self._delays[direction]

    def _listen(self) -> None:
        self._listener = _bound(self.port)
        self._listener.listen(128)
        self._accepting = asyncio.create_task(self._accept(self._listener))

    def _deafen(self) -> None:
        if self._listener is not None and self._accepting is not None:
            # Closed at once, not when the task gets its turn: from now on connections are refused.
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._accepting.cancel()
            self._listener = self._accepting = None

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            accepted, _ = await loop.sock_accept(listener)
            self.accepted += 1
            connection = _Connection(self, self._target, accepted)
            self._open.add(connection)
            connection.task.add_done_callback(functools.partial(self._ended, connection))

    def _ended(self, connection: "_Connection", _task: asyncio.Task[None]) -> None:
        self._open.discard(connection)


class _Connection:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, target: tuple[str, int], accepted: socket.socket) -> None:
        self._proxy = proxy
        self._target = target
        self._accepted = accepted
        self._writers: list[asyncio.StreamWriter] = []
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(self._close_unused)

    def reset(self) -> None:
        """Reset both ends."""
        for writer in self._writers:
            with contextlib.suppress(OSError):  # closed a moment ago
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            abort(writer)
        self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._pass_on()
        except* OSError:
            pass  # either end broke the connection, so the other one loses it as well
        finally:
            for writer in self._writers:
                writer.close()

    def _close_unused(self, _task: asyncio.Task[None]) -> None:
        # It may have been reset before it was looked at.
        if not self._writers:
            self._accepted.close()

    async def _pass_on(self) -> None:
        from_client, to_client = await self._opened(sock=self._accepted)
        if self._proxy.is_dark(Direction.TO_SERVER):
            # The server never hears of it, whatever happens later.
            while await from_client.read(_CHUNK):
                pass
            return
        host, port = self._target
        from_server, to_server = await self._opened(host=host, port=port)
        async with asyncio.TaskGroup() as group:
            directions = [
                group.create_task(self._carry(from_client, to_server, Direction.TO_SERVER)),
                group.create_task(self._carry(from_server, to_client, Direction.TO_CLIENT)),
            ]
            # TLS knows no connection that is open one way: when either end is done, so is the other.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in directions:
                direction.cancel()

    async def _opened(self, **peer: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(**peer)
        self._writers.append(writer)
        return reader, writer

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        """Carry bytes one way, until their sender ends."""
        loop = asyncio.get_running_loop()
        travelling: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_IN_FLIGHT)

        async def deliver() -> None:
            lost, data = False, _MORE
            while data:
                due, data = await travelling.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                lost = lost or self._proxy.is_dark(direction)
                if not lost:
                    writer.write(data)
                    await writer.drain()
            if lost and direction is Direction.TO_CLIENT:
                # That the server closed is lost, too: the client has to find out by itself.
                await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            data = _MORE
            while data:
                data = await reader.read(_CHUNK)
                await travelling.put((loop.time() + self._proxy.latency(direction), data))


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    bound.setblocking(False)
    return bound


def _chosen(direction: Direction | None) -> tuple[Direction, ...]:
    return _BOTH if direction is None else (direction,)
