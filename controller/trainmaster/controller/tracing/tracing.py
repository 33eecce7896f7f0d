"""Traces as the manager has them: what records, from its start to its end.

Guarantees:
- K-14: reconciles, the requests to the API server in them, and their calls of plugins are spans; so are reviews.
- P-37: nothing waits for the collector, but the end of the manager, and that for a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Self

from aiohttp.typedefs import Middleware
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from trainmaster.controller.kube.rest.transport import Transport
from trainmaster.controller.tracing.export_queue import ExportQueue
from trainmaster.controller.tracing.plugin_calls import TracedPluginCalls
from trainmaster.controller.tracing.reconciles import LastSpans, ReconcileTracer
from trainmaster.controller.tracing.requests import TracedTransport
from trainmaster.controller.tracing.reviews import review_middleware, traced_handlers
from trainmaster.controller.tracing.sampler import new_sampler
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.runtime.framework.calls import Observer
from trainmaster.runtime.version import __version__

CLOSE_GRACE: Final = 1.0
"""Seconds at the end for what is queued; with the servers that makes less than the 29 s that a stop may take."""


class Tracing:
    """Records; an async context manager that sends what is left in the end.

    Args:
        exporter: Sends spans.
        endpoint: Where to, for the log.
        rate_per_million: How much is recorded.
        resource: Whose spans they are.

    Raises:
        ValueError: A variable of the environment cannot be.
    """

    def __init__(
        self, exporter: SpanExporter, *, endpoint: str, rate_per_million: int, resource: Resource | None = None
    ) -> None:
        provider = TracerProvider(sampler=new_sampler(rate_per_million), resource=resource, shutdown_on_exit=False)
        self._queue = ExportQueue(exporter, endpoint=endpoint)
        provider.add_span_processor(self._queue)
        self._tracer = provider.get_tracer("trainmaster", __version__)
        self._last = LastSpans()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._queue.close, CLOSE_GRACE)

    def reconciles(self, controller: str, kind: str, uid: Callable[[str], str | None]) -> ReconcileTracer:
        """Return what records the reconciles of a controller; `uid` returns that of the object of a key."""
        return ReconcileTracer(self._tracer, self._last, controller=controller, kind=kind, uid=uid)

    def trace_id(self, uid: str) -> str:
        """Return the trace of the last recorded reconcile of an object; empty if there was none."""
        return self._last.trace_id(uid)

    def transport(self, transport: Transport, *, server: str) -> Transport:
        """Return a transport that records what it sends."""
        return TracedTransport(transport, self._tracer, server=server)

    def plugin_calls(self, observer: Observer) -> Observer:
        """Return an observer that records calls, and tells another one of them."""
        return TracedPluginCalls(observer, self._tracer)

    def review_middleware(self) -> Middleware:
        """Return what records the requests to webhooks."""
        return review_middleware(self._tracer)

    def handlers(self, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """Return handlers that say in those records what they decided."""
        return traced_handlers(handlers)
