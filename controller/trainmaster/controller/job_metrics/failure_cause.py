"""Why a TrainJob has failed, or its containers have, as far as its conditions tell. Pure.

It is the first failure that is told of, as everywhere: the others follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from trainmaster.controller.condition_types import CONTAINER_FAILED
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.conditions import cause_of
from trainmaster.runtime.api.constants import FAILED
from trainmaster.runtime.jsontree import JsonObject

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


def failure_of(holding: Mapping[str, JsonObject]) -> Failure | None:
    """Return why a TrainJob has failed, or a container of it; None if nothing has.

    Args:
        holding: Its conditions that are true, by their type.
    """
    told = {name: holding[name] for name in (FAILED, CONTAINER_FAILED) if name in holding}
    cause = cause_of(told)
    if cause is None:
        return None
    last = str(told.get(CONTAINER_FAILED, {}).get("message") or "").rpartition("\n")[2]
    code = _EXIT_CODE.search(last) if cause in WITH_EXIT_CLASS else None
    return Failure(cause, exit_class(int(code[1])) if code else "")


def exit_class(code: int) -> str:
    """Return the kind of an exit code: above 128 they are the numbers of signals."""
    return _EXIT_CLASSES.get(code) or ("other signal" if code > _SIGNALS_FROM else "error")
