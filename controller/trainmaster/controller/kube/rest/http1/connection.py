"""A connection to the server, and the exchange of a request and its answer that it carries.

Guarantees:
- One exchange at a time. A connection whose exchange was given up before its end, or that got bytes which nobody had
  asked for, is never used again.
- Back-pressure: of an answer that its reader does not take, no more than `_UNREAD_AT_MOST` is read, and what one read
  brings.
- A long request goes out in pieces, between which others have their turn; an answer that comes before its end ends it.

TLS is between the socket and the exchange, in memory (`Tls`): the protocol of asyncio for it would cost more than all
the rest of a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final, Protocol, Self, cast

from trainmaster.controller.kube.rest.errors import StreamBroken
from trainmaster.controller.kube.rest.http1.parser import AnswerParser, MalformedAnswer
from trainmaster.controller.kube.rest.http1.tls import Tls
from trainmaster.controller.kube.rest.transport import Guard
from trainmaster.controller.kube.rest.transport_errors import reason_of

_UNREAD_AT_MOST: Final = 2**19
"""Bytes of a body that wait for their reader."""

_IN_ONE_PIECE: Final = 2**18
"""Bytes of a request that are written at once."""


class Owner(Protocol):
    """Whom a connection belongs to."""

    def opened(self, connection: Connection) -> None:
        """Take note of a connection that is open."""

    def given_back(self, connection: Connection, *, reusable: bool) -> None:
        """Take a connection back whose exchange is over."""

    def lost(self, connection: Connection) -> None:
        """Take note of a connection that is closed."""


class Connection(asyncio.Protocol):
    """One connection.

    Args:
        owner: Whom it belongs to.
        context: For TLS; None for a connection without it.
        server_hostname: The name that the certificate of the server has to be for.
    """

    def __init__(self, owner: Owner, *, context: ssl.SSLContext | None, server_hostname: str) -> None:
        self.context = context
        self.idle_since = 0.0
        self.loop = asyncio.get_running_loop()
        """Kept, because until Python 3.12 each question for it is a system call."""

        self._owner = owner
        self._tls = Tls(context, server_hostname) if context is not None else None
        self._socket: asyncio.Transport | None = None
        self._handshake: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._exchange: Exchange | None = None
        self._failure: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as we know."""
        return self._socket is not None and not self._socket.is_closing()

    async def shake_hands(self) -> None:
        """Get ready for the first request.

        Raises:
            ssl.SSLError: The server is not whom we trust, or does not trust us.
            OSError: The connection broke.
        """
        if self._tls is None:
            return
        if self._socket is None or self._socket.is_closing():
            raise ConnectionAbortedError("the connection was closed")
        self._handshake = self.loop.create_future()
        try:
            self._step_of_handshake(b"")
            await self._handshake
        finally:
            # Nobody waits any more: what becomes of the connection is no failure of the handshake.
            self._handshake = None

    async def exchange(self, request: bytes, *, where: str, bodiless: bool, guard: Guard | None = None) -> Exchange:
        """Send a request and return when the head of its answer has arrived, or why none will has been found out.

        Args:
            request: The request.
            where: What it is, for errors.
            bodiless: Whether its answer has no body, whatever its headers say.
            guard: Called before each piece of it is written; what it raises ends the exchange and the connection.

        Raises:
            OSError: The connection broke; also `ssl.SSLError`.
            EOFError: The server closed the connection.
            MalformedAnswer: It is no server of HTTP/1.1.
        """
        exchange = self._exchange = Exchange(self, where=where, bodiless=bodiless)
        try:
            if len(request) <= _IN_ONE_PIECE:
                self._write(request, guard)
            else:
                await self._write_in_pieces(request, exchange, guard)
            await exchange.head()
        except BaseException:
            exchange.close()
            raise
        return exchange

    def over(self, exchange: Exchange, *, reusable: bool) -> None:
        """End an exchange; what could not carry another one is closed."""
        if self._exchange is not exchange:
            return
        self._exchange = None
        if not reusable:
            self.abort()
        self._owner.given_back(self, reusable=reusable)

    def hold(self) -> None:
        """Read nothing more for now."""
        if self._socket is not None and self._socket.is_reading():
            self._socket.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._socket is not None and not self._socket.is_closing() and not self._socket.is_reading():
            self._socket.resume_reading()

    def close(self) -> None:
        """Take leave and close."""
        if self._socket is not None and not self._socket.is_closing():
            if self._tls is not None:
                self._socket.write(self._tls.farewell())
            self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        if self._socket is not None:
            self._socket.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP is ready."""
        self._socket = cast("asyncio.Transport", transport)
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._handshake is not None:
            self._step_of_handshake(data)
            return
        tls = self._tls
        if tls is not None:
            data = tls.decrypt(data)
            if (unsent := tls.unsent()) and self._socket is not None:
                self._socket.write(unsent)
        if data:
            if self._exchange is None:
                self.abort()  # nobody has asked for anything
            else:
                self._exchange.feed(data)
        if tls is not None and (tls.finished or tls.failure is not None):
            self._end(tls.failure)

    def eof_received(self) -> None:
        """The server has closed its side."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whichever side."""
        self._end(exc)
        self._socket = None
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """The server reads more slowly than we write."""
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """It has caught up."""
        writable, self._writable = self._writable, None
        _set(writable)

    def _end(self, error: Exception | None) -> None:
        """Take note that nothing more will come."""
        if self._failure is None:
            self._failure = error or EOFError("the server closed the connection")
        if self._exchange is not None:
            self._exchange.end(self._failure)
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(
                error if isinstance(error, OSError) else ConnectionResetError("the connection was closed")
            )
        self.resume_writing()
        if self._socket is not None and not self._socket.is_closing():
            self._socket.close()

    def _step_of_handshake(self, data: bytes) -> None:
        if self._tls is None or self._handshake is None or self._socket is None:
            return
        try:
            complete = self._tls.shake_hands(data)
        except ssl.SSLError as error:
            self._socket.write(self._tls.unsent())
            if not self._handshake.done():
                self._handshake.set_exception(error)
            self._socket.close()
            return
        self._socket.write(self._tls.unsent())
        if complete:
            _set(self._handshake)

    def _write(self, data: bytes, guard: Guard | None) -> None:
        if guard is not None:
            guard()
        if self._socket is None or self._socket.is_closing():
            raise self._failure or EOFError("the connection was closed")
        self._socket.write(self._tls.encrypt(data) if self._tls is not None else data)

    async def _write_in_pieces(self, request: bytes, exchange: Exchange, guard: Guard | None) -> None:
        exchange.is_sent = False
        for start in range(0, len(request), _IN_ONE_PIECE):
            if exchange.is_decided:
                return
            self._write(request[start : start + _IN_ONE_PIECE], guard)
            if self._writable is not None:
                await self._writable
            await asyncio.sleep(0)
        exchange.is_sent = True


class Exchange:
    """A request that was sent on a connection, and its answer as it arrives: a `Response`."""

    __slots__ = ("_connection", "_failure", "_loop", "_parser", "_pieces", "_unread", "_waiting", "_where", "is_sent")

    def __init__(self, connection: Connection, *, where: str, bodiless: bool) -> None:
        self._connection: Connection | None = connection
        """None when the exchange is over."""
        self._loop = connection.loop
        self._where = where
        self._parser = AnswerParser(bodiless=bodiless)
        self._pieces: list[bytes] = []
        self._unread = 0
        self._failure: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self.is_sent = True

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._parser.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, whatever the case of their names."""
        return self._parser.headers

    @property
    def is_decided(self) -> bool:
        """Whether the head of the answer is there, or none will come."""
        return self._parser.status >= 200 or self._failure is not None

    def chunks(self) -> Self:
        """Return the body as it arrives."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise StreamBroken(
                    f"{self._where}: the connection broke before the end of the answer: {reason_of(self._failure)}"
                ) from self._failure
            if self._connection is None:
                raise StopAsyncIteration
            await self._change()
        pieces, self._pieces = self._pieces, []
        if self._unread > _UNREAD_AT_MOST and self._connection is not None:
            self._connection.go_on()
        self._unread = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Give the answer up; its connection is dropped if the answer has not arrived to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pieces.clear()
            self._failure = ConnectionAbortedError("it was given up")
            connection.over(self, reusable=False)

    async def head(self) -> None:
        """Wait for the head of the answer; raises what came instead."""
        while self._parser.status < 200:
            if self._failure is not None:
                raise self._failure
            await self._change()

    def feed(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        parser = self._parser
        try:
            body = parser.feed(data)
        except MalformedAnswer as error:
            self._fail(error)
            return
        if body:
            self._pieces.append(body)
            self._unread += len(body)
        if parser.complete:
            self._finish(reusable=parser.reusable and self.is_sent)
        elif self._unread > _UNREAD_AT_MOST and self._connection is not None:
            self._connection.hold()
        if body or parser.complete or parser.status >= 200:
            _set(self._waiting)

    def end(self, failure: Exception) -> None:
        """Take note that nothing more will come."""
        self._parser.end()
        if self._parser.complete:
            self._finish(reusable=False)
            _set(self._waiting)
        else:
            self._fail(failure)

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._finish(reusable=False)
        _set(self._waiting)

    def _finish(self, *, reusable: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.over(self, reusable=reusable)

    def _change(self) -> asyncio.Future[None]:
        """Return what is done when there is something new."""
        self._waiting = self._loop.create_future()
        return self._waiting


def _set(waited_for: asyncio.Future[None] | None) -> None:
    if waited_for is not None and not waited_for.done():
        waited_for.set_result(None)
