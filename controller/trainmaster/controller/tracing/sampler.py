"""Which traces are recorded.

Guarantees:
- What has a parent is recorded if that is, whoever made it.
- Of the reconciles of one object either all are recorded or none, whichever replica leads: its UID decides. So a trace
  of a job has no gaps, and a rate of one in a hundred still shows whole lives.
- Everything else is drawn by the random id of its trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes

_MILLION: Final = 1_000_000


def new_sampler(rate_per_million: int) -> Sampler:
    """Make the sampler of a rate."""
    return ParentBased(root=_ObjectSampler(rate_per_million / _MILLION))


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
