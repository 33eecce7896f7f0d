"""Which finding comes first: one that explains others before those; then what is surer; then what was earlier. Pure.

What began later explains nothing that happened before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import Evidence, Finding

_KEEPS_PODS_FROM_STARTING: Final = frozenset(
    {
        Cause.GANG_INCOMPLETE,
        Cause.INIT_CONTAINER_FAILED,
        Cause.RENDEZVOUS_TIMEOUT,
        Cause.NAME_RESOLUTION_FAILED,
        Cause.DEADLINE_EXCEEDED,
    }
)
"""What follows where some pods of a job do not start: the others wait for them, or do not find them."""

_ENDS_CONTAINERS: Final = frozenset(
    {
        Cause.CONTAINER_FAILED,
        Cause.RENDEZVOUS_TIMEOUT,
        Cause.COLLECTIVE_TIMEOUT,
        Cause.BACKOFF_LIMIT_EXCEEDED,
        Cause.DEADLINE_EXCEEDED,
    }
)
"""What follows where a rank fails: the others lose it, and what is started anew is started too often."""

_TAKES_PODS_AWAY: Final = _ENDS_CONTAINERS | {Cause.UNSCHEDULABLE, Cause.GANG_INCOMPLETE}

EXPLAINS: Final[Mapping[Cause, frozenset[Cause]]] = {
    Cause.RUNTIME_MISSING: frozenset({Cause.DEADLINE_EXCEEDED}),
    Cause.REFUSED: _KEEPS_PODS_FROM_STARTING,
    Cause.PLUGIN_FAILED: _KEEPS_PODS_FROM_STARTING,
    Cause.QUOTA_EXCEEDED: _KEEPS_PODS_FROM_STARTING | {Cause.SUSPENDED, Cause.UNSCHEDULABLE},
    Cause.SUSPENDED: frozenset({Cause.DEADLINE_EXCEEDED}),
    Cause.GANG_INCOMPLETE: frozenset({Cause.DEADLINE_EXCEEDED, Cause.RENDEZVOUS_TIMEOUT}),
    Cause.UNSCHEDULABLE: _KEEPS_PODS_FROM_STARTING,
    Cause.VOLUME_PENDING: _KEEPS_PODS_FROM_STARTING | {Cause.UNSCHEDULABLE},
    Cause.IMAGE_PULL_FAILED: _KEEPS_PODS_FROM_STARTING,
    Cause.CONTAINER_CONFIG_ERROR: _KEEPS_PODS_FROM_STARTING,
    Cause.INIT_CONTAINER_FAILED: (_KEEPS_PODS_FROM_STARTING | _ENDS_CONTAINERS) - {Cause.INIT_CONTAINER_FAILED},
    Cause.OUT_OF_MEMORY: _ENDS_CONTAINERS | {Cause.INIT_CONTAINER_FAILED},
    Cause.EVICTED: _TAKES_PODS_AWAY | {Cause.OUT_OF_MEMORY},
    Cause.PREEMPTED: _TAKES_PODS_AWAY | {Cause.EVICTED},
    Cause.NODE_LOST: _TAKES_PODS_AWAY | {Cause.EVICTED},
    Cause.NAME_RESOLUTION_FAILED: _ENDS_CONTAINERS,
    Cause.WORLD_SIZE_MISMATCH: _ENDS_CONTAINERS,
    Cause.NO_PROGRESS: _ENDS_CONTAINERS,
    Cause.LOG_RULE_BROKEN: _ENDS_CONTAINERS,
    Cause.RENDEZVOUS_TIMEOUT: _ENDS_CONTAINERS - {Cause.RENDEZVOUS_TIMEOUT},
    Cause.COLLECTIVE_TIMEOUT: _ENDS_CONTAINERS - {Cause.COLLECTIVE_TIMEOUT, Cause.RENDEZVOUS_TIMEOUT},
    Cause.SIDECAR_RUNNING: frozenset({Cause.DEADLINE_EXCEEDED}),
    Cause.CONTAINER_FAILED: _ENDS_CONTAINERS - {Cause.CONTAINER_FAILED},
    Cause.DEADLINE_EXCEEDED: frozenset({Cause.BACKOFF_LIMIT_EXCEEDED}),
    Cause.JOBSET_CONTROLLER_ABSENT: _KEEPS_PODS_FROM_STARTING | {Cause.REFUSED},
    Cause.MANAGER_ABSENT: frozenset({Cause.ANOTHER_MANAGER_LEADS, Cause.RUNTIME_MISSING}),
}
"""What follows from a cause: where both are found, that one is its symptom."""

_TIMELESS: Final = frozenset(
    {
        Cause.SUSPENDED,
        Cause.GANG_INCOMPLETE,
        Cause.UNSCHEDULABLE,
        Cause.ANOTHER_MANAGER_LEADS,
        Cause.BACKOFF_LIMIT_EXCEEDED,
    }
)
"""Causes that are how it is, not something that happened; and the limit, which failures use up whatever their clocks
say. Before and after is no matter of theirs.
"""

MOST_EVIDENCE: Final = 10
"""Of one finding."""

_SLACK: Final = timedelta(seconds=2)
"""By how much clocks may differ, and times are rounded."""

_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def ranked(findings: Iterable[Finding]) -> Sequence[Finding]:
    """Return the findings, the most likely cause of all that is seen first; of each cause one."""
    left = sorted(_merged(findings), key=_order)
    order: list[Finding] = []
    while left:
        first = next((each for each in left if not any(explains(other, each) for other in left)), left[0])
        left.remove(first)
        order.append(first)
    return order


def explains(finding: Finding, other: Finding) -> bool:
    """Tell whether one finding is the reason of another one."""
    if other.cause not in EXPLAINS.get(finding.cause, ()):
        return False
    if finding.cause in EXPLAINS.get(other.cause, ()):  # each may be the reason of the other one
        return _time(finding) < _time(other) - _SLACK
    if other.cause in _TIMELESS or finding.since is None or other.since is None:
        return True
    return finding.since <= other.since + _SLACK


def _order(finding: Finding) -> tuple[int, datetime, str]:
    return -finding.certainty, _time(finding), finding.cause


def _time(finding: Finding) -> datetime:
    return finding.since or _LATEST


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Put together what different finders say of one cause; what is surest comes first."""
    by_cause: dict[Cause, list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault(finding.cause, []).append(finding)
    for cause, found in by_cause.items():
        found.sort(key=_order)
        evidence: dict[Evidence, None] = dict.fromkeys(each for one in found for each in one.evidence)
        since = min((each.since for each in found if each.since is not None), default=None)
        advice = tuple(dict.fromkeys(line for each in found for line in each.advice))
        yield Finding(cause, found[0].certainty, tuple(evidence)[:MOST_EVIDENCE], since, advice)
