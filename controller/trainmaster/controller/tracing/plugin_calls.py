"""A span for each call of a plugin that a reconcile or a review makes."""

from __future__ import annotations

import time

from opentelemetry import trace

from trainmaster.controller.plugins.observer import result_of
from trainmaster.controller.tracing.attributes import add_exception
from trainmaster.runtime.framework.calls import Observer
from trainmaster.runtime.framework.interface import Rejected


class TracedPluginCalls:
    """The observer of a plugin framework that records calls, after another one was told of them.

    Args:
        observer: The other one.
        tracer: Makes the spans.
    """

    def __init__(self, observer: Observer, tracer: trace.Tracer) -> None:
        self._observer = observer
        self._tracer = tracer

    def __call__(self, plugin: str, phase: str, seconds: float, error: BaseException | None) -> None:
        """Take in one call."""
        self._observer(plugin, phase, seconds, error)
        if not trace.get_current_span().is_recording():
            return
        ended = time.time_ns()
        span = self._tracer.start_span(
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
