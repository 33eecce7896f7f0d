"""What the manager says of pods that do not start, for those who could not look at pods themselves."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.controller.condition_types import WAITING
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.conditions import cause_of
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding
from trainmaster.controller.explain.view import JobView, condition_since


def told_to_wait(view: JobView) -> Iterator[Finding]:
    """The cause that the condition Waiting tells of, where nobody looked at the pods."""
    condition = view.conditions.get(WAITING)
    if view.pods is not None or condition is None:
        return
    cause = cause_of({WAITING: condition})
    if cause is None or cause is Cause.UNKNOWN:
        return
    since = condition_since(condition)
    evidence = Evidence(view.reference, str(condition.get("message") or condition["reason"]), since)
    named = tuple(line.replace("JOB", f"{view.name} -n {view.namespace}") for line in cause.advice)
    yield Finding(cause, Certainty.LIKELY, (evidence,), since, named)
