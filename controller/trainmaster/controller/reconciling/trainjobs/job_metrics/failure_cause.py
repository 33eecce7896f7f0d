"""Why a TrainJob has failed, or its containers have, as far as its conditions tell. Pure.

It is the first failure that is told of, as everywhere: the others follow from it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trainmaster.controller.container_failures import OOM_KILLED
from trainmaster.controller.explain.cause import Cause
from trainmaster.runtime.api.constants import DEADLINE_EXCEEDED_REASON, RUNTIME_NOT_SUPPORTED_REASON
from trainmaster.runtime.jsontree import JsonObject

REACHED_MAX_RESTARTS: Final = "ReachedMaxRestarts"
"""The reason of a JobSet that was restarted as often as it may be."""

_OF_REASON: Final = {
    DEADLINE_EXCEEDED_REASON: Cause.DEADLINE_EXCEEDED,
    RUNTIME_NOT_SUPPORTED_REASON: Cause.RUNTIME_MISSING,
}
"""What the TrainJob was failed for, whatever happened to its containers before."""

_CAUSES: Final = frozenset(Cause)
_EXIT_CODE: Final = re.compile(r"\bwith exit code (\d+)\b")
_EXIT_CLASSES: Final = {
    126: "not executable",
    127: "not found",
    134: "SIGABRT",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}
_SIGNALS_FROM: Final = 128

EXIT_CLASSES: Final = ("", "error", *_EXIT_CLASSES.values(), "other signal")
"""The kinds of exit codes: empty where there is none, or the cause says it all."""

WITH_EXIT_CLASS: Final = frozenset({Cause.CONTAINER_FAILED, Cause.INIT_CONTAINER_FAILED})
"""Causes that an exit code says more of."""


class Failure(NamedTuple):
    """Why something failed."""

    cause: Cause
    exit_class: str
    """One of `EXIT_CLASSES`."""


UNKNOWN: Final = Failure(Cause.UNKNOWN, "")


def failure_of(failed: JsonObject | None, container_failed: JsonObject | None) -> Failure | None:
    """Return why a TrainJob has failed, or is about to; None if neither condition holds.

    Args:
        failed: Its condition Failed, if it is true.
        container_failed: Its condition ContainerFailed, if it is true.
    """
    reason = (failed or {}).get("reason")
    if reason in _OF_REASON:
        return Failure(_OF_REASON[reason], "")
    if container_failed is not None:
        return _of_container(container_failed)
    if reason == REACHED_MAX_RESTARTS:
        return Failure(Cause.BACKOFF_LIMIT_EXCEEDED, "")
    return UNKNOWN if failed is not None else None


def _of_container(condition: JsonObject) -> Failure:
    cause = cause_named(condition.get("reason")) or Cause.CONTAINER_FAILED
    last = str(condition.get("message") or "").rpartition("\n")[2]
    code = _EXIT_CODE.search(last)
    return Failure(cause, exit_class(int(code[1])) if code and cause in WITH_EXIT_CLASS else "")


def cause_named(reason: object) -> Cause | None:
    """Return the cause that the reason of a condition names; None if it names none."""
    if reason == OOM_KILLED:  # as versions before this one wrote it
        return Cause.OUT_OF_MEMORY
    return Cause(str(reason)) if reason in _CAUSES else None


def exit_class(code: int) -> str:
    """Return the kind of an exit code: above 128 they are the numbers of signals."""
    return _EXIT_CLASSES.get(code) or ("other signal" if code > _SIGNALS_FROM else "error")
