"""Connections to a server or a proxy, and the exchanges of a request and its answer that they carry.

Guarantees:
- One exchange at a time. A connection whose exchange was given up before its end, or that got bytes that no request
  asked for, is never used again.
- An answer is taken apart by llhttp (RFC 9112). What is no answer of HTTP/1.1 raises `MalformedAnswer`, also one whose
  length is given in two ways. Interim answers (1xx) and trailers are dropped.
- The head and the trailers of an answer may have `HEAD_LIMIT` bytes, and what one read brings.
- Back-pressure: of an answer that its reader does not take, no more than three times `_PIECE` is read.
- A long request goes out in pieces, between which others have their turn; an answer that comes before its end ends it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol, Self, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

from trainmaster.controller.kube.rest.errors import StreamBroken, reason_of
from trainmaster.controller.kube.rest.http1.errors import cause_of
from trainmaster.controller.kube.rest.transport import Guard

HEAD_LIMIT: Final = 2**16
"""Bytes that bring nothing of a body; kube-apiserver sends less than one KiB."""

_PIECE: Final = 2**18
"""Bytes that are read or written at once."""


class MalformedAnswer(Exception):
    """What arrived is no answer of HTTP/1.1."""


BROKEN: Final = (OSError, EOFError, MalformedAnswer)
"""What an exchange fails with: the connection broke, the server closed it, or it is no server of HTTP/1.1."""


class Owner(Protocol):
    """The pool of connections that lead to the server."""

    def given_back(self, connection: Connection, *, reusable: bool) -> None:
        """Take a connection back whose exchange is over."""

    def lost(self, connection: Connection) -> None:
        """Take note of a connection that is closed."""


class Connection(asyncio.Protocol):
    """One connection; its TLS context, or that of its tunnel, is None if it is without TLS."""

    owner: Owner | None = None
    """None while it is being opened."""

    def __init__(self, *, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.channel: asyncio.Transport | None = None
        """TCP, or TLS on top of it."""
        self.reader = asyncio.StreamReader(limit=_PIECE)
        self.failure: BaseException | None = None
        """What ended it, behind all that the reader has."""
        self._exchange: Exchange | None = None
        self.unread = 0
        """Bytes that the reader has."""
        self._is_paused = False
        self._news = asyncio.Event()
        """Set by all that a long request may wait for."""

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as we know."""
        return self.channel is not None and not self.channel.is_closing()

    async def exchange(self, request: bytes, *, where: str, bodiless: bool, guard: Guard | None = None) -> Exchange:
        """Send a request and return when the head of its answer has arrived, or raise one of `BROKEN`.

        `guard` is called before each piece of it is written; what it raises ends the exchange and the connection.
        """
        exchange = self._exchange = Exchange(self, where=where, bodiless=bodiless)
        try:
            for start in range(0, len(request), _PIECE):
                if start and not await self._may_go_on(exchange):
                    break
                if guard is not None:
                    guard()
                if self.channel is not None and self.is_open:  # otherwise the reader knows why not
                    self.channel.write(request[start : start + _PIECE])
            while not exchange.status:
                await exchange.read()
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def _may_go_on(self, exchange: Exchange) -> bool:
        """Let others have their turn, wait for the server, and return whether it still wants the rest of a request."""
        await asyncio.sleep(0)
        while (self.unread or self._is_paused) and self.is_open and not exchange.status:
            if self.unread:
                exchange.is_reusable = False  # if this is the answer, the server may wait for the rest
                await exchange.read()
            else:
                self._news.clear()
                await self._news.wait()
        return self.is_open and not exchange.status

    def over(self, *, reusable: bool) -> None:
        """End the exchange."""
        self._exchange = None
        if self.owner is not None:
            self.owner.given_back(self, reusable=reusable)

    def abort(self) -> None:
        """Close at once."""
        if self.channel is not None:
            with suppress(AttributeError):  # Python 3.11.2, if asyncio has closed it twice
                self.channel.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self.channel = cast("asyncio.Transport", transport)
        self.reader.set_transport(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._exchange is None or not self.is_open:
            self.abort()  # no request asked for them
        else:
            self.reader.feed_data(data)
            self.unread += len(data)
            self._news.set()

    def eof_received(self) -> None:
        """The server has closed its side."""
        self.reader.feed_eof()
        self.abort()  # TLS would still be waiting for a farewell

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whichever side."""
        self.channel, self.failure = None, exc and cause_of(exc)
        self.reader.feed_eof()
        self._news.set()
        if self.owner is not None:
            self.owner.lost(self)

    def pause_writing(self) -> None:
        """The server reads more slowly than we write."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_paused = False
        self._news.set()


class Exchange:
    """A request that was sent on a connection, and its answer as it arrives: a `Response`."""

    def __init__(self, connection: Connection, *, where: str, bodiless: bool) -> None:
        self.status = 0
        """The HTTP status; zero until the head of the answer has arrived."""
        self.reason = ""
        """What the server calls the status."""
        self.is_reusable = True
        """Whether the connection can carry another exchange after this one, if there is no surplus."""
        self.has_surplus = False
        """Whether bytes came behind the answer."""
        self._connection: Connection | None = connection
        """None when the exchange is over."""
        self._parser = HttpResponseParser(self)
        """Deleted when the exchange is over: the two refer to each other."""
        self._where = where
        self._bodiless = bodiless
        self._complete = False
        self._fields: list[tuple[bytes, bytes]] = []
        self._pieces: list[bytes] = []
        self._overhead = 0
        """Bytes since the last ones of the body."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, whatever the case of their names; made when they are asked for, which is seldom."""
        return CIMultiDict(
            (str(name, "utf-8", "replace"), str(value, "utf-8", "replace").rstrip(" \t"))
            for name, value in self._fields
        )

    def chunks(self) -> Self:
        """Return the body as it arrives."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._complete:
                raise StopAsyncIteration
            try:
                await self.read()
            except BROKEN as error:
                self.close()
                raise StreamBroken(
                    f"{self._where}: the connection broke before the end of the answer: {reason_of(error)}"
                ) from error
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self, *, reusable: bool = False) -> None:
        """End the exchange; before the end of the answer that gives it up, and its connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            del self._parser
            connection.over(reusable=reusable)

    async def read(self) -> None:
        """Wait for more of the answer, and take it apart."""
        connection = self._connection
        data = await connection.reader.read(_PIECE) if connection is not None else b""
        if connection is None or self._connection is None:
            raise ConnectionAbortedError("it was given up")
        connection.unread -= len(data)
        if not data:
            # That is the end of an answer without a length.
            lengths = {"content-length", "transfer-encoding"} & {name.lower() for name in self.headers}
            if connection.failure is not None or not self.status or lengths:
                raise connection.failure or EOFError("the server closed the connection")
            self._complete, self.is_reusable = True, False
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.has_surplus = True
            if not self._complete:
                begin = "" if self.status else f": it begins with {data[:20]!r}"
                raise MalformedAnswer(f"the answer is not HTTP/1.1 ({error.__context__ or error}){begin}") from error
        self._overhead = 0 if self._pieces else self._overhead + len(data)
        if self._complete:
            self.has_surplus |= connection.unread > 0
            self.close(reusable=self.is_reusable and not self.has_surplus)
        elif self._overhead > HEAD_LIMIT:
            raise MalformedAnswer(f"the headers of the answer exceed {HEAD_LIMIT} bytes")

    def on_message_begin(self) -> None:
        """An answer begins; a second one to the same request is surplus."""
        self.has_surplus = self._complete

    def on_status(self, status: bytes) -> None:
        """The words of the status line have arrived."""
        if not self.status:
            self.reason += status.decode("utf-8", "replace")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has arrived, or a trailer."""
        if not self.status:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head has arrived."""
        if self.status:
            return
        status = self._parser.get_status_code()
        if status == 101:
            raise MalformedAnswer("it is in another protocol, which was not asked for")
        if status < 100:
            raise MalformedAnswer(f"there is no status {status}")
        if status < 200:
            self.reason = ""
            self._fields.clear()
            return
        codings = b",".join([value for name, value in self._fields if name.lower() == b"transfer-encoding"])
        if codings and (codings.lower().rstrip(b" ") != b"chunked" or self._parser.get_http_version() == "1.0"):
            raise MalformedAnswer("its length is given by a transfer coding that was not asked for")
        self.status, self._complete = status, self._bodiless
        self.is_reusable &= self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """A part of the body has arrived."""
        if self._complete:
            self.has_surplus = True
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The answer has arrived to its end, or an interim one."""
        self._complete = self.status > 0
