"""The family of traces: what became of the spans that were recorded.

- `exported`: the collector took them; `failed`: it did not, or could not be reached; `dropped`: there were too many at
  once, or the manager was about to end.
"""

from __future__ import annotations

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter

SPANS = Counter(
    "trainmaster_tracing_spans_total", "Spans of traces by what became of them", ("result",), registry=REGISTRY
)
