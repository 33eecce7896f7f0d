"""The webhook server: limits, failures, its life."""

import asyncio
import contextlib
import gzip
import io
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Never

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.commands import eventually
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Tls, Webhook
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.server import server as http_server
from trainmaster.controller.server.server import AddressInUse
from trainmaster.controller.webhooks import WebhookServer, Workers
from trainmaster.controller.webhooks import workers as workers_module
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import ALLOWED, AdmissionRequest, AdmissionResponse
from trainmaster.controller.webhooks.server import BODY_TIMEOUT, REQUEST_TIMEOUT, REVIEW_TIMEOUT, review
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u-1", "operation": "CREATE", "object": {"kind": "TrainJob"}},
}


class Server:
    """A running server and a client of it."""

    def __init__(
        self, server: WebhookServer, session: aiohttp.ClientSession, port: int, task: asyncio.Task[Never]
    ) -> None:
        self.server = server
        self.session = session
        self.port = port
        self.task = task

    async def call(self, path: str, body: Any = None, *, kind: str = "application/json", **more: Any) -> JsonObject:
        data = io.BytesIO(body if isinstance(body, bytes) else orjson.dumps(REVIEW if body is None else body))
        headers = {"Content-Type": kind, **more.pop("headers", {})}
        async with self.session.post(path, data=data, headers=headers, **more) as response:
            assert response.status == 200
            assert response.content_type == "application/json"
            review: JsonObject = orjson.loads(await response.read())
            return review["response"]  # type: ignore[no-any-return]


async def at_once() -> None:
    """Nothing to wait for."""


@asynccontextmanager
async def running(directory: Path, handlers: Mapping[str, Handler], **options: Any) -> AsyncIterator[Server]:
    """Serve with a certificate of an authority that the client trusts."""
    authority, port = Authority(), free_port()
    authority.mount(directory)
    settings = Webhook(host="127.0.0.1", port=port, cert_dir=str(directory))
    workers, clock = options.get("workers") or Workers(), options.get("clock") or SystemClock()
    server = WebhookServer(handlers, workers, settings, Tls(), clock=clock)
    context = ssl.create_default_context(cadata=authority.pem.decode())
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with (
        aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session,
        until_cancelled(server, at_once) as task,
    ):
        await eventually(lambda: server.http.readiness() is None or task.done())
        yield Server(server, session, port, task)


@asynccontextmanager
async def until_cancelled(server: WebhookServer, filled: Callable[[], Any]) -> AsyncIterator[asyncio.Task[Never]]:
    """Run a server while the block runs."""
    task = asyncio.create_task(server.run(filled))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def allow(_: AdmissionRequest) -> AdmissionResponse:
    return ALLOWED


async def crash(_: AdmissionRequest) -> AdmissionResponse:
    raise KeyError("a secret")


def count(name: str, **labels: str) -> float:
    return value_of(name, labels) or 0.0


@pytest.mark.guarantee("H-1")
async def test_bodies_that_cannot_be_read_are_answered_with_a_review(tmp_path: Path) -> None:
    """What is packed is not unpacked: it may be a thousand times as large."""
    async with running(tmp_path / "c", {"/a": allow}) as server:
        big = {**REVIEW, "padding": "x" * (6 * 1024 * 1024)}
        assert (await server.call("/a", big))["allowed"] is True
        too_big = {**REVIEW, "padding": "x" * (7 * 1024 * 1024)}
        response = await server.call("/a", too_big)
        assert response["status"] == {"code": 413, "message": "request entity is too large; limit is 7340032 bytes"}
        packed = gzip.compress(orjson.dumps(too_big))
        response = await server.call("/a", packed, headers={"Content-Encoding": "gzip"})
        assert response["status"]["code"] == 400
        assert "the request body is no JSON" in response["status"]["message"]
        wrong = await server.call("/a", kind="text/plain")
        assert wrong["status"] == {"code": 400, "message": "contentType=text/plain, expected application/json"}
        empty = await server.call("/a", b"")
        assert empty["status"] == {"code": 400, "message": "request body is empty"}
        odd = await server.call("/a", b"{")
        assert (odd["uid"], odd["allowed"], odd["status"]["code"]) == ("", False, 400)
        async with server.session.get("/a") as answer:
            assert answer.status == 405


@pytest.mark.guarantee("H-2", "H-4")
async def test_a_crash_is_a_response_with_the_uid_and_is_counted(tmp_path: Path) -> None:
    before = count("controller_runtime_webhook_panics_total")
    async with running(tmp_path / "c", {"/crash": crash}) as server:
        response = await server.call("/crash")
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("u-1", False, 500)
    assert "a secret" not in response["status"]["message"]
    assert count("controller_runtime_webhook_panics_total") == before + 1


@pytest.mark.guarantee("K-9")
async def test_every_series_is_there_from_the_start_and_counts(tmp_path: Path) -> None:
    path = "/k9"
    async with running(tmp_path / "c", {path: allow}) as server:
        assert count("controller_runtime_webhook_requests_in_flight", webhook=path) == 0
        for code in ("200", "500"):
            labels = {"webhook": path, "code": code}
            assert value_of("controller_runtime_webhook_requests_total", labels) == 0
        for name in (
            "controller_runtime_conversion_webhook_panics_total",
            "certwatcher_read_certificate_total",
            "certwatcher_read_certificate_errors_total",
        ):
            assert value_of(name) is not None
        await server.call(path)
    assert count("controller_runtime_webhook_requests_total", webhook=path, code="200") == 1
    assert count("controller_runtime_webhook_latency_seconds_count", webhook=path) == 1


@pytest.mark.guarantee("H-10")
async def test_rotation_under_load_loses_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REFRESH_INTERVAL", 0.01)
    directory = tmp_path / "c"
    new = Authority("new")
    async with running(directory, {"/a": allow}) as server:
        calling = asyncio.create_task(_call_for_ever(server.port))
        new.mount(directory)
        context = ssl.create_default_context(cadata=new.pem.decode())

        async def is_taken_up() -> bool:
            with contextlib.suppress(ssl.SSLCertVerificationError):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
                writer.close()
                await writer.wait_closed()
                return True
            return False

        await eventually(is_taken_up)
        assert not calling.done(), calling
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling


async def _call_for_ever(port: int) -> None:
    """Take a new connection each time, whoever has signed the certificate."""
    connector = aiohttp.TCPConnector(ssl=unverified(), force_close=True)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
        while True:
            async with session.post("/a", json=REVIEW) as response:
                assert (await response.json())["response"]["allowed"]


@pytest.mark.guarantee("H-13")
async def test_without_a_certificate_the_server_says_so_and_goes_on_when_there_is_one(tmp_path: Path) -> None:
    """And nothing is served before the caches are filled."""
    clock, filled = VirtualClock(), asyncio.Event()
    settings = Webhook(host="127.0.0.1", port=free_port(), cert_dir=str(tmp_path))
    server = WebhookServer({"/a": allow}, Workers(), settings, Tls(), clock=clock)
    async with until_cancelled(server, filled.wait):
        await clock.advance(0)
        assert server.http.readiness() == "the webhooks are not served yet"
        filled.set()
        await clock.advance(30)
        assert server.http.readiness() == (
            "the webhooks are not served, for want of a certificate: "
            f"cannot read {tmp_path / 'tls.crt'}: No such file or directory"
        )
        Authority().mount(tmp_path)
        await clock.advance(10)
        await eventually(lambda: server.http.readiness() is None)
        other = WebhookServer({}, Workers(), settings, Tls(), clock=clock)
        with pytest.raises(
            AddressInUse, match=rf"cannot serve webhooks on 127\.0\.0\.1:{settings.port}: .*webhook\.port"
        ):
            await other.run(at_once)
    assert server.http.readiness() is not None


@pytest.mark.guarantee("H-14")
async def test_what_has_been_requested_is_answered_at_the_end(tmp_path: Path) -> None:
    async with running(tmp_path / "c", {"/a": allow}) as server:
        body = orjson.dumps(REVIEW)
        more = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield body[:10]
            await more.wait()
            yield body[10:]

        headers = {"Content-Type": "application/json"}
        reviewed = asyncio.create_task(_post(server.session, slowly(), headers))
        await eventually(lambda: count("controller_runtime_webhook_requests_in_flight", webhook="/a"))
        server.task.cancel()
        await eventually(lambda: "not served any more" in str(server.server.http.readiness()))
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection("127.0.0.1", server.port)
        more.set()
        assert (await reviewed)["response"]["allowed"] is True


async def _post(session: aiohttp.ClientSession, data: AsyncIterator[bytes], headers: dict[str, str]) -> JsonObject:
    async with session.post("/a", data=data, headers=headers) as response:
        review: JsonObject = await response.json()
        return review


@pytest.mark.guarantee("H-15")
async def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path / "c", {"/a": allow}, clock=clock) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=unverified())
        assert (await server.call("/a"))["allowed"], "by now both have shaken hands"
        await clock.advance(REQUEST_TIMEOUT + 1)
        assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        assert (await server.call("/a"))["allowed"]


class Held:
    """A webhook that judges large requests, each of which holds its worker until it may go on."""

    def __init__(self) -> None:
        self.workers = Workers()
        self.go_on = threading.Event()
        self.held = 0

    async def __call__(self, request: AdmissionRequest) -> AdmissionResponse:
        await self.workers.of(request.size).run(request.size, self._hold)
        return ALLOWED

    def _hold(self) -> None:
        self.held += 1
        self.go_on.wait()

    async def hold(
        self, server: Server, *, count: int, padding: int = workers_module.LARGE
    ) -> list[asyncio.Task[JsonObject]]:
        body = {**REVIEW, "padding": "x" * padding}
        before = self.held
        tasks = [asyncio.create_task(server.call("/a", body)) for _ in range(count)]
        await eventually(lambda: self.held >= before + count)
        assert not [task for task in tasks if task.done()]
        return tasks


@pytest.mark.guarantee("H-16")
async def test_hundreds_that_come_at_once_are_all_answered(tmp_path: Path) -> None:
    """As many as a client with many connections creates; no time passes for the server, so nothing is too late."""
    together = asyncio.Event()
    arrived = 0

    async def meet(_: AdmissionRequest) -> AdmissionResponse:
        nonlocal arrived
        arrived += 1
        if arrived == 300:
            together.set()
        await together.wait()
        return ALLOWED

    async with running(tmp_path / "c", {"/a": meet}, clock=VirtualClock()) as server:
        answers = await asyncio.gather(*(server.call("/a") for _ in range(300)))
    assert all(answer["allowed"] for answer in answers)


@pytest.mark.guarantee("H-16")
async def test_who_could_not_be_answered_in_time_is_told_at_once_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "LONGEST_WAIT", 0.0)
    held, labels = Held(), {"webhook": "/a", "code": "429"}
    before = count("controller_runtime_webhook_requests_total", **labels)
    async with running(tmp_path / "c", {"/a": held, "/b": allow}, workers=held.workers) as server:
        (first,) = await held.hold(server, count=1)
        await eventually(lambda: held.workers.of(workers_module.LARGE + 1).is_full)
        body = orjson.dumps({**REVIEW, "padding": "x" * workers_module.LARGE})
        headers = {"Content-Type": "application/json"}
        for _ in range(5):
            async with server.session.post("/a", data=body, headers=headers) as response:
                assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert held.held == 1, "nothing was done for them"
        assert (await server.call("/b"))["allowed"], "small ones do not wait for it"
        held.go_on.set()
        assert (await first)["allowed"]
        async with server.session.post("/a", data=body, headers=headers) as response:
            assert response.status == 200, "it goes on"
    assert count("controller_runtime_webhook_requests_total", **labels) == before + 5


@pytest.mark.guarantee("H-16")
async def test_of_large_reviews_one_at_a_time_is_in_memory() -> None:
    """What is read takes thirty times the memory of its text: three bodies of a stranger filled that of the manager."""
    workers, read, most = Workers(), 0, 0

    async def judge(_: AdmissionRequest) -> AdmissionResponse:
        nonlocal read, most
        read += 1
        most = max(most, read)
        await workers.of(len(body)).run(len(body), str)
        read -= 1
        return ALLOWED

    body = orjson.dumps(REVIEW) + b" " * workers_module.LARGE
    reviews = [review(body, judge, path="/a", workers=workers, clock=SystemClock()) for _ in range(4)]
    answers = await asyncio.gather(*reviews)
    workers.close()
    assert [orjson.loads(each)["response"]["allowed"] for each in answers] == [True] * 4
    assert most == 1


@pytest.mark.guarantee("H-16")
async def test_slow_bodies_of_a_peer_are_bounded_and_small_reviews_are_judged_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "MAX_BYTES", 400_000)
    headers, whole, arrived = {"Content-Type": "application/json"}, asyncio.Event(), 0

    async def slowly() -> AsyncIterator[bytes]:
        nonlocal arrived
        yield b" " * 75_000
        arrived += 1
        await whole.wait()
        yield orjson.dumps(REVIEW)

    async with running(tmp_path / "c", {"/a": allow}) as server:
        slow = [asyncio.create_task(_post(server.session, slowly(), headers)) for _ in range(3)]
        await eventually(lambda: arrived == 3)
        large = orjson.dumps({**REVIEW, "padding": "x" * 100_000})

        async def status() -> int:
            async with server.session.post("/a", data=large, headers=headers) as response:
                return response.status

        await eventually(lambda: _is(status, 429))
        assert (await server.call("/a"))["allowed"]
        whole.set()
        assert all(answer["response"]["allowed"] for answer in await asyncio.gather(*slow))
        assert await status() == 200, "what is answered is not counted any more"


async def _is(ask: Callable[[], Awaitable[int]], status: int) -> bool:
    return await ask() == status


@pytest.mark.guarantee("H-16")
async def test_what_is_not_judged_in_time_is_denied_before_the_api_server_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts until its thread has come back: nobody else is to wait behind it in vain."""
    monkeypatch.setattr(workers_module, "LONGEST_WAIT", 0.0)
    held, clock = Held(), VirtualClock()
    async with running(tmp_path / "c", {"/a": held}, workers=held.workers, clock=clock) as server:
        (asked,) = await held.hold(server, count=1)
        await clock.advance(REVIEW_TIMEOUT + 1)
        response = await asked
        assert held.workers.of(workers_module.LARGE + 1).is_full
        held.go_on.set()
        await eventually(lambda: not held.workers.of(workers_module.LARGE + 1).is_full)
    assert (response["uid"], response["allowed"]) == ("u-1", False)
    assert response["status"] == {
        "code": 429,
        "reason": "TooManyRequests",
        "message": "the webhook has too much to do; try again in 5 s",
        "details": {"retryAfterSeconds": 5},
    }


@pytest.mark.guarantee("H-1")
async def test_a_body_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with running(tmp_path / "c", {"/a": allow}, clock=clock) as server:
        reviewed = asyncio.create_task(_post(server.session, slowly(), {"Content-Type": "application/json"}))
        await eventually(lambda: count("controller_runtime_webhook_requests_in_flight", webhook="/a"))
        await clock.advance(BODY_TIMEOUT + 1)
        assert (await reviewed)["response"]["status"]["code"] == 408


NO_REQUESTS = {
    "bad chunks": (
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "cut off": b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{",
    "huge header": b"POST /a HTTP/1.1\r\nHost: x\r\nX-Large: " + b"a" * 100_000 + b"\r\n\r\n",
    "HTTP/1.0 without length": b"POST /a HTTP/1.0\r\nContent-Type: application/json\r\n\r\n",
    "no HTTP": b"P\x00ST /a HTTP/9.9\r\n\r\n",
}


@pytest.mark.guarantee("H-1")
async def test_what_is_no_request_leaves_no_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path / "c", {"/a": allow}) as server:
        with capture_logs() as logs:
            for name, sent in NO_REQUESTS.items():
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=unverified())
                writer.write(sent)
                await writer.drain()
                if name != "cut off":
                    status = await reader.readline()
                    assert status.split()[1] in (b"200", b"400"), (name, status)
                writer.transport.abort()
                assert (await server.call("/a"))["allowed"]
    assert [log for log in logs if log["log_level"] not in ("info", "debug")] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
