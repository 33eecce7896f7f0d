"""What counts of a TrainJob for its metrics, from its object as the cache has it. Pure.

Guarantees:
- Nothing that an API server accepted raises; what cannot be read counts as invalid, as in its conditions.
- Of several failures the first that is told of counts, as everywhere: the others follow from it.
- P-22: what many jobs have in common is kept once: names, reasons, times of the same second.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import Any, Final, NamedTuple

from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, WAITING
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.condition_causes import cause_of, exit_code_of
from trainmaster.controller.job_fields import QUEUE_LABEL, number
from trainmaster.runtime.api.constants import COMPLETE, FAILED, MANAGED_BY_TRAINER, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

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

INVALID: Final = "TrainJobInvalid"
"""The reason of a TrainJob that the API server accepted and that cannot be read."""


class Failure(NamedTuple):
    """Why something failed."""

    cause: Cause
    exit_class: str
    """One of `EXIT_CLASSES`."""


UNKNOWN: Final = Failure(Cause.UNKNOWN, "")


def failure_of(holding: Mapping[str, JsonObject]) -> Failure | None:
    """Return why a TrainJob has failed, or a container of it; None if nothing has."""
    told = {name: holding[name] for name in (FAILED, CONTAINER_FAILED) if name in holding}
    cause = cause_of(told)
    if cause is None:
        return None
    code = exit_code_of(told) if cause in WITH_EXIT_CLASS else None
    return Failure(cause, "" if code is None else exit_class(code))


def exit_class(code: int) -> str:
    """Return the kind of an exit code: above 128 they are the numbers of signals."""
    return _EXIT_CLASSES.get(code) or ("other signal" if code > _SIGNALS_FROM else "error")


class TrainJobFacts(NamedTuple):
    """What counts of one TrainJob; times are RFC 3339, and empty where there is none."""

    uid: str
    created: str = ""
    generation: int = 0
    runtime: str = ""
    """The name of the runtime that it names."""

    is_terminating: bool = False
    """Whether it is being deleted."""

    wants_suspend: bool = False
    """Whether nothing of it may run."""

    queue: str = ""
    """The name of the queue that decides on that, if one does."""

    suspended: bool = False
    """Whether its condition says that it is suspended."""

    suspension_flipped: str = ""
    """When that condition was set, or reset."""

    end: str = ""
    """`Complete` or `Failed`, once it has ended."""

    end_reason: str = ""
    ended: str = ""
    blocked: str = ""
    """The reason for which it cannot be built, if there is one."""

    failure: Failure | None = None
    """Why it, or a container of it, has failed, while it has."""

    waiting: str = ""
    """The cause for which its pods do not start, as far as that is told."""

    has_jobs: bool = False
    """Whether its status tells of Jobs, so that there has been a workload."""

    progressed: str = ""
    """When it reported its progress last."""

    restarts: int = 0
    """How often its training was started again, as its status says."""


def read_trainjob(raw: JsonObject) -> TrainJobFacts | None:
    """Return what counts of a TrainJob; None if it is another controller's."""
    try:
        return _read(raw)
    except (AttributeError, KeyError, TypeError, ValueError):
        metadata = raw["metadata"]
        return TrainJobFacts(str(metadata.get("uid")), str(metadata.get("creationTimestamp")), blocked=INVALID)


def _read(raw: JsonObject) -> TrainJobFacts | None:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status")
    if (spec.get("managedBy") or MANAGED_BY_TRAINER) != MANAGED_BY_TRAINER:
        return None
    told = (
        intern(metadata["uid"]),
        intern(metadata.get("creationTimestamp") or ""),
        metadata.get("generation") or 0,
        intern(spec["runtimeRef"]["name"]),
        "deletionTimestamp" in metadata,
        spec.get("suspend") is True,
        intern((metadata.get("labels") or {}).get(QUEUE_LABEL) or ""),
    )
    if not status:
        return TrainJobFacts(*told)
    has_jobs, progressed = bool(status.get("jobsStatus")), (status.get("trainerStatus") or {}).get("lastUpdatedTime")
    restarts = number(status.get("restarts"))
    if not status.get("conditions"):
        return TrainJobFacts(*told, has_jobs=has_jobs, progressed=progressed or "", restarts=restarts)
    conditions: dict[Any, JsonObject] = {each.get("type"): each for each in status["conditions"]}
    holding = {name: each for name, each in conditions.items() if each.get("status") == "True"}
    # The first end counts, and only one of them is ever set.
    end = next((each for each in (COMPLETE, FAILED) if each in holding), "")
    ending = holding.get(end, {})
    return TrainJobFacts(
        *told,
        suspended=SUSPENDED in holding,
        suspension_flipped=intern(conditions.get(SUSPENDED, {}).get("lastTransitionTime") or ""),
        end=end,
        end_reason=intern(ending.get("reason") or ""),
        ended=intern(ending.get("lastTransitionTime") or ""),
        blocked=intern(holding.get(BLOCKED, {}).get("reason") or ""),
        failure=failure_of(holding) if end == FAILED or CONTAINER_FAILED in holding else None,
        waiting=intern(holding.get(WAITING, {}).get("reason") or ""),
        has_jobs=has_jobs,
        progressed=progressed or "",
        restarts=restarts,
    )
