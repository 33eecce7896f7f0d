"""What the counts of a JobSet say about its Jobs: whether something has failed, and whether all is ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.runtime.api.constants import COMPLETE, JOBSET_COMPLETED, JOBSET_FAILED
from trainmaster.runtime.jsontree import JsonObject

_COUNTS: Final = ("active", "ready", "succeeded", "failed", "suspended")


class Counts(NamedTuple):
    """How many Jobs of one ReplicatedJob are in which state."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


def fails(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> bool:
    """Tell whether something has failed between two states of a JobSet that was not suspended in between.

    What ends well is counted as succeeded in the moment in which it stops being active and ready.
    """
    return any(
        count.failed > old.failed
        or count.ready + count.succeeded < old.ready + old.succeeded
        or max(count.active, count.ready) + count.succeeded < max(old.active, old.ready) + old.succeeded
        for old, count in ((before.get(name, Counts()), count) for name, count in now.items())
    )


def is_ready(jobset: JsonObject, counts: Mapping[str, Counts]) -> bool:
    """Tell whether all Jobs of a JobSet that are to run by now are ready, or have ended well."""
    spec = jobset.get("spec") or {}
    jobs = spec.get("replicatedJobs") or []
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    wanted = {each["name"]: each.get("replicas", 1) for each in jobs}
    ready: set[str] = set()
    for job in jobs:
        waits_for = {each["name"]: each.get("status") for each in job.get("dependsOn") or ()}
        waiting = any(
            counts.get(name, Counts()).succeeded < wanted.get(name, 0) if until == COMPLETE else name not in ready
            for name, until in waits_for.items()
        )
        if waiting or (in_order and len(ready) < jobs.index(job)):
            continue
        count = counts.get(job["name"], Counts())
        if count.ready + count.succeeded < wanted[job["name"]]:
            return False
        ready.add(job["name"])
    return True


def stuck(jobs: Iterable[JsonObject]) -> bool:
    """Tell whether there are Jobs with pods that are not all ready."""
    return any((each.get("ready") or 0) < (each.get("active") or 0) for each in jobs)


def lacks_pods(jobs: Iterable[JsonObject]) -> bool:
    """Tell whether there are Jobs, and none of them has had a pod yet, or is held back."""
    known = list(jobs)
    return bool(known) and not any(each.get(count) for each in known for count in _COUNTS)


def counts_of(jobs: Iterable[JsonObject]) -> dict[str, Counts]:
    """Return the counts of `status.jobsStatus` of a TrainJob, or `status.replicatedJobsStatus` of a JobSet."""
    return {
        each["name"]: Counts(
            each.get("active") or 0, each.get("ready") or 0, each.get("succeeded") or 0, each.get("failed") or 0
        )
        for each in jobs
    }


def without_jobs(jobset: JsonObject) -> set[str]:
    """The ReplicatedJobs of a JobSet that has not ended of whose Jobs its status counts none."""
    status = stored_status(jobset)
    conditions = status["conditions"]
    if is_true(conditions, JOBSET_COMPLETED) or is_true(conditions, JOBSET_FAILED):
        return set()
    counts = _by_name(status.get("replicatedJobsStatus"))
    counted = {name for name, each in counts.items() if any(each.get(count) for count in _COUNTS)}
    spec = jobset.get("spec")
    return _by_name(spec.get("replicatedJobs") if isinstance(spec, dict) else None).keys() - counted


def _by_name(entries: Any) -> dict[str, JsonObject]:
    """Return what has a name in a list that may hold anything: a JobSet is not always one."""
    listed = entries if isinstance(entries, list) else []
    return {each["name"]: each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str)}
