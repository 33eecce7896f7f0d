"""What it costs to count TrainJobs and to find out why they wait, without the rest of a manager: for `micro`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from bench import samples
from trainmaster.controller.diagnosis.conditions import kept, waiting_condition
from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.api import parse_runtime, parse_trainjob
from trainmaster.runtime.api.constants import COMPLETE
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import resolve

LIVES: Final = 1000
"""How many TrainJobs."""

_CREATED: Final = "2026-01-01T00:00:00Z"
_ENDED: Final = {"type": COMPLETE, "status": "True", "reason": "AllJobsCompleted", "lastTransitionTime": _CREATED}


def count_lives() -> float:
    """Return the seconds of CPU that the metrics of the whole lives of TrainJobs take, as their caches tell of them."""
    observer = TrainJobObserver(TrainJobsMetrics(), clock=SystemClock(), trace_id=lambda _uid: "")
    observer.lead()
    trainjobs, jobsets = Store(), Store()
    seconds = 0.0
    for job, jobset in pairs():
        life = [*_life(job, jobset, trainjobs, jobsets)]
        started = time.thread_time()
        for of_trainjob, of_jobset in life:
            observer.on_trainjob_event(of_trainjob)
            observer.on_workload_event(of_jobset)
        seconds += time.thread_time() - started
    observer.close()
    return seconds


def explain_waiting() -> float:
    """Return the seconds of CPU that it takes to say of TrainJobs why they wait, once their pods are read."""
    seen = [
        (job, {**jobset, **samples.starting()}, [*samples.pending_pods(number)])
        for number, (job, jobset) in enumerate(pairs())
    ]
    now = datetime.now(UTC)
    started = time.thread_time()
    for job, jobset, pods in seen:
        shown = [kept(each, wholly=True) for each in pods]
        condition = waiting_condition(job, jobset, shown, None, stored=None, failure_is_told=False, now=now)
        assert condition is not None  # noqa: S101 - otherwise nothing was measured
    return time.thread_time() - started


def pairs() -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield TrainJobs, each with its JobSet."""
    framework, runtime = Framework(load_plugins()), parse_runtime(samples.runtime())
    for number in range(LIVES):
        job = samples.trainjob(number)
        job["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": _CREATED, "generation": 1}
        (built,) = (
            each.object
            for each in resolve(parse_trainjob(job), runtime, framework).objects
            if each.object["kind"] == "JobSet"
        )
        built["metadata"] |= {"uid": f"jobset-{number}", "creationTimestamp": _CREATED, "generation": 1}
        yield job, built


def _life(job: JsonObject, jobset: JsonObject, trainjobs: Store, jobsets: Store) -> Iterator[tuple[Delta, Delta]]:
    """Yield what caches tell of a TrainJob and of its JobSet: created, built, running, completed."""
    nothing: JsonObject = {}
    reports = (nothing, samples.running()["status"], samples.completed()["status"])
    for version, report in enumerate(reports, start=1):
        status = {
            "jobsStatus": report.get("replicatedJobsStatus", []),
            "conditions": [_ENDED] if version == len(reports) else [],
        }
        yield (
            trainjobs.put(_versioned({**job, "status": status}, version)),
            jobsets.put(_versioned({**jobset, "status": report}, version)),
        )


def _versioned(obj: JsonObject, version: int) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
