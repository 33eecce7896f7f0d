"""The spans: of reconciles, of their requests to the API server and calls of plugins, and of reviews.

Each reconcile is a trace of its own: one trace for a whole life would grow for weeks, beyond what backends take (Tempo
refuses traces of more than 5 MB by default). What belongs together has the same attributes `k8s.trainjob.uid`,
`k8s.trainjob.name` and `k8s.namespace.name`, by which backends search, and each span of a reconcile links to the one
before it of the same object.

The API server gets the `traceparent` of the span of a request, so that what it records is in the same trace; it sends
one with each review, whose span is in its trace. Requests of caches, the election and events belong to no reconcile:
they have no spans.

Attributes and events are those of OpenTelemetry's semantic conventions. What these have no name for is named in their
manner: objects of other kinds by `k8s.trainjob.name` and `k8s.trainjob.uid`, as there are `k8s.job.name` and
`k8s.pod.uid`; what only we know begins with `trainmaster.`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final, Self
from urllib.parse import urlencode, urlsplit

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as HttpHandler
from aiohttp.typedefs import Middleware
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from trainmaster.controller.job_fields import mapping
from trainmaster.controller.kube.rest.transport import Guard, Response, Transport
from trainmaster.controller.plugins.observer import result_of
from trainmaster.controller.redaction import redact
from trainmaster.controller.webhooks.handlers import Handler
from trainmaster.controller.webhooks.review import AdmissionRequest, AdmissionResponse
from trainmaster.runtime.framework.calls import Observer, text_of
from trainmaster.runtime.framework.interface import Rejected

ERROR_TYPE: Final = "error.type"
NAMESPACE: Final = "k8s.namespace.name"
CONTROLLER: Final = "trainmaster.controller"
RESULT: Final = "trainmaster.reconcile.result"
STATUS_CODE: Final = "http.response.status_code"

_LONGEST: Final = 1024
"""Characters of the text of an error; the log has all of it."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_PORTS: Final = {"http": 80, "https": 443}


def object_attributes(kind: str, namespace: str, name: str, uid: str | None = None) -> dict[str, str]:
    """Return which object a span is about."""
    prefix = f"k8s.{kind.lower()}"
    attributes = {f"{prefix}.name": name, NAMESPACE: namespace, f"{prefix}.uid": uid}
    return {key: value for key, value in attributes.items() if value}


def add_exception(span: Span, error: BaseException | str) -> None:
    """Say in a span what went wrong, and that it did; without a traceback, which is in the log."""
    text = redact(error if isinstance(error, str) else text_of(error))[:_LONGEST]
    attributes = {"exception.message": text}
    if not isinstance(error, str):
        attributes["exception.type"] = type(error).__name__
        span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.add_event("exception", attributes)
    span.set_status(Status(StatusCode.ERROR, text))


class ReconcileSpan:
    """The span of one reconcile, as the controller sees it."""

    __slots__ = ("_span", "span_id", "trace_id")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.trace_id, self.span_id = _ids(span.get_span_context())

    def add_error(self, error: BaseException | str) -> None:
        """Take note of what went wrong."""
        add_exception(self._span, error)

    def set_result(self, result: str) -> None:
        """Take note of how it ended."""
        self._span.set_attribute(RESULT, result)


class ReconcileTracer:
    """Records the reconciles of one controller.

    Args:
        last: The last span of each object by its UID, of all controllers.
        uid: Returns the UID of the object of a key, if there is one.
    """

    def __init__(
        self,
        tracer: trace.Tracer,
        last: MutableMapping[str, trace.SpanContext],
        *,
        controller: str,
        kind: str,
        uid: Callable[[str], str | None],
    ) -> None:
        self._tracer = tracer
        self._last = last
        self._controller = controller
        self._kind = kind
        self._uid = uid

    @contextmanager
    def reconcile(self, key: str) -> Iterator[ReconcileSpan | None]:
        """Make what happens within the block a part of the reconcile of a key; None: it is not recorded."""
        namespace, _, name = key.rpartition("/")
        uid = self._uid(key)
        before = self._last.get(uid or "")
        with self._tracer.start_as_current_span(
            f"reconcile {self._kind}",
            context=Context(),
            attributes=object_attributes(self._kind, namespace, name, uid) | {CONTROLLER: self._controller},
            links=[trace.Link(before)] if before is not None else [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if not span.is_recording():
                yield None
                return
            if uid is not None:
                self._last[uid] = span.get_span_context()
            yield ReconcileSpan(span)

    def current(self) -> ReconcileSpan | None:
        """Return the span of the reconcile that this is called in."""
        span = trace.get_current_span()
        return ReconcileSpan(span) if span.is_recording() else None


def traced_plugin_calls(observer: Observer, tracer: trace.Tracer) -> Observer:
    """Return an observer that records each call of a plugin, after another one was told of it."""

    def observe(plugin: str, phase: str, seconds: float, error: BaseException | None) -> None:
        observer(plugin, phase, seconds, error)
        if not trace.get_current_span().is_recording():
            return
        ended = time.time_ns()
        span = tracer.start_span(
            f"plugin {plugin} {phase}",
            start_time=ended - int(seconds * 1e9),
            attributes={
                "trainmaster.plugin.name": plugin,
                "trainmaster.plugin.phase": phase,
                "trainmaster.plugin.result": "success" if error is None else result_of(error),
            },
        )
        # A plugin that rejects has answered.
        if error is not None and not isinstance(error, Rejected):
            add_exception(span, error)
        span.end(ended)

    return observe


class TracedTransport:
    """A transport that records what it sends, where that is a part of something that is recorded."""

    def __init__(self, transport: Transport, tracer: trace.Tracer, *, server: str) -> None:
        parts = urlsplit(server)
        self._transport = transport
        self._tracer = tracer
        self._server = server
        self._common: dict[str, str | int] = {
            "server.address": parts.hostname or "",
            "server.port": parts.port or _PORTS.get(parts.scheme, 0),
        }

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._transport.__aexit__(*exc_info)

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        streaming: bool,
        guard: Guard | None = None,
    ) -> Response:
        """Send one request, once, and return when the headers of its answer have arrived."""
        span = None
        if trace.get_current_span().is_recording():
            span = self._start(method, path, params)
            headers = carrier = dict(headers)
            _PROPAGATOR.inject(carrier, context=trace.set_span_in_context(span))
        try:
            response = await self._transport.send(
                method, path, params=params, headers=headers, body=body, streaming=streaming, guard=guard
            )
        except BaseException as error:
            if span is not None:
                add_exception(span, error)
                span.end()
            raise
        if span is None:
            return response
        _set_status_code(span, response.status, failed=response.status >= 400)
        return _TracedResponse(response, span)

    def _start(self, method: str, path: str, params: Mapping[str, str]) -> Span:
        template, namespace = url_template(path)
        query = f"?{urlencode(params)}" if params else ""
        attributes: dict[str, str | int] = {
            **self._common,
            "http.request.method": method,
            "url.full": f"{self._server}{path}{query}",
            "url.path": path,
            "url.template": template,
        }
        if namespace:
            attributes[NAMESPACE] = namespace
        return self._tracer.start_span(f"{method} {template}", kind=SpanKind.CLIENT, attributes=attributes)


class _TracedResponse:
    """An answer whose span ends when it has been read or given up."""

    __slots__ = ("_response", "_span")

    def __init__(self, response: Response, span: Span) -> None:
        self._response = response
        self._span = span

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    def chunks(self) -> AsyncIterator[bytes]:
        return self._response.chunks()

    def close(self) -> None:
        self._response.close()
        if self._span.is_recording():
            self._span.end()


def url_template(path: str) -> tuple[str, str]:
    """Return the path of a request with placeholders for names, and the namespace that it names, if it does.

    `/apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE`, and shorter ones; what is none stays as it is.
    """
    root, *parts = path.strip("/").split("/")
    head, parts = (parts[:1], parts[1:]) if root == "api" else (parts[:2], parts[2:])
    if root not in ("api", "apis") or not parts:
        return path, ""
    namespace = ""
    template = [root, *head]
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
        template += ["namespaces", "{namespace}"]
    template += [parts[0], *(["{name}", *parts[2:]] if len(parts) > 1 else [])]
    return "/" + "/".join(template), namespace


def review_middleware(tracer: trace.Tracer) -> Middleware:
    """Make the middleware of the webhooks: a span for each request, with what HTTP tells of it."""

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
            trace_id, span_id = _ids(span.get_span_context())
            with structlog.contextvars.bound_contextvars(trace_id=trace_id, span_id=span_id):
                response = await handler(request)
            _set_status_code(span, response.status, failed=response.status >= 500)
            return response

    return record


def traced_handler(handler: Handler) -> Handler:
    """Have a webhook say in the span of its request, once that has been read, what it decided about."""

    async def judge(request: AdmissionRequest) -> AdmissionResponse:
        response = await handler(request)
        span = trace.get_current_span()
        if span.is_recording():
            _describe(span, request, response)
        return response

    return judge


def _describe(span: Span, request: AdmissionRequest, response: AdmissionResponse) -> None:
    obj = request.object or request.old_object or {}
    kind, name = obj.get("kind"), mapping(obj.get("metadata")).get("name")
    if isinstance(kind, str) and isinstance(name, str):
        span.set_attributes(object_attributes(kind, request.namespace, name))
    span.set_attributes(
        {
            "trainmaster.admission.uid": request.uid,
            "trainmaster.admission.operation": request.operation,
            "trainmaster.admission.allowed": response.allowed,
        }
    )


def _set_status_code(span: Span, status: int, *, failed: bool) -> None:
    span.set_attribute(STATUS_CODE, status)
    if failed:
        span.set_attribute(ERROR_TYPE, str(status))
        span.set_status(Status(StatusCode.ERROR))


def _ids(context: trace.SpanContext) -> tuple[str, str]:
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
