"""Traces as the manager has them: what records, from its start to its end.

The exporter is OTLP over HTTP. `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`,
`OTEL_EXPORTER_OTLP_TIMEOUT` and the other variables of OpenTelemetry's specification are read by its SDK, and so are
`OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.

Guarantees:
- K-14: reconciles, the requests to the API server in them, and their calls of plugins are spans; so are reviews.
- K-14: of the reconciles of one object either all are recorded or none, whichever replica leads: its UID decides. So a
  trace of a job has no gaps, and a rate of one in a hundred still shows whole lives. What has a parent is recorded if
  that is, whoever made it; everything else is drawn by the random id of its trace.
- P-37: nothing waits for the collector, but the end of the manager, and that for a second.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Self

from aiohttp.typedefs import Middleware
from cachetools import LRUCache
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes

from trainmaster.controller.kube.rest.transport import Transport
from trainmaster.controller.operator_namespace import pod_namespace
from trainmaster.controller.tracing.export_queue import ExportQueue
from trainmaster.controller.tracing.spans import (
    ReconcileTracer,
    TracedTransport,
    review_middleware,
    traced_handler,
    traced_plugin_calls,
)
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.runtime.framework.calls import Observer
from trainmaster.runtime.version import __version__

CLOSE_GRACE: Final = 1.0
"""Seconds at the end for what is queued; with the servers that makes less than the 29 s that a stop may take."""

MOST_OBJECTS: Final = 10_000
"""Whose last span is remembered; some hundred bytes each."""


class Tracing:
    """Records; an async context manager that sends what is left in the end.

    Args:
        exporter: Sends spans; by default, by OTLP over HTTP.

    Raises:
        ValueError: A variable of the environment cannot be.
    """

    def __init__(self, endpoint: str, *, rate_per_million: int, exporter: SpanExporter | None = None) -> None:
        exporter = exporter or OTLPSpanExporter(endpoint=endpoint)
        provider = TracerProvider(
            sampler=new_sampler(rate_per_million), resource=_process_resource(), shutdown_on_exit=False
        )
        self._queue = ExportQueue(exporter, endpoint=endpoint)
        provider.add_span_processor(self._queue)
        self._tracer = provider.get_tracer("trainmaster", __version__)
        self._last: LRUCache[str, trace.SpanContext] = LRUCache(MOST_OBJECTS)
        """The last span of each object that was reconciled, by its UID."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._queue.close, CLOSE_GRACE)

    def reconciles(self, controller: str, kind: str, uid: Callable[[str], str | None]) -> ReconcileTracer:
        """Return what records the reconciles of a controller; `uid` returns that of the object of a key."""
        return ReconcileTracer(self._tracer, self._last, controller=controller, kind=kind, uid=uid)

    def trace_id(self, uid: str) -> str:
        """Return the trace of the last recorded reconcile of an object; empty if there was none."""
        context = self._last.get(uid)
        return "" if context is None else trace.format_trace_id(context.trace_id)

    def transport(self, transport: Transport, *, server: str) -> Transport:
        """Return a transport that records what it sends."""
        return TracedTransport(transport, self._tracer, server=server)

    def plugin_calls(self, observer: Observer) -> Observer:
        """Return an observer that records calls, and tells another one of them."""
        return traced_plugin_calls(observer, self._tracer)

    def review_middleware(self) -> Middleware:
        """Return what records the requests to webhooks."""
        return review_middleware(self._tracer)

    def handlers(self, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """Return handlers that say in those records what they decided."""
        return {path: traced_handler(handler) for path, handler in handlers.items()}


def new_sampler(rate_per_million: int) -> Sampler:
    """Make the sampler of a rate."""
    return ParentBased(root=_ObjectSampler(rate_per_million / 1_000_000))


class _ObjectSampler(TraceIdRatioBased):
    """Takes the UID of an object, if a span names one, for the id of its trace."""

    def should_sample(  # noqa: PLR0917 - the SDK's
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        for key, value in (attributes or {}).items():
            if key.endswith(".uid"):
                trace_id = int.from_bytes(blake2b(str(value).encode(), digest_size=8).digest())
                break
        return super().should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)


def _process_resource() -> Resource:
    """Return whose spans they are: this process, unless the environment has another name for it."""
    attributes = {
        "service.name": "trainmaster",
        "service.version": __version__,
        "service.instance.id": os.environ.get("POD_NAME") or socket.gethostname(),
        "k8s.pod.name": os.environ.get("POD_NAME"),
        "k8s.namespace.name": pod_namespace(),
    }
    ours = Resource.create({name: value for name, value in attributes.items() if value})
    return ours.merge(OTELResourceDetector().detect())
