"""`explain`: the causes of what a view shows, the likeliest first, with the state and the timeline of the job.

Guarantees:
- It is pure, and raises nothing for what the API server, an older version or another controller may have put into
  objects.
- From what could not be looked at nothing is concluded; it is listed.
- A job that starts or runs as it should has no findings. One that does not has at least one: `Unknown` if no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.controller.explain.causes.table import FINDERS
from trainmaster.controller.explain.findings import Finding, ObjectReference
from trainmaster.controller.explain.ranking import ranked
from trainmaster.controller.explain.state import JobState, state_of
from trainmaster.controller.explain.timeline import Moment, timeline
from trainmaster.controller.explain.view import JobView, Unread


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say of a job."""

    job: ObjectReference
    state: JobState
    findings: Sequence[Finding]
    """Ranked: the first is the most likely cause; empty if the job is as it should be."""

    timeline: Sequence[Moment]
    """The oldest first."""

    unread: Sequence[Unread]


def explain(view: JobView) -> Explanation:
    """Explain the state of a job."""
    return Explanation(
        job=view.reference,
        state=state_of(view),
        findings=ranked(finding for find in FINDERS for finding in find(view)),
        timeline=timeline(view),
        unread=view.unread,
    )
