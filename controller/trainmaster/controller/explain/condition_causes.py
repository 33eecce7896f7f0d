"""The cause that the conditions of a job tell of, for those who ask nobody else: metrics and history. Pure.

What only pods and events tell is Unknown here; where the manager has looked, and noted a cause in the status, that
counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trainmaster.controller.conditions import (
    BLOCKED,
    CONTAINER_FAILED,
    PLUGIN_FAILED,
    PLUGIN_QUARANTINED,
    RUNTIME_NOT_FOUND,
    WAITING,
)
from trainmaster.controller.container_failures import OOM_KILLED
from trainmaster.controller.explain.cause import Cause
from trainmaster.runtime.api.constants import (
    DEADLINE_EXCEEDED_REASON,
    FAILED,
    LOG_RULE_BROKEN_REASON,
    MAX_RESTARTS_EXCEEDED_REASON,
    NO_PROGRESS_REASON,
    RUNTIME_NOT_SUPPORTED_REASON,
    SUSPENDED,
    WORLD_SIZE_MISMATCH_REASON,
)
from trainmaster.runtime.jsontree import JsonObject

REACHED_MAX_RESTARTS: Final = "ReachedMaxRestarts"
"""The reason of a JobSet that was restarted as often as it may be."""

_EXIT_CODE: Final = re.compile(r"\bwith exit code (\d+)\b")
_NAMES: Final = frozenset(Cause)
OF_POLICY: Final[Mapping[str, Cause]] = {
    NO_PROGRESS_REASON: Cause.NO_PROGRESS,
    LOG_RULE_BROKEN_REASON: Cause.LOG_RULE_BROKEN,
    WORLD_SIZE_MISMATCH_REASON: Cause.WORLD_SIZE_MISMATCH,
}
"""How a resilience policy is broken."""

_BY_REASON: Final[Mapping[str, Mapping[str, Cause]]] = {
    FAILED: {
        DEADLINE_EXCEEDED_REASON: Cause.DEADLINE_EXCEEDED,
        **OF_POLICY,
        RUNTIME_NOT_SUPPORTED_REASON: Cause.RUNTIME_MISSING,
    },
    BLOCKED: {
        RUNTIME_NOT_FOUND: Cause.RUNTIME_MISSING,
        PLUGIN_FAILED: Cause.PLUGIN_FAILED,
        PLUGIN_QUARANTINED: Cause.PLUGIN_FAILED,
    },
    WAITING: {},
    CONTAINER_FAILED: {OOM_KILLED: Cause.OUT_OF_MEMORY},  # as earlier versions wrote it
}
"""What comes first counts: what the manager has failed a job for, whatever its containers did; then what keeps it from
running now; then what its containers failed of before. The reasons of the last two are causes by themselves.
"""

_OF_LIMITS: Final = dict.fromkeys((REACHED_MAX_RESTARTS, MAX_RESTARTS_EXCEEDED_REASON), Cause.BACKOFF_LIMIT_EXCEEDED)
"""Reasons of Failed that tell why nothing is tried any more, not why it failed."""

_BY_MESSAGE: Final = (
    # In the words of the kubelet, of the scheduler, and of our own conditions; the first that fits counts.
    (re.compile(r"\bOOMKilled\b"), Cause.OUT_OF_MEMORY),
    (re.compile(r"\bEvicted\b|EvictionByEvictionAPI|DeletionByTaintManager"), Cause.EVICTED),
    (re.compile(r"PreemptionByScheduler|\bPreempt"), Cause.PREEMPTED),
    (re.compile(r"longer than specified deadline"), Cause.DEADLINE_EXCEEDED),
    (re.compile(r"specified backoff limit"), Cause.BACKOFF_LIMIT_EXCEEDED),
    (re.compile(r"exit code"), Cause.CONTAINER_FAILED),
)


def exit_code_of(holding: Mapping[str, JsonObject]) -> int | None:
    """Return the exit code of what failed in the last attempt that conditions tell of; None if they tell none.

    Args:
        holding: Those that are true, by their type.
    """
    for name in (CONTAINER_FAILED, FAILED):
        # One line for each attempt; what the program said itself comes behind the exit code.
        last = str(holding.get(name, {}).get("message") or "").rpartition("\n")[2]
        if found := _EXIT_CODE.search(last):
            return int(found[1])
    return None


def cause_of(holding: Mapping[str, JsonObject]) -> Cause | None:
    """Return the cause that conditions tell of; None if nothing is the matter.

    Args:
        holding: Those that are true, by their type.
    """
    for name, causes in _BY_REASON.items():
        reason = str(holding.get(name, {}).get("reason") or "")
        if reason in causes:
            return causes[reason]
        if name in (WAITING, CONTAINER_FAILED) and reason in _NAMES:
            return Cause(reason)
    if CONTAINER_FAILED in holding:
        # One line for each attempt; the last one is why it has failed if it has.
        return _said(str(holding[CONTAINER_FAILED].get("message") or "").rpartition("\n")[2]) or Cause.CONTAINER_FAILED
    if FAILED in holding:
        failed = holding[FAILED]
        return _said(str(failed.get("message") or "")) or _OF_LIMITS.get(str(failed.get("reason"))) or Cause.UNKNOWN
    if holding.keys() & {BLOCKED, WAITING}:
        return Cause.UNKNOWN
    return Cause.SUSPENDED if SUSPENDED in holding else None


def _said(message: str) -> Cause | None:
    return next((cause for pattern, cause in _BY_MESSAGE if pattern.search(message)), None)
