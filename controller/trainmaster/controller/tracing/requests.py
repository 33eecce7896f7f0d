"""A span for each request to the API server that a reconcile or a review makes, around the transport of a client.

The server gets the `traceparent` of that span, so that what it records of the request is in the same trace. Requests of
caches, the election and events belong to no reconcile: they have neither.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final, Self
from urllib.parse import urlencode, urlsplit

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from trainmaster.controller.kube.rest.transport import Guard, Response, Transport
from trainmaster.controller.tracing.attributes import ERROR_TYPE, NAMESPACE, add_exception

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_PORTS: Final = {"http": 80, "https": 443}


class TracedTransport:
    """A transport that records what it sends, where that is a part of something that is recorded.

    Args:
        transport: Sends.
        tracer: Makes the spans.
        server: The URL of the server.
    """

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
        if not trace.get_current_span().is_recording():
            return await self._transport.send(
                method, path, params=params, headers=headers, body=body, streaming=streaming, guard=guard
            )
        span = self._start(method, path, params)
        carrier = dict(headers)
        _PROPAGATOR.inject(carrier, context=trace.set_span_in_context(span))
        try:
            response = await self._transport.send(
                method, path, params=params, headers=carrier, body=body, streaming=streaming, guard=guard
            )
        except BaseException as error:
            add_exception(span, error)
            span.end()
            raise
        span.set_attribute("http.response.status_code", response.status)
        if response.status >= 400:
            span.set_attribute(ERROR_TYPE, str(response.status))
            span.set_status(Status(StatusCode.ERROR))
        return _TracedResponse(response, span)

    def _start(self, method: str, path: str, params: Mapping[str, str]) -> trace.Span:
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

    def __init__(self, response: Response, span: trace.Span) -> None:
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
