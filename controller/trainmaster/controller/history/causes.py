"""Why a job failed, or did not run, as its conditions tell: one of the causes that `trainmaster explain` knows; pure.

Nothing is asked of anybody here, so what only pods and events tell is Unknown. Where the manager has looked and noted a
cause in the status, that counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from trainmaster.controller.condition_types import BLOCKED, CONTAINER_FAILED, RUNTIME_NOT_FOUND, WAITING
from trainmaster.controller.container_failures import OOM_KILLED
from trainmaster.controller.explain.cause import Cause
from trainmaster.runtime.api.constants import DEADLINE_EXCEEDED_REASON, FAILED, RUNTIME_NOT_SUPPORTED_REASON, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

_BY_REASON: Final = {
    DEADLINE_EXCEEDED_REASON: Cause.DEADLINE_EXCEEDED,
    RUNTIME_NOT_SUPPORTED_REASON: Cause.RUNTIME_MISSING,
    RUNTIME_NOT_FOUND: Cause.RUNTIME_MISSING,
    OOM_KILLED: Cause.OUT_OF_MEMORY,
    "Evicted": Cause.EVICTED,
    "Preempted": Cause.PREEMPTED,
    "PluginFailed": Cause.PLUGIN_FAILED,
    "PluginQuarantined": Cause.PLUGIN_FAILED,
    "BackoffLimitExceeded": Cause.BACKOFF_LIMIT_EXCEEDED,
}

_NAMES: Final = frozenset(map(str, Cause))

_BY_MESSAGE: Final = (
    # In the words of the kubelet, of the scheduler, and of our own conditions; the first that fits counts.
    (re.compile(r"\bOOMKilled\b"), Cause.OUT_OF_MEMORY),
    (re.compile(r"\bEvicted\b|EvictionByEvictionAPI|DeletionByTaintManager"), Cause.EVICTED),
    (re.compile(r"PreemptionByScheduler|\bPreempt"), Cause.PREEMPTED),
    (re.compile(r"longer than specified deadline"), Cause.DEADLINE_EXCEEDED),
    (re.compile(r"specified backoff limit"), Cause.BACKOFF_LIMIT_EXCEEDED),
    (re.compile(r"exit code|replica\(s\) failed"), Cause.CONTAINER_FAILED),
)


def cause_of(conditions: Iterable[JsonObject]) -> str:
    """Return the cause that conditions tell of; empty if nothing is the matter."""
    held = {each["type"]: each for each in conditions if each["status"] == "True"}
    # What ended the job first; then how its containers failed, which says more than that the job did; then the rest.
    for name in (FAILED, CONTAINER_FAILED, BLOCKED, WAITING):
        if (condition := held.get(name)) and (cause := _by_reason(name, condition.get("reason", ""))):
            return cause
    for name in (FAILED, CONTAINER_FAILED):
        message = held.get(name, {}).get("message", "")
        for pattern, cause in _BY_MESSAGE:
            if pattern.search(message):
                return cause
    if CONTAINER_FAILED in held:
        return Cause.CONTAINER_FAILED
    if held.keys() & {FAILED, BLOCKED, WAITING}:
        return Cause.UNKNOWN
    return Cause.SUSPENDED if SUSPENDED in held else ""


def _by_reason(condition: str, reason: str) -> str | None:
    """Return the cause that the reason of a condition is, or means; of some conditions the manager makes it so."""
    if condition in (CONTAINER_FAILED, WAITING) and reason in _NAMES and reason != Cause.CONTAINER_FAILED:
        return reason
    return _BY_REASON.get(reason)
