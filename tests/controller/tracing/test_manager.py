"""Traces of a whole manager, as a collector gets them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.testing import capture_logs
from support.admission import served, serving_certificates
from support.commands import Running, eventually, started
from support.series import series, value_of
from support.stack import QUIET, Stack, api_server, manager
from support.training import apply_runtime, runtime, trainjob, until
from support.web import listening

from trainmaster.controller.configuration import Configuration, Tracing
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.kube.rest.transport import Response
from trainmaster.controller.log_context import merge_reconciled
from trainmaster.controller.plugins.observer import PluginCallObserver
from trainmaster.controller.reconciling.trainjobs.decider import LARGE
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.tracing import export_queue, tracing
from trainmaster.controller.tracing.installed import new_tracing
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINJOB
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

SERVER, CLIENT, INTERNAL = 2, 3, 1
ERROR = 2


@dataclass(frozen=True)
class Span:
    """One span as it was received."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    events: list[dict[str, Any]]
    status: int
    seconds: float
    resource: dict[str, Any]


@dataclass
class Collector:
    """What it has got, and how it answers."""

    port: int = 0
    status: int = 200
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    headers: list[Mapping[str, str]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def named(self, name: str, **attributes: Any) -> list[Span]:
        """The spans of a name that have some attributes; `k8s_job_name` stands for `k8s.job.name`."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return [each for each in self.spans if each.name == name and wanted.items() <= each.attributes.items()]

    def below(self, parent: Span) -> list[Span]:
        """The children of a span."""
        return [each for each in self.spans if (each.trace_id, each.parent_id) == (parent.trace_id, parent.span_id)]

    async def got(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is true of what it has got, and return that."""
        return await eventually(condition)

    async def take(self, request: web.Request) -> web.Response:
        self.requests += 1
        self.headers.append(request.headers.copy())
        body = await request.read()
        await self.answers.wait()
        if self.status == 200:
            self._keep(body)
        return web.Response(status=self.status)

    def _keep(self, body: bytes) -> None:
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    self.spans.append(
                        Span(
                            span.name,
                            span.kind,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            _values(span.attributes),
                            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                            [{"name": event.name, **_values(event.attributes)} for event in span.events],
                            span.status.code,
                            (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                            resource,
                        )
                    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@asynccontextmanager
async def collector(*, status: int = 200, hangs: bool = False) -> AsyncIterator[Collector]:
    """Run a collector; one that hangs answers when the block ends, or its `answers` is set."""
    made = Collector(status=status)
    if not hangs:
        made.answers.set()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    async with listening(app) as made.port:
        try:
            yield made
        finally:
            made.answers.set()


ALWAYS = 1_000_000


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_queue, "INTERVAL", 0.02)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        await apply_runtime(stack.client, runtime())
        yield stack


@asynccontextmanager
async def traced(
    stack: Stack, endpoint: str, *, rate: int = ALWAYS, configuration: Configuration = QUIET
) -> AsyncIterator[None]:
    """Run a manager that is configured to trace."""
    recording = new_tracing(Tracing(endpoint=endpoint, sampling_rate_per_million=rate))
    assert recording is not None
    framework = Framework(load_plugins(), observer=recording.plugin_calls(PluginCallObserver()))
    async with recording, manager(stack.access, framework=framework, configuration=configuration, tracing=recording):
        yield


async def create(stack: Stack, name: str, **spec: Any) -> JsonObject:
    return await stack.client.create(TRAINJOBS, trainjob(name, **spec))


async def reconciled(stack: Stack, name: str) -> None:
    """Wait until somebody has written the status of a TrainJob."""

    async def is_told() -> bool:
        return "status" in await stack.client.get(TRAINJOBS, "default", name)

    await eventually(is_told)


def reconciles(receiver: Collector, name: str) -> list[Span]:
    return receiver.named("reconcile TrainJob", k8s_trainjob_name=name)


@pytest.mark.guarantee("K-14")
async def test_a_reconcile_is_a_span_with_its_requests_and_plugin_calls(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAME", "manager-0")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=tests")
    sent: list[tuple[str, str]] = []
    original = HttpTransport.send

    async def noted(
        self: HttpTransport, method: str, path: str, *, headers: Mapping[str, str], **more: Any
    ) -> Response:
        sent.append((path, headers.get("traceparent", "")))
        return await original(self, method, path, headers=headers, **more)

    monkeypatch.setattr(HttpTransport, "send", noted)
    async with collector() as receiver, traced(stack, receiver.endpoint):
        job = await create(stack, "first")
        (request, *_) = await receiver.got(
            lambda: receiver.named("PATCH /apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}")
        )
        (span,) = await receiver.got(lambda: [each for each in receiver.spans if each.span_id == request.parent_id])
    assert (span.name, span.kind, span.parent_id) == ("reconcile TrainJob", INTERNAL, "")
    assert span.attributes == {
        "k8s.namespace.name": "default",
        "k8s.trainjob.name": "first",
        "k8s.trainjob.uid": job["metadata"]["uid"],
        "trainmaster.controller": "trainjob_controller",
        "trainmaster.reconcile.result": span.attributes["trainmaster.reconcile.result"],
    }
    assert span.attributes["trainmaster.reconcile.result"] in ("success", "requeue_after")
    assert span.resource["service.name"] == "trainmaster"
    assert span.resource["k8s.pod.name"] == span.resource["service.instance.id"] == "manager-0"
    assert span.resource["deployment.environment.name"] == "tests"

    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/first"
    assert request.kind == CLIENT
    address = stack.access.server.partition("://")[2].rpartition(":")
    assert request.attributes.pop("url.full").startswith(f"{stack.access.server}{path}?fieldManager=")
    assert request.attributes == {
        "http.request.method": "PATCH",
        "http.response.status_code": request.attributes["http.response.status_code"],
        "k8s.namespace.name": "default",
        "server.address": address[0],
        "server.port": int(address[2]),
        "url.path": path,
        "url.template": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}",
    }
    assert request.attributes["http.response.status_code"] in (200, 201)
    assert 0 < request.seconds <= span.seconds
    (flags,) = {
        parent.rpartition("-")[2]
        for to, parent in sent
        if (to, parent[:-3]) == (path, f"00-{request.trace_id}-{request.span_id}")
    }
    assert int(flags, 16) & 1, "it is sampled"

    calls = [each for each in receiver.below(span) if "trainmaster.plugin.name" in each.attributes]
    assert {"plugin torch enforce_ml_policy", "plugin jobset build"} <= {each.name for each in calls}
    assert {each.attributes["trainmaster.plugin.result"] for each in calls} == {"success"}
    # What caches read and the election writes belongs to no reconcile.
    assert {parent for path, parent in sent if "watch" in path or path.startswith("/api/v1/pods")} <= {""}


@pytest.mark.guarantee("K-14")
async def test_reconciles_lead_to_the_one_before_and_tell_what_was_planned_and_refused(stack: Stack) -> None:
    async with collector() as receiver, traced(stack, receiver.endpoint):
        await create(stack, "other")
        await create(stack, "linked")
        await receiver.got(lambda: reconciles(receiver, "linked"))
        await stack.client.patch(TRAINJOBS, "default", "linked", {"metadata": {"labels": {"a": "b"}}})
        later = await receiver.got(lambda: [each for each in reconciles(receiver, "linked") if each.links])
        # Large TrainJobs are planned in a thread, which belongs to the reconcile.
        job = trainjob("large")
        job["metadata"]["annotations"] = {"example.com/notes": "x" * LARGE}
        await stack.client.create(TRAINJOBS, job)
        (span, *_) = await receiver.got(lambda: reconciles(receiver, "large"))
        await receiver.got(lambda: "plugin jobset build" in {each.name for each in receiver.below(span)})
        await create(stack, "lost", on="missing")
        missing = "GET /apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/{name}"
        (request, *_) = await receiver.got(lambda: receiver.named(missing))
    assert request.attributes["http.response.status_code"] == 404
    assert (request.attributes["error.type"], request.status) == ("404", ERROR)
    ids = {(each.trace_id, each.span_id) for each in reconciles(receiver, "linked")}
    for each in later:
        assert set(each.links) < ids
    first, *_ = reconciles(receiver, "linked")
    assert first.links == []
    assert len({each.trace_id for each in reconciles(receiver, "linked")}) == len(ids), "each is a trace of its own"


@pytest.mark.guarantee("K-14")
async def test_log_lines_of_a_reconcile_carry_the_ids(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    unforeseen = "nobody foresaw this of https://user:hunter2@example.org"

    async def failing(*_arguments: object) -> None:
        raise RuntimeError(unforeseen)

    monkeypatch.setattr("trainmaster.controller.reconciling.status_writer.StatusWriter.write", failing)
    with capture_logs() as logged:
        # It takes processors only in later versions than the oldest one that is allowed; it restores them in all.
        structlog.get_config()["processors"][:0] = [merge_reconciled, structlog.contextvars.merge_contextvars]
        async with collector() as receiver, traced(stack, receiver.endpoint):
            await create(stack, "failing")
            (span, *_) = await receiver.got(lambda: [each for each in reconciles(receiver, "failing") if each.events])
    lines = [line for line in logged if line["event"].startswith("reconcile failed with an unforeseen error")]
    assert {(line["trace_id"], line["span_id"]) for line in lines} >= {(span.trace_id, span.span_id)}
    assert all("trace_id" not in line for line in logged if "reconcile_id" not in line)
    assert span.status == ERROR
    assert span.attributes["error.type"] == "RuntimeError"
    (event,) = span.events
    assert event == {
        "name": "exception",
        "exception.type": "RuntimeError",
        "exception.message": "nobody foresaw this of https://[redacted]@example.org",
    }


@pytest.mark.guarantee("K-14")
async def test_a_review_is_in_the_trace_of_the_api_server_that_asks(stack: Stack, tmp_path: Path) -> None:
    port = free_port()
    certificates = serving_certificates(tmp_path / "certificates")
    configuration = served(tmp_path / "certificates", port)
    context = ssl.create_default_context(cadata=certificates.authority_pem.decode())
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "4711", "operation": "CREATE", "namespace": "default", "object": trainjob("asked")},
    }
    theirs = "0af7651916cd43dd8448eb211c80319c"
    async with (
        collector() as receiver,
        traced(stack, receiver.endpoint, rate=0, configuration=configuration),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
    ):

        async def ask(**headers: str) -> int:
            url = f"https://127.0.0.1:{port}{VALIDATE_TRAINJOB}"
            async with asyncio.timeout(60):
                while True:
                    try:
                        async with session.post(url, json=review, headers=headers) as response:
                            return response.status
                    except aiohttp.ClientConnectorError:
                        await asyncio.sleep(0.02)

        assert await ask(traceparent="00-11111111111111111111111111111111-2222222222222222-00") == 200
        assert await ask(traceparent="this is none") == 200
        assert await ask(traceparent=f"00-{theirs}-b7ad6b7169203331-01", **{"User-Agent": "kube-apiserver"}) == 200
        (span,) = await receiver.got(lambda: receiver.named(f"POST {VALIDATE_TRAINJOB}"))
        calls = await receiver.got(lambda: receiver.below(span))
    assert {each.trace_id for each in receiver.spans} == {theirs}, "nobody else asked for a trace"
    assert (span.parent_id, span.kind) == ("b7ad6b7169203331", SERVER)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": VALIDATE_TRAINJOB,
        "k8s.namespace.name": "default",
        "k8s.trainjob.name": "asked",
        "trainmaster.admission.allowed": True,
        "trainmaster.admission.operation": "CREATE",
        "trainmaster.admission.uid": "4711",
        "url.path": VALIDATE_TRAINJOB,
        "url.scheme": "https",
        "user_agent.original": "kube-apiserver",
    }
    assert {"plugin torch validate", "plugin jobset validate"} <= {each.name for each in calls}


@pytest.mark.guarantee("P-37")
async def test_a_collector_that_hangs_holds_nothing_up(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "CLOSE_GRACE", 0.05)
    monkeypatch.setattr(export_queue, "BATCH", 4)
    dropped = value_of("trainmaster_tracing_spans_total", {"result": "dropped"}) or 0
    with capture_logs() as logged:
        async with collector(hangs=True) as receiver:
            recording = new_tracing(Tracing(endpoint=receiver.endpoint, sampling_rate_per_million=ALWAYS))
            assert recording is not None
            recording._queue._size = 8
            async with recording, manager(stack.access, tracing=recording):
                for number in range(8):
                    await create(stack, f"job-{number}", suspend=True)
                await receiver.got(lambda: receiver.requests)
                for number in range(8):
                    await reconciled(stack, f"job-{number}")
                await eventually(
                    lambda: (value_of("trainmaster_tracing_spans_total", {"result": "dropped"}) or 0) > dropped
                )
            assert receiver.spans == []
    (line,) = [each for each in logged if each["event"].startswith("the last traces were not sent")]
    assert line["log_level"] == "warning"
    assert line["spans"] > 0


@pytest.mark.guarantee("P-37")
async def test_a_collector_that_refuses_is_told_of_once_and_so_is_its_return(stack: Stack) -> None:
    failed = value_of("trainmaster_tracing_spans_total", {"result": "failed"}) or 0
    with capture_logs() as logged:
        async with collector(status=400) as receiver, traced(stack, receiver.endpoint):
            for number in range(3):
                await create(stack, f"refused-{number}", suspend=True)
                await receiver.got(lambda: receiver.requests > number)  # noqa: B023 - it is called at once
                await reconciled(stack, f"refused-{number}")
            receiver.status = 200
            await stack.client.patch(TRAINJOBS, "default", "refused-0", {"metadata": {"labels": {"a": "b"}}})
            await receiver.got(lambda: receiver.spans)
            await receiver.got(lambda: any(each["event"] == "traces are sent again" for each in logged))
    (line,) = [each for each in logged if each["event"].startswith("traces cannot be sent")]
    assert line["endpoint"] == f"http://{receiver.endpoint}/v1/traces"
    assert "400" in line["error"]
    (again,) = [each for each in logged if each["event"] == "traces are sent again"]
    lost = (value_of("trainmaster_tracing_spans_total", {"result": "failed"}) or 0) - failed
    assert again["lost"] == lost > 0


@pytest.mark.guarantee("P-37")
async def test_nobody_listens(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with capture_logs() as logged:
        async with traced(stack, f"127.0.0.1:{free_port()}"):
            await create(stack, "unheard", suspend=True)
            await reconciled(stack, "unheard")
            await eventually(lambda: any(each["event"].startswith("traces cannot be sent") for each in logged))


@asynccontextmanager
async def process(tmp_path: Path, endpoint: str, **environment: str) -> AsyncIterator[Running]:
    """Run a manager that traces everything as a program."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\nwebhook: {enabled: false}\n"
        'metrics: {bindAddress: "0"}\nhealth: {healthProbeBindAddress: "0"}\nshutdownDelayDuration: 0s\n'
        "leaderElection: {leaderElect: true, resourceNamespace: default}\n"
        f"tracing: {{endpoint: '{endpoint}', samplingRatePerMillion: 1000000}}\n"
    )
    kubeconfig = str(next(tmp_path.rglob("kubeconfig")))
    arguments = ("manager", "--config", str(configuration), "--kubeconfig", kubeconfig)
    async with started(*arguments, cwd=tmp_path, **environment) as running:
        await eventually(lambda: any("lease acquired" in line for line in running.err))
        yield running


@pytest.mark.nightly
@pytest.mark.guarantee("M-2")
async def test_what_was_traced_last_is_sent_before_the_process_ends(stack: Stack, tmp_path: Path) -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20collectors-token"}
    async with collector() as receiver, process(tmp_path, receiver.endpoint, **headers) as running:
        await create(stack, "last", suspend=True)
        await reconciled(stack, "last")
        running.process.terminate()
        finished = await running.finish(code=0)
    assert "collectors-token" not in finished.err
    assert reconciles(receiver, "last")
    assert receiver.headers[0]["authorization"] == "Bearer collectors-token"
    assert not [each for each in receiver.spans if LEASES.plural in each.attributes.get("url.path", "")]


@pytest.mark.nightly
@pytest.mark.guarantee("P-37")
async def test_a_process_ends_in_order_although_its_collector_hangs(stack: Stack, tmp_path: Path) -> None:
    async with collector(hangs=True) as receiver, process(tmp_path, receiver.endpoint) as running:
        await create(stack, "hung", suspend=True)
        await reconciled(stack, "hung")
        await receiver.got(lambda: receiver.requests)
        running.process.terminate()
        finished = await running.finish()
        assert not receiver.answers.is_set()
    assert finished.code == 0, finished.err
    assert "the last traces were not sent" in finished.err
    assert "Traceback" not in finished.err
    assert (await stack.client.get(LEASES, "default", "trainer.kubeflow.org"))["spec"]["holderIdentity"] == ""


async def test_an_exemplar_leads_to_the_trace_of_the_job_that_was_measured(stack: Stack) -> None:
    """The last one that was recorded when it was measured."""

    async def measured() -> dict[str, str] | None:
        buckets = series("trainmaster_trainjob_time_to_jobset_seconds_bucket")
        exemplars = [each.exemplar.labels for each in buckets if each.exemplar]
        return next((each for each in exemplars if each["trainjob"] == "default/measured"), None)

    async with collector() as receiver, traced(stack, receiver.endpoint):
        await create(stack, "measured")
        trace = (await until(measured))["trace_id"]
        await receiver.got(lambda: [each for each in reconciles(receiver, "measured") if each.trace_id == trace])
