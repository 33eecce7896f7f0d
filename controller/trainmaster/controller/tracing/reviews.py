"""A span for each request to the webhooks, in the trace of whoever sent it: API servers send a `traceparent`.

The span has what HTTP tells; what the review is about is known when it has been read, and added by its handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as HttpHandler
from aiohttp.typedefs import Middleware
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from trainmaster.controller.tracing.attributes import ERROR_TYPE, object_attributes
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import AdmissionRequest, AdmissionResponse

_PROPAGATOR: Final = TraceContextTextMapPropagator()


def review_middleware(tracer: trace.Tracer) -> Middleware:
    """Make the middleware of the webhooks."""

    @web.middleware
    async def record(request: web.Request, handler: HttpHandler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        with tracer.start_as_current_span(
            f"{request.method} {route}".rstrip(),
            context=_PROPAGATOR.extract(request.headers),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": request.method,
                "http.route": route,
                "url.path": request.path,
                "url.scheme": request.scheme,
                "user_agent.original": request.headers.get("User-Agent", ""),
            },
        ) as span:
            if not span.is_recording():
                return await handler(request)
            context = span.get_span_context()
            ids = trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
            with structlog.contextvars.bound_contextvars(trace_id=ids[0], span_id=ids[1]):
                response = await handler(request)
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 500:
                span.set_attribute(ERROR_TYPE, str(response.status))
                span.set_status(Status(StatusCode.ERROR))
            return response

    return record


def traced_handlers(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """Have handlers say in the span of their request what they decided about."""
    return {path: _traced(handler) for path, handler in handlers.items()}


def _traced(handler: Handler) -> Handler:
    async def judge(request: AdmissionRequest) -> AdmissionResponse:
        response = await handler(request)
        span = trace.get_current_span()
        if span.is_recording():
            _describe(span, request, response)
        return response

    return judge


def _describe(span: trace.Span, request: AdmissionRequest, response: AdmissionResponse) -> None:
    obj = request.object or request.old_object or {}
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = obj.get("kind")
    if isinstance(kind, str) and isinstance(name, str):
        span.set_attributes(object_attributes(kind, request.namespace, name))
    span.set_attributes(
        {
            "trainmaster.admission.uid": request.uid,
            "trainmaster.admission.operation": request.operation,
            "trainmaster.admission.allowed": response.allowed,
        }
    )
