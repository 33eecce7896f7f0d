"""What the manager has told of containers that failed, for the case that their pods, or the job, are gone by now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from trainmaster.controller.condition_types import CONTAINER_FAILED
from trainmaster.controller.container_failures import OOM_KILLED, container_failures
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.last_said import said_cause
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding
from trainmaster.controller.explain.times import parse_time
from trainmaster.controller.explain.view import JobView, condition_since
from trainmaster.runtime.api.constants import ANCESTORS, FAILED, TRAINER_ANCESTOR

_FAILURE: Final = re.compile(
    r"(?P<who>[^;:\n]+) \(pod (?P<pod>\S+), container (?P<container>\S+)\) failed(?: at (?P<at>\S+))? "
    r"with exit code (?P<code>\d+)(?: \((?P<why>[^)]*)\))?[^\n]*"
)
"""As the manager words the first failure of an attempt."""

_INITIALIZERS: Final = frozenset(ANCESTORS) - {TRAINER_ANCESTOR}
_DISRUPTIONS: Final = (
    (re.compile(r"\bPreemptionByScheduler\b"), Cause.PREEMPTED),
    (re.compile(r"\bDeletionByTaintManager\b|\bNodeLost\b|\bContainerStatusUnknown\b"), Cause.NODE_LOST),
    (re.compile(r"\bEvict(?:ed|ionByEvictionAPI)\b|\bTerminationByKubelet\b"), Cause.EVICTED),
)


def told_by_status(view: JobView) -> Iterator[Finding]:
    """The failure that conditions of the job tell of, or events if it is gone, where no pod tells of any."""
    # What pods or the condition tell, `failures` reads.
    if CONTAINER_FAILED in view.conditions or any(container_failures(pod) for pod in view.pods or ()):
        return
    for text, at in _texts(view):
        told = list(_FAILURE.finditer(text))
        if told:
            last = told[-1]
            since = parse_time(last["at"]) or at
            evidence = Evidence(view.reference, last[0].strip(), since)
            yield Finding(_cause(last), Certainty.CERTAIN, (evidence,), since)
            return


def _texts(view: JobView) -> Iterator[tuple[str, datetime | None]]:
    """Return where the manager may have told of failures, what tells of the last one first."""
    failed = view.conditions.get(FAILED) or {}
    yield str(failed.get("message") or ""), condition_since(failed)
    for event in reversed(list(view.events_about(view.kind, view.name))):
        if event.reason == CONTAINER_FAILED and view.is_deleted:
            yield event.note, event.last


def _cause(told: re.Match[str]) -> Cause:
    if OOM_KILLED in (told["why"] or ""):
        return Cause.OUT_OF_MEMORY
    for pattern, cause in _DISRUPTIONS:
        if pattern.search(told[0]):
            return cause
    if told["container"] in _INITIALIZERS:
        return Cause.INIT_CONTAINER_FAILED
    return said_cause([told[0].partition("): ")[2] or told[0]]) or Cause.CONTAINER_FAILED
