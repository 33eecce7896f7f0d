"""What the status of a job tells of containers that failed, for the case that their pods are gone by now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainmaster.controller.condition_types import CONTAINER_FAILED
from trainmaster.controller.container_failures import OOM_KILLED, container_failures
from trainmaster.controller.explain.cause import Cause
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
    """The failure that the conditions of the job tell of, if no pod tells of any."""
    if any(container_failures(pod) for pod in view.pods or ()):
        return
    for name in (CONTAINER_FAILED, FAILED):
        condition = view.conditions.get(name) or {}
        told = list(_FAILURE.finditer(str(condition.get("message") or "")))
        if told:
            last = told[-1]
            since = parse_time(last["at"]) or condition_since(condition)
            evidence = Evidence(view.reference, last[0].strip(), since)
            yield Finding(_cause(last), Certainty.CERTAIN, (evidence,), since)
            return


def _cause(told: re.Match[str]) -> Cause:
    if OOM_KILLED in (told["why"] or ""):
        return Cause.OUT_OF_MEMORY
    for pattern, cause in _DISRUPTIONS:
        if pattern.search(told[0]):
            return cause
    return Cause.INIT_CONTAINER_FAILED if told["container"] in _INITIALIZERS else Cause.CONTAINER_FAILED
