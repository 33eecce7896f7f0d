"""A collector that takes traces by OTLP over HTTP, or does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.commands import eventually
from support.web import listening

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
