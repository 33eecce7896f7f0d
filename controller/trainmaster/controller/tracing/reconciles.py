"""A span for each reconcile, which says of which object it is, and leads to the reconcile of that object before it.

Each reconcile is a trace of its own: one trace for a whole life would grow for weeks, beyond what backends take (Tempo
refuses traces of more than 5 MB by default). What belongs together has the same attributes
`k8s.trainjob.uid`, `k8s.trainjob.name` and `k8s.namespace.name`, by which backends search, and each span a link to the
one before it, by which one goes back from reconcile to reconcile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cachetools import LRUCache
from opentelemetry import trace
from opentelemetry.context import Context

from trainmaster.controller.tracing.attributes import add_exception, object_attributes

CONTROLLER: Final = "trainmaster.controller"
RESULT: Final = "trainmaster.reconcile.result"

_MOST_OBJECTS: Final = 10_000
"""Whose last span is remembered; some hundred bytes each."""


class LastSpans:
    """The last span of each object that was reconciled, by its UID."""

    def __init__(self) -> None:
        self._contexts: LRUCache[str, trace.SpanContext] = LRUCache(_MOST_OBJECTS)

    def links(self, uid: str | None) -> list[trace.Link]:
        """Return the link to the span before, if there was one."""
        before = None if uid is None else self._contexts.get(uid)
        return [] if before is None else [trace.Link(before)]

    def trace_id(self, uid: str) -> str:
        """Return the trace of the last recorded reconcile of an object; empty if there was none."""
        context = self._contexts.get(uid)
        return "" if context is None else trace.format_trace_id(context.trace_id)

    def remember(self, uid: str | None, context: trace.SpanContext) -> None:
        """Take note of the last span of an object."""
        if uid is not None:
            self._contexts[uid] = context


class ReconcileSpan:
    """The span of one reconcile, as the controller sees it."""

    __slots__ = ("_span", "span_id", "trace_id")

    def __init__(self, span: trace.Span) -> None:
        context = span.get_span_context()
        self._span = span
        self.trace_id = trace.format_trace_id(context.trace_id)
        self.span_id = trace.format_span_id(context.span_id)

    def add_error(self, error: BaseException | str) -> None:
        """Take note of what went wrong."""
        add_exception(self._span, error)

    def set_result(self, result: str) -> None:
        """Take note of how it ended."""
        self._span.set_attribute(RESULT, result)


class ReconcileTracer:
    """Records the reconciles of one controller.

    Args:
        tracer: Makes the spans.
        last: Those of all controllers.
        controller: Its name.
        kind: What it reconciles.
        uid: Returns the UID of the object of a key, if there is one.
    """

    def __init__(
        self, tracer: trace.Tracer, last: LastSpans, *, controller: str, kind: str, uid: Callable[[str], str | None]
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
        attributes = object_attributes(self._kind, namespace, name, uid) | {CONTROLLER: self._controller}
        with self._tracer.start_as_current_span(
            f"reconcile {self._kind}",
            context=Context(),
            attributes=attributes,
            links=self._last.links(uid),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            if not span.is_recording():
                yield None
                return
            self._last.remember(uid, span.get_span_context())
            yield ReconcileSpan(span)

    def current(self) -> ReconcileSpan | None:
        """Return the span of the reconcile that this is called in."""
        span = trace.get_current_span()
        return ReconcileSpan(span) if span.is_recording() else None
