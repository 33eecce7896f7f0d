"""An API server that says exactly what a test tells it to, byte by byte."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
import pytest
from aiohttp import web
from support.commands import eventually
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig

Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def what(self) -> str:
        if self.method != "GET":
            return self.method
        if "sendInitialEvents" in self.query:
            return "stream"
        return "watch" if "watch" in self.query else "list"


@dataclass(slots=True)
class FakeServer:
    """Answers come from one queue for each sort of request; an empty queue means the default of that sort."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    answers: dict[str, deque[Answer]] = field(default_factory=dict)
    open_streams: int = 0

    def on(self, what: str, *answers: Answer) -> None:
        self.answers.setdefault(what, deque()).extend(answers)

    def requests(self, what: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.what == what]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        self.seen.append(seen)
        queue = self.answers.get(seen.what)
        if queue:
            return await queue.popleft()(request)
        if seen.what == "stream":
            return await self.status(400, "BadRequest", "no streaming lists here")(request)
        if seen.what == "watch":
            return await self.stream(then="hang")(request)
        return await self.status(500, "InternalError", f"no answer left for {seen.what}")(request)

    @staticmethod
    def reply(status: int, body: Any, **headers: str) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            raw = body if isinstance(body, bytes) else orjson.dumps(body)
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, body=raw, headers=names, content_type="application/json")

        return answer

    @classmethod
    def status(cls, code: int, reason: str, message: str = "", **headers: str) -> Answer:
        return cls.reply(code, {"kind": "Status", "code": code, "reason": reason, "message": message}, **headers)

    def stream(
        self, *frames: Any, then: str = "close", before: Callable[[], object] | None = None, status: int = 200
    ) -> Answer:
        """Send frames (objects or raw bytes), then close, reset or hang."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(status=status)
            response.enable_chunked_encoding()
            await response.prepare(request)
            self.open_streams += 1
            try:
                for frame in frames:
                    await response.write(frame if isinstance(frame, bytes) else orjson.dumps(frame) + b"\n")
                if before is not None:
                    before()
                if then == "hang":
                    await asyncio.sleep(3600)
                if then == "reset":
                    assert request.transport is not None
                    request.transport.abort()
            finally:
                self.open_streams -= 1
            return response

        return answer


class QuickClock(VirtualClock):
    """Virtual time, in which sleeps are recorded and end at once; other timers wait for `step`."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept.append(seconds)
            self.skip(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{tail:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http{'s' if context else ''}://{host}:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with serving() as fake:
        yield fake


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[FakeServer]]]:
    """Start servers, with TLS or on a port that is known before."""
    async with AsyncExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_async_context(serving(*arguments, **options))


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
async def client(server: FakeServer, clock: QuickClock) -> AsyncIterator[KubeClient]:
    async with KubeClient(
        RestConfig(server=server.url), user_agent="test", timeout=5.0, inactivity_limit=5.0, clock=clock
    ) as opened:
        yield opened


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return eventually
