"""What counts of a TrainJob for its metrics, from its object as the cache has it. Pure.

Guarantees:
- Nothing that an API server accepted raises; what cannot be read counts as invalid, as in its conditions.
- P-22: what many jobs have in common is kept once: names, reasons, times of the same second.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Final, NamedTuple

from trainmaster.controller.condition_types import BLOCKED, CONTAINER_FAILED, WAITING
from trainmaster.controller.job_metrics.failure_cause import Failure, failure_of
from trainmaster.runtime.api.constants import COMPLETE, FAILED, MANAGED_BY_TRAINER, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""A TrainJob that has it is suspended and resumed by Kueue."""

INVALID: Final = "TrainJobInvalid"
"""The reason of a TrainJob that the API server accepted and that cannot be read."""


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

    is_queued: bool = False
    """Whether a queue decides on that."""

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
        QUEUE_LABEL in (metadata.get("labels") or ()),
    )
    if not status:
        return TrainJobFacts(*told)
    has_jobs, progressed = bool(status.get("jobsStatus")), (status.get("trainerStatus") or {}).get("lastUpdatedTime")
    if not status.get("conditions"):
        return TrainJobFacts(*told, has_jobs=has_jobs, progressed=progressed or "")
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
    )
