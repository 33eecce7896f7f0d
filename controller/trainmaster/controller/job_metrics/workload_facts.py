"""What counts of the JobSet of a TrainJob for its metrics: whether all of it runs, restarts, what it asks for. Pure.

Initializers are left out: they come before the training, and a TrainJob does not run before its trainers do. What many
JobSets have in common is kept once (P-22).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from sys import intern
from typing import NamedTuple, TypeAlias

import orjson

from trainmaster.runtime.api.constants import ANCESTOR_LABEL, DATASET_INITIALIZER, MODEL_INITIALIZER
from trainmaster.runtime.jsontree import JsonObject, why_unreadable
from trainmaster.runtime.resource_requirements import accelerators_of

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""Devices by the name of their resource."""

_INITIALIZERS = frozenset({DATASET_INITIALIZER, MODEL_INITIALIZER})


class ReplicatedJob(NamedTuple):
    """A ReplicatedJob that trains."""

    name: str
    replicas: int
    pods: int
    """Of each Job."""

    accelerators: Amounts
    """Of each pod."""


class Demand(NamedTuple):
    """Pods, and the devices that they ask for."""

    nodes: int = 0
    accelerators: Amounts = ()


_NOTHING = Demand()


class WorkloadFacts(NamedTuple):
    """What counts of one JobSet."""

    owner: str
    """The UID of its TrainJob."""

    uid: str
    generation: int
    created: str
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    is_ready: bool = False
    """Whether all pods that train are ready, or have ended well."""

    restarts: int = 0
    running: Demand = _NOTHING
    """What is ready."""

    waiting: Demand = _NOTHING
    """What is not, and has not ended well."""


def read_workload(raw: JsonObject, known: WorkloadFacts | None) -> WorkloadFacts | None:
    """Return what counts of a JobSet; None if no TrainJob controls it, or it cannot be read.

    Args:
        raw: The JobSet.
        known: What was read of an earlier state; of an unchanged spec it is not computed again.
    """
    try:
        return None if why_unreadable(raw) is not None else _read(raw, known)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _read(raw: JsonObject, known: WorkloadFacts | None) -> WorkloadFacts | None:
    metadata, status = raw["metadata"], raw.get("status") or {}
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            owner = reference["uid"]
            break
    else:
        return None
    uid, generation = metadata["uid"], metadata.get("generation") or 0
    if known is not None and (known.uid, known.generation) == (uid, generation):
        jobs = known.replicated_jobs
    else:
        jobs = _shared(tuple(_training(raw["spec"].get("replicatedJobs") or ())))
    counts = {each["name"]: each for each in status.get("replicatedJobsStatus") or ()}
    is_ready = bool(jobs)
    running = waiting = _NOTHING
    for job in jobs:
        count = counts.get(job.name) or {}
        ready = count.get("ready") or 0
        missing = job.replicas - ready - (count.get("succeeded") or 0)
        if ready:
            running = _with(running, job, ready)
        if missing > 0:
            is_ready = False
            waiting = _with(waiting, job, missing)
    created, restarts = intern(metadata.get("creationTimestamp") or ""), status.get("restarts") or 0
    return WorkloadFacts(intern(owner), uid, generation, created, jobs, is_ready, restarts, running, waiting)


def _training(replicated_jobs: Iterable[JsonObject]) -> Iterator[ReplicatedJob]:
    for each in replicated_jobs:
        template = each["template"]
        labels = (template.get("metadata") or {}).get("labels") or {}
        if labels.get(ANCESTOR_LABEL) in _INITIALIZERS:
            continue
        replicas, pods = each.get("replicas"), template["spec"].get("parallelism")
        spec = template["spec"]["template"]["spec"]
        devices: dict[str, int] = {}
        for container in spec.get("containers") or ():
            if resources := container.get("resources"):
                for name, amount in _accelerators(orjson.dumps(resources)):
                    devices[name] = devices.get(name, 0) + amount
        yield ReplicatedJob(
            each["name"], 1 if replicas is None else replicas, 1 if pods is None else pods, tuple(devices.items())
        )


@lru_cache(1024)
def _accelerators(resources: bytes) -> Amounts:
    """Return what a container asks for; amounts are slow to read, and most containers ask for what others ask for."""
    return tuple(accelerators_of(orjson.loads(resources)).items())


@lru_cache(1024)
def _shared(jobs: tuple[ReplicatedJob, ...]) -> tuple[ReplicatedJob, ...]:
    """Return the same that other JobSets have: most of them ask for what others ask for, too."""
    return jobs


@lru_cache(4096)
def _with(demand: Demand, job: ReplicatedJob, count: int) -> Demand:
    """Add what so many Jobs of a ReplicatedJob ask for."""
    pods = job.pods * count
    devices = dict(demand.accelerators)
    for name, amount in job.accelerators:
        devices[name] = devices.get(name, 0) + amount * pods
    return Demand(demand.nodes + pods, tuple(devices.items()))
