"""The way of ended spans to the exporter: a bounded queue, and a thread that empties it.

Guarantees:
- P-37: whoever ends a span waits for nothing: with a full queue the span is dropped and counted.
- An exporter that hangs, fails or raises concerns its own thread only. The log tells of it once, when it begins, and
  once when it is over; the metrics count what was lost.
- `close` sends what is queued, and gives up when its time is over.

The processor of the SDK has the same thread, but formats a log record for each span that it drops, and its end takes as
long as the exporter likes.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

import structlog
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from trainmaster.controller.redaction import redact
from trainmaster.metrics.tracing import SPANS

log = structlog.get_logger(__name__)

QUEUE: Final = 4096
"""Spans that wait; a reconcile has up to thirty, each of about a kilobyte."""

BATCH: Final = 512
"""Spans of one request to the collector."""

INTERVAL: Final = 2.0
"""Seconds until fewer spans than a batch are sent."""

_EXPORTED: Final = SPANS.labels("exported")
_FAILED: Final = SPANS.labels("failed")
_DROPPED: Final = SPANS.labels("dropped")


class ExportQueue(SpanProcessor):
    """Takes spans that have ended.

    Args:
        exporter: Sends them; called from one thread only.
        size: How many may wait.
    """

    def __init__(self, exporter: SpanExporter, *, endpoint: str, size: int = QUEUE) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._size = size
        self._spans: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._gave_up = False
        self._lost = 0
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is done before a span has ended."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span; from any thread."""
        if self._closing or len(self._spans) >= self._size:
            self._lost += 1
            _DROPPED.inc()
            return
        self._spans.append(span)
        if len(self._spans) >= BATCH:
            self._wake.set()

    def close(self, timeout: float) -> None:
        """Send what is queued, and end; after so many seconds give up."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout)
        self._gave_up = True
        if self._thread.is_alive():
            log.warning(
                "the last traces were not sent: the collector did not take them in time",
                endpoint=self._endpoint,
                spans=len(self._spans),
                seconds=timeout,
            )
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(INTERVAL)
            self._wake.clear()
            self._send()
        self._send()  # what came between the last look at the queue and its end

    def _send(self) -> None:
        while self._spans and not self._gave_up:
            batch = [self._spans.popleft() for _ in range(min(BATCH, len(self._spans)))]
            reason = self._export(batch)
            if reason is None:
                _EXPORTED.inc(len(batch))
            else:
                self._lost += len(batch)
                _FAILED.inc(len(batch))
            self._tell(reason)

    def _export(self, batch: list[ReadableSpan]) -> str | None:
        """Send a batch; returns why it could not be sent."""
        _SAID.text = ""
        try:
            if self._exporter.export(batch) is SpanExportResult.SUCCESS:
                return None
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return _SAID.text or "unknown"

    def _tell(self, reason: str | None) -> None:
        """Log that an outage begins or ends."""
        if reason is not None and not self._is_failing and not self._gave_up:
            log.warning(
                "traces cannot be sent, and are lost until they can; everything else goes on",
                endpoint=self._endpoint,
                error=redact(reason),
                hint="see whether a collector takes OTLP over HTTP at tracing.endpoint",
            )
        elif reason is None and self._is_failing:
            log.info("traces are sent again", endpoint=self._endpoint, lost=self._lost)
            self._lost = 0
        self._is_failing = reason is not None


class _LastRecord(threading.local, logging.Filter):
    """Keeps the last thing that the exporter of this thread had to say, instead of a line in the log for each batch."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return False


_SAID: Final = _LastRecord()
logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").addFilter(_SAID)
