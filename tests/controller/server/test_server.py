"""The one HTTP(S) server: addresses, probes, the metrics endpoint, and certificates that are replaced."""

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Never

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from structlog.testing import capture_logs
from support.authorities import Authority
from support.commands import eventually
from support.series import OPEN_METRICS, fetch, read_open_metrics
from support.virtualtime import VirtualClock
from support.web import get, listening

from trainmaster.controller.configuration import Tls
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.manager.endpoints import METRICS_OPTIONS, PROBES_OPTIONS
from trainmaster.controller.server import healthz as healthz_module
from trainmaster.controller.server.certwatcher import REFRESH_INTERVAL, CertWatcher, server_context
from trainmaster.controller.server.healthz import Healthz, metrics
from trainmaster.controller.server.server import AddressInUse, Server, ServerOptions
from trainmaster.metrics.trainjobs import TIME_TO_JOBSET, exemplar_of, observe


async def test_an_address_in_use_is_named() -> None:
    async with listening(web.Application()) as port:
        with pytest.raises(AddressInUse, match=rf"cannot serve probes on 127\.0\.0\.1:{port}: .*configuration"):
            async with listening(web.Application(), f"127.0.0.1:{port}", purpose="probes"):
                pass


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 404) for name in ("localhost:8081", "LOCALHOST", "127.0.0.1:80", "127.1.2.3", "[::1]:8081")),
        *((name, 421) for name in ("rebound.example:8081", "10.0.0.1", "localhost.evil.example", "[", "")),
    ],
)
async def test_on_loopback_without_tls_it_answers_only_who_asks_for_this_machine(host: str, status: int) -> None:
    """A page of the web whose name leads to 127.0.0.1 has the browser send that name."""
    async with listening(web.Application()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == str(status).encode()
        writer.close()


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[None]:
    """Run a server, whose readiness is asked for without a connection; it is ready when the block begins."""
    running = asyncio.create_task(server.run(web.Application()))
    try:
        await eventually(lambda: server.readiness() is None)
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


OPTIONS = ServerOptions(purpose="tests", subject="it is", unreachable="it is not reachable")


async def refuse(*_arguments: object, **_options: object) -> Never:
    raise ConnectionRefusedError("refused")


@pytest.mark.guarantee("H-13")
async def test_a_server_is_ready_while_it_can_connect_to_itself_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was served and cannot be reached is a matter for another process; what is not served yet is not.

    Probes of any number of kubelets cost one connection a second, and none of them hears of an older one.
    """
    clock, dialled = VirtualClock(), 0
    open_connection = asyncio.open_connection

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal dialled
        dialled += 1
        await asyncio.sleep(0)
        return await open_connection(*arguments, **options)

    monkeypatch.setattr(asyncio, "open_connection", counted)
    server = Server("127.0.0.1:0", OPTIONS, clock=clock)
    assert (await server.check(), server.liveness()) == ("it is not served yet", None)
    async with served(server):
        for connections in (1, 2):
            assert await asyncio.gather(*(server.check() for _ in range(50))) == [None] * 50
            assert (dialled, server.liveness()) == (connections, None)
            await clock.advance(1.1)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "open_connection", refuse)
            await clock.advance(REFRESH_INTERVAL)
            assert server.readiness() == server.liveness() == "it is not reachable: refused"
        await clock.advance(REFRESH_INTERVAL)
        await eventually(lambda: server.readiness() is None)
    assert await server.check() == server.readiness() == "it is not served any more"


@pytest.mark.guarantee("H-13")
async def test_a_check_tells_why_callers_refuse_the_certificate(tmp_path: Path) -> None:
    """Time stands still, so that only another way to verify is a reason to connect again."""
    authority = Authority()
    authority.mount(tmp_path)
    verifications = list[tuple[ssl.SSLContext, str]]()
    certs = CertWatcher(tmp_path, Tls())
    server = Server("127.0.0.1:0", OPTIONS, clock=VirtualClock(), certs=certs, verifications=lambda: [*verifications])
    async with served(server):
        assert await server.check() is None
        for trusted, name, refusal in (
            (Authority("other"), "server", "unable to get local issuer certificate"),
            (authority, "server", None),
            (authority, "another", "Hostname mismatch, certificate is not valid for 'another'."),
        ):
            verifications[:] = [(ssl.create_default_context(cadata=trusted.pem.decode()), name)]
            said = await server.check()
            assert said == (refusal and f"it is served with a certificate that callers of {name} refuse: {refusal}")
        assert server.liveness() is None, "another process would show the same certificate"
        verifications.clear()
        assert await server.check() is None


@pytest.mark.guarantee("M-8")
@pytest.mark.parametrize("options", [PROBES_OPTIONS, METRICS_OPTIONS], ids=lambda options: options.purpose)
async def test_a_connection_on_which_nothing_comes_is_closed(options: ServerOptions) -> None:
    """Probes are open to everybody."""
    clock = VirtualClock()
    async with Server("127.0.0.1:0", options, clock=clock).listening(web.Application()) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        async with aiohttp.request("GET", f"http://{host}:{port}/") as answer:
            assert answer.status == 404, "by now both are there"
        await clock.advance((options.first_request_timeout or 0) + 1)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.guarantee("M-7")
async def test_while_draining_each_response_closes_its_connection() -> None:
    """Who keeps connections open would come here until the end, whatever a load balancer knows."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="as before")

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    server = Server("127.0.0.1:0", ServerOptions(purpose="tests"), clock=SystemClock())
    async with server.listening(app) as (host, port), aiohttp.ClientSession() as session:
        url = f"http://{host}:{port}/"
        async with session.get(url) as response:
            assert "Connection" not in response.headers
        server.drain()
        for _ in range(2):
            async with session.get(url) as response:
                assert (await response.text(), response.headers["Connection"]) == ("as before", "close")


class Mounted:
    """A directory as Kubernetes mounts a Secret."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "mounted"
        self.directory.mkdir()
        self._issued = directory / "issued"
        self._issued.mkdir()

    def put(self, authority: Authority, *, certificate: bool = True, key: bool = True) -> None:
        paths = authority.issue(self._issued)
        if certificate:
            shutil.copy(paths[0], self.directory / "tls.crt")
        if key:
            shutil.copy(paths[1], self.directory / "tls.key")


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


@pytest.fixture
def certs(mounted: Mounted) -> CertWatcher:
    return CertWatcher(mounted.directory, Tls())


def trusts(authority: Authority, certs: CertWatcher) -> bool:
    """Shake hands with a server that has these certificates, in memory."""
    client_in, server_in = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    client = context.wrap_bio(client_in, server_in, server_hostname="server")
    server = certs.server_context().wrap_bio(server_in, client_in, server_side=True)
    try:
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError:
        return False
    return True


@pytest.mark.guarantee("H-10")
def test_files_that_are_not_there_are_named_and_taken_when_they_come(mounted: Mounted, certs: CertWatcher) -> None:
    assert not certs.read_certificate()
    assert certs.error == f"cannot read {mounted.directory / 'tls.crt'}: No such file or directory"
    authority = Authority()
    mounted.put(authority)
    assert certs.read_certificate()
    assert certs.error is None
    assert trusts(authority, certs)
    assert not trusts(Authority(), certs)


@pytest.mark.guarantee("H-10")
def test_a_new_pair_is_taken_once_its_halves_fit(mounted: Mounted, certs: CertWatcher) -> None:
    old, new = Authority("old"), Authority("new")
    mounted.put(old)
    certs.read_certificate()
    mounted.put(new, key=False)
    assert certs.read_certificate(), "the old pair is gone"
    assert "are no pair of certificate and key" in str(certs.error)
    assert trusts(old, certs)
    mounted.put(new)
    assert certs.read_certificate()
    assert certs.error is None
    assert trusts(new, certs)
    assert not trusts(old, certs)


@pytest.mark.guarantee("H-10")
def test_unchanged_damaged_or_lost_files_leave_the_old_pair(mounted: Mounted, certs: CertWatcher) -> None:
    authority = Authority()
    mounted.put(authority)
    certs.read_certificate()
    before = certs._current
    os.utime(mounted.directory / "tls.crt")
    certs.read_certificate()
    assert certs._current is before
    for damage in (b"", b"not a certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n"):
        (mounted.directory / "tls.crt").write_bytes(damage)
        assert certs.read_certificate()
    (mounted.directory / "tls.crt").unlink()
    assert certs.read_certificate()
    assert trusts(authority, certs)


@pytest.mark.parametrize(
    ("called", "told"), [("server", False), ("localhost", False), ("trainer.kubeflow.svc", True), (None, False)]
)
def test_certificates_of_other_names_are_told_and_served(mounted: Mounted, called: str | None, told: bool) -> None:
    mounted.put(Authority())
    certs = CertWatcher(mounted.directory, Tls(), called=called)
    with capture_logs() as logs:
        assert certs.read_certificate()
        assert certs.read_certificate()
    found = [each for each in logs if each["event"].startswith("the certificate is not for the name")]
    assert [(each["names"], each["called"]) for each in found] == told * [(["localhost", "server"], called)]


def test_tls_as_go_describes_it() -> None:
    assert server_context(Tls()).minimum_version is ssl.TLSVersion.TLSv1_2
    assert server_context(Tls(min_version="1.3")).minimum_version is ssl.TLSVersion.TLSv1_3
    assert server_context(Tls(min_version="")).minimum_version is ssl.TLSVersion.TLSv1_2
    suites = ["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]
    chosen = server_context(Tls(cipher_suites=suites)).get_ciphers()
    assert {suite["name"] for suite in chosen if not suite["name"].startswith("TLS_")} == {
        "ECDHE-RSA-AES256-GCM-SHA384"
    }


@pytest.mark.guarantee("L-13", "M-8")
async def test_liveness_and_readiness_say_what_is_wrong() -> None:
    trouble: dict[str, str | None] = {"alive": None, "ready": None}
    healthz = Healthz()
    healthz.add_healthz_check("leaderElection", lambda: trouble["alive"])
    healthz.add_readyz_check("informer-sync", lambda: trouble["ready"])
    async with listening(healthz.application()) as port:
        assert (await get(port, "healthz"))[:2] == (200, "ok")
        assert (await get(port, "readyz"))[:2] == (200, "ok")
        trouble["ready"] = "waiting for pods"
        assert (await get(port, "healthz"))[:2] == (200, "ok")
        assert (await get(port, "readyz"))[:2] == (
            500,
            "[+]ping ok\n[-]informer-sync failed: waiting for pods\nreadyz check failed\n",
        )
        trouble["alive"] = "no renewal"
        assert (await get(port, "healthz"))[:2] == (
            500,
            "[+]ping ok\n[-]leaderElection failed: no renewal\nhealthz check failed\n",
        )


@pytest.mark.guarantee("M-8")
async def test_verbose_has_a_line_for_each_check_and_exclude_leaves_some_out() -> None:
    healthz = Healthz()
    healthz.add_readyz_check("well", lambda: None)
    async with listening(healthz.application()) as port:
        everything = "[+]ping ok\n[+]well ok\nreadyz check passed\n"
        assert (await get(port, "readyz?verbose"))[:2] == (200, everything)
        assert (await get(port, "readyz?verbose=true"))[:2] == (200, everything)
        healthz.add_readyz_check("ill", lambda: "a fever")
        assert (await get(port, "readyz?exclude=ill"))[:2] == (200, "ok")
        _, text, _ = await get(port, "readyz?exclude=ill&exclude=well&exclude=odd&verbose")
        assert text.splitlines() == [
            "[+]ping ok",
            "[+]well excluded: ok",
            "[+]ill excluded: ok",
            'warn: some health checks cannot be excluded: no matches for "odd"',
            "readyz check passed",
        ]


@pytest.mark.guarantee("M-8")
@pytest.mark.defect("B12")
async def test_each_check_can_be_asked_about_on_its_own_under_configured_names() -> None:
    renamed = Healthz(liveness="alive", readiness="ready").application()
    async with listening(renamed) as port:
        assert [(await get(port, name))[0] for name in ("alive", "ready", "healthz", "readyz")] == [200, 200, 404, 404]
    healthz = Healthz()
    healthz.add_readyz_check("well", lambda: None)
    healthz.add_readyz_check("ill", lambda: "a fever")
    async with listening(healthz.application()) as port:
        assert (await get(port, "readyz/well"))[:2] == (200, "ok")
        assert (await get(port, "readyz/ill"))[:2] == (500, "internal server error: a fever\n")
        assert (await get(port, "readyz/none"))[0] == 404
        assert (await get(port, "healthz/well"))[0] == 404
        assert (await get(port, "healthz/ping"))[:2] == (200, "ok")


@pytest.mark.guarantee("M-8")
async def test_checks_may_wait_raise_or_say_more_to_those_who_ask_for_details() -> None:
    def broken() -> str | None:
        raise ValueError("Bearer abc")

    async def waiting() -> str | None:
        await asyncio.sleep(0)
        return "not yet"

    notes: list[str] = []
    healthz = Healthz()
    healthz.add_readyz_check("informer-sync", lambda: None, note=lambda: notes[0] if notes else None)
    async with listening(healthz.application()) as port:
        assert (await get(port, "readyz?verbose"))[1].splitlines()[1] == "[+]informer-sync ok"
        notes.append("waiting for queues")
        assert (await get(port, "readyz?verbose"))[1].splitlines()[1] == "[+]informer-sync ok: waiting for queues"
        assert (await get(port, "readyz"))[:2] == (200, "ok")
        healthz.add_readyz_check("broken", broken)
        healthz.add_readyz_check("waiting", waiting)
        assert (await get(port, "readyz"))[1].splitlines()[2:4] == [
            "[-]broken failed: the check itself failed with ValueError",
            "[-]waiting failed: not yet",
        ]


@pytest.mark.guarantee("M-8")
def test_two_checks_of_one_name_are_refused() -> None:
    healthz = Healthz()
    healthz.add_readyz_check("certs", lambda: None)
    healthz.add_healthz_check("certs", lambda: None)
    with pytest.raises(ValueError, match="two checks called 'certs' of readyz"):
        healthz.add_readyz_check("certs", lambda: None)


async def test_open_metrics_are_served_to_whoever_asks_for_them() -> None:
    """With exemplars, which the other format has no place for."""
    observe(TIME_TO_JOBSET, 3.0, "exposed", exemplar=exemplar_of("team/exposed"))
    async with listening(metrics()) as port:
        text, content_type = await fetch(port, accept=OPEN_METRICS)
        assert content_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
        exemplars = [
            sample.exemplar.labels
            for family in read_open_metrics(text)
            for sample in family.samples
            if sample.exemplar and sample.labels.get("runtime") == "exposed"
        ]
        assert exemplars == [{"trainjob": "team/exposed"}]
        assert (text.count("# EOF"), text.endswith("\n# EOF\n")) == (1, True)
        for accept in ("text/plain;version=0.0.4", "*/*", ""):
            text, content_type = await fetch(port, accept=accept)
            assert content_type == "text/plain; version=0.0.4; charset=utf-8"
            assert "# HELP process_resident_memory_bytes" in text
            assert "team/exposed" not in text
            assert "# EOF" not in text


@pytest.mark.guarantee("P-35")
async def test_other_tasks_get_a_turn_after_each_family(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen = 0, []

    class Watchful(Collector):
        def collect(self) -> Iterator[Metric]:
            seen.append(turns)
            yield GaugeMetricFamily(f"family_{len(seen)}", "One of three")

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    registry = CollectorRegistry(auto_describe=False)
    for _ in range(3):
        registry.register(Watchful())
    seen.clear()
    monkeypatch.setattr(healthz_module, "REGISTRY", registry)
    counting = asyncio.create_task(count())
    async with listening(metrics()) as port:
        await fetch(port)
    counting.cancel()
    assert len(set(seen)) == 3
