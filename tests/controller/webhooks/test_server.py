"""The webhook server: limits, failures, its life."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import shutil
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Tls, Webhook
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.server import server as http_server
from trainmaster.controller.server.server import AddressInUse
from trainmaster.controller.webhooks import WebhookServer, Workers
from trainmaster.controller.webhooks import server as webhook_server
from trainmaster.controller.webhooks import workers as workers_module
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import ALLOWED, AdmissionRequest, AdmissionResponse
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
        self, server: WebhookServer, session: aiohttp.ClientSession, port: int, task: asyncio.Task[None]
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
    directory.mkdir()
    certificate, key = authority.issue(directory)
    shutil.copy(certificate, directory / "tls.crt")
    shutil.copy(key, directory / "tls.key")
    settings = Webhook(host="127.0.0.1", port=port, cert_dir=str(directory))
    server = WebhookServer(
        handlers, options.get("workers") or Workers(), settings, Tls(), clock=options.get("clock") or SystemClock()
    )
    context = ssl.create_default_context(cadata=authority.pem.decode())
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    task = asyncio.create_task(server.run(at_once))
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
        try:
            await until_ready(server, task)
            yield Server(server, session, port, task)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until_ready(server: WebhookServer, task: asyncio.Task[None]) -> None:
    while server.readiness() is not None:
        assert not task.done(), task
        await asyncio.sleep(0.01)


async def allow(_: AdmissionRequest) -> AdmissionResponse:
    return ALLOWED


async def crash(_: AdmissionRequest) -> AdmissionResponse:
    raise KeyError("a secret")


def count(name: str, **labels: str) -> float:
    return value_of(name, labels) or 0.0


@pytest.mark.guarantee("H-1")
async def test_a_body_that_is_too_large_is_answered_with_a_review(tmp_path: Path) -> None:
    async with running(tmp_path / "c", {"/a": allow}) as server:
        big = {**REVIEW, "padding": "x" * (6 * 1024 * 1024)}
        assert (await server.call("/a", big))["allowed"] is True
        too_big = {**REVIEW, "padding": "x" * (7 * 1024 * 1024)}
        response = await server.call("/a", too_big)
    assert response["status"] == {"code": 413, "message": "request entity is too large; limit is 7340032 bytes"}


@pytest.mark.guarantee("H-1")
async def test_a_packed_body_is_not_unpacked(tmp_path: Path) -> None:
    """It may be a thousand times as large."""
    packed = gzip.compress(orjson.dumps({**REVIEW, "padding": "x" * (64 * 1024 * 1024)}))
    async with running(tmp_path / "c", {"/a": allow}) as server:
        response = await server.call("/a", packed, headers={"Content-Encoding": "gzip"})
    assert response["status"]["code"] == 400
    assert "the request body is no JSON" in response["status"]["message"]


@pytest.mark.guarantee("H-1")
async def test_the_content_type_is_json_and_there_is_a_body(tmp_path: Path) -> None:
    async with running(tmp_path / "c", {"/a": allow}) as server:
        wrong = await server.call("/a", kind="text/plain")
        assert wrong["status"] == {"code": 400, "message": "contentType=text/plain, expected application/json"}
        empty = await server.call("/a", b"")
        assert empty["status"] == {"code": 400, "message": "request body is empty"}
        odd = await server.call("/a", b"{")
        assert (odd["uid"], odd["allowed"], odd["status"]["code"]) == ("", False, 400)
        async with server.session.get("/a") as response:
            assert response.status == 405


@pytest.mark.guarantee("H-2", "H-4")
async def test_a_crash_is_a_response_with_the_uid_and_is_counted(tmp_path: Path) -> None:
    before = count("controller_runtime_webhook_panics_total")
    async with running(tmp_path / "c", {"/crash": crash}) as server:
        response = await server.call("/crash")
    assert response["uid"] == "u-1"
    assert response["allowed"] is False
    assert response["status"]["code"] == 500
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
        certificate, key = new.issue(tmp_path)
        shutil.copy(certificate, directory / "tls.crt")
        shutil.copy(key, directory / "tls.key")
        context = ssl.create_default_context(cadata=new.pem.decode())
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            except ssl.SSLCertVerificationError:
                await asyncio.sleep(0.01)
                continue
            break
        writer.close()
        await writer.wait_closed()
        assert not calling.done(), calling
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling


async def _call_for_ever(port: int) -> None:
    """Take a new connection each time, whoever has signed the certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
        while True:
            async with session.post("/a", json=REVIEW) as response:
                assert (await response.json())["response"]["allowed"]


@pytest.mark.guarantee("H-13")
async def test_without_a_certificate_the_server_says_so_and_goes_on_when_there_is_one(tmp_path: Path) -> None:
    clock, port = VirtualClock(), free_port()
    server = WebhookServer(
        {"/a": allow}, Workers(), Webhook(host="127.0.0.1", port=port, cert_dir=str(tmp_path)), Tls(), clock=clock
    )
    task = asyncio.create_task(server.run(at_once))
    try:
        await clock.advance(30)
        assert server.readiness() == (
            "the webhooks are not served, for want of a certificate: "
            f"cannot read {tmp_path / 'tls.crt'}: No such file or directory"
        )
        certificate, key = Authority().issue(tmp_path)
        certificate.rename(tmp_path / "tls.crt")
        key.rename(tmp_path / "tls.key")
        await clock.advance(10)
        await until_ready(server, task)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert server.readiness() is not None


@pytest.mark.guarantee("H-13")
async def test_nothing_is_served_before_the_caches_are_filled(tmp_path: Path) -> None:
    filled = asyncio.Event()
    server = WebhookServer({}, Workers(), Webhook(port=free_port(), cert_dir=str(tmp_path)), Tls(), clock=SystemClock())
    task = asyncio.create_task(server.run(filled.wait))
    await asyncio.sleep(0)
    assert server.readiness() == "the webhooks are not served yet"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    async with running(tmp_path / "c", {}) as server:
        settings = Webhook(host="127.0.0.1", port=server.port, cert_dir=str(tmp_path / "c"))
        other = WebhookServer({}, Workers(), settings, Tls(), clock=SystemClock())
        with pytest.raises(
            AddressInUse, match=rf"cannot serve webhooks on 127\.0\.0\.1:{server.port}: .*webhook\.port"
        ):
            await other.run(at_once)


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
        while not count("controller_runtime_webhook_requests_in_flight", webhook="/a"):
            await asyncio.sleep(0.01)
        server.task.cancel()
        while "not served any more" not in str(server.server.readiness()):
            await asyncio.sleep(0.01)
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection("127.0.0.1", server.port)
        more.set()
        assert (await reviewed)["response"]["allowed"] is True


async def _post(session: aiohttp.ClientSession, data: AsyncIterator[bytes], headers: dict[str, str]) -> JsonObject:
    async with session.post("/a", data=data, headers=headers) as response:
        review: JsonObject = await response.json()
        return review


@pytest.mark.guarantee("H-15")
async def test_a_connection_without_a_request_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "REQUEST_TIMEOUT", 0.2)
    async with running(tmp_path / "c", {"/a": allow}) as server:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        assert (await server.call("/a"))["allowed"]
        await asyncio.sleep(0.3)  # nothing can be waited for: what must not happen is that the connection is closed
        assert (await server.call("/a"))["allowed"]


class Held:
    """A webhook that judges large requests, each of which holds its worker until it may go on."""

    def __init__(self) -> None:
        self.workers = Workers()
        self.go_on = threading.Event()
        self.held = 0

    async def __call__(self, request: AdmissionRequest) -> AdmissionResponse:
        self.held += 1
        await self.workers.of(request.size).run(request.size, self.go_on.wait)
        return ALLOWED

    async def hold(
        self, server: Server, *, count: int, padding: int = workers_module.LARGE
    ) -> list[asyncio.Task[JsonObject]]:
        body = {**REVIEW, "padding": "x" * padding}
        before = self.held
        tasks = [asyncio.create_task(server.call("/a", body)) for _ in range(count)]
        while self.held < before + count and not self.go_on.is_set():
            await asyncio.sleep(0.01)
            assert not [task for task in tasks if task.done()]
        return tasks


@pytest.mark.guarantee("H-16")
async def test_hundreds_that_come_at_once_are_all_answered(tmp_path: Path) -> None:
    """As many as a client with many connections creates; together they take a fraction of a second."""
    together = asyncio.Event()
    arrived = 0

    async def meet(_: AdmissionRequest) -> AdmissionResponse:
        nonlocal arrived
        arrived += 1
        if arrived == 300:
            together.set()
        await together.wait()
        return ALLOWED

    async with running(tmp_path / "c", {"/a": meet}) as server:
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
        while not held.workers.of(workers_module.LARGE + 1).is_full:
            await asyncio.sleep(0.01)
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
async def test_small_requests_do_not_wait_for_large_ones(tmp_path: Path) -> None:
    held = Held()
    async with running(tmp_path / "c", {"/a": held, "/b": allow}, workers=held.workers) as server:
        large = await held.hold(server, count=1)
        assert (await server.call("/b"))["allowed"]
        assert not large[0].done()
        held.go_on.set()
        assert (await large[0])["allowed"]


@pytest.mark.guarantee("H-16")
async def test_all_bodies_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "MAX_BYTES", 200_000)
    held = Held()
    async with running(tmp_path / "c", {"/a": held}, workers=held.workers) as server:
        first = await held.hold(server, count=1, padding=150_000)
        headers = {"Content-Type": "application/json"}
        body = orjson.dumps({**REVIEW, "padding": "x" * 100_000})
        async with server.session.post("/a", data=body, headers=headers) as response:
            assert response.status == 429
        held.go_on.set()
        assert (await first[0])["allowed"]
        async with server.session.post("/a", data=body, headers=headers) as response:
            assert response.status == 200, "what is answered is not counted any more"


@pytest.mark.guarantee("H-16")
async def test_what_is_not_judged_in_time_is_denied_before_the_api_server_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "REVIEW_TIMEOUT", 0.2)
    held = Held()
    async with running(tmp_path / "c", {"/a": held}, workers=held.workers) as server:
        (asked,) = await held.hold(server, count=1)
        response = await asked
        held.go_on.set()
    assert (response["uid"], response["allowed"]) == ("u-1", False)
    assert response["status"] == {
        "code": 429,
        "reason": "TooManyRequests",
        "message": "the webhook has too much to do; try again in 5 s",
        "details": {"retryAfterSeconds": 5},
    }


@pytest.mark.guarantee("H-1")
async def test_a_body_that_does_not_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "BODY_TIMEOUT", 0.2)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with running(tmp_path / "c", {"/a": allow}) as server:
        review = await _post(server.session, slowly(), {"Content-Type": "application/json"})
    assert review["response"]["status"]["code"] == 408


@pytest.mark.guarantee("H-1")
@pytest.mark.parametrize(
    "sent",
    [
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{",
        b"POST /a HTTP/1.1\r\nHost: x\r\nX-Large: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /a HTTP/1.0\r\nContent-Type: application/json\r\n\r\n",
        b"P\x00ST /a HTTP/9.9\r\n\r\n",
    ],
    ids=["bad chunks", "cut off", "huge header", "HTTP/1.0 without length", "no HTTP"],
)
async def test_what_is_no_request_leaves_no_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async with running(tmp_path / "c", {"/a": allow}) as server:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(sent)
            await writer.drain()
            if b"Content-Length" not in sent:
                status = await reader.readline()
                assert status.split()[1] in (b"200", b"400"), status
            writer.transport.abort()
            assert (await server.call("/a"))["allowed"]
    assert [log for log in logs if log["log_level"] not in ("info", "debug")] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
