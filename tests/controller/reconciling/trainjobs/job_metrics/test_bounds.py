"""How many series there are, however many TrainJobs, namespaces, runtimes and reasons there are."""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path

import pytest
from support.objects import trainjob_object
from support.observed_jobs import ObservedJobs, condition, training_job

from trainmaster.controller.reconciling.trainjobs.job_metrics.failure_cause import EXIT_CLASSES
from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.trainjobs import MOST_ACCELERATORS, MOST_RUNTIMES, OTHER

JOBS = 1200
DOCUMENTED = Path(__file__).parents[5] / "docs/metrics.md"
CODES = (1, 126, 127, 134, 137, 139, 143, 250)


def all_series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name.startswith("trainmaster_trainjob")
    }


@pytest.mark.guarantee("K-16")
def test_jobs_however_many_have_no_more_series_than_the_documentation_says() -> None:
    """Each with a runtime, a namespace, a reason or a device that others do not have, and more of these than limits."""
    jobs, before = ObservedJobs("of-many"), all_series()
    codes = cycle(CODES)
    for number in range(JOBS):
        runtime, name, uid = f"runtime-{number % 300}", f"job-{number}", f"uid-{number}"
        obj = trainjob_object(name, uid=uid, runtimeRef={"name": runtime})
        obj["metadata"]["namespace"] = f"team-{number % 1000}"
        jobs.show_job(obj)
        devices = training_job()
        limits = {"limits": {f"acme-{number % 40}.com/gpu": 1}}
        devices["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = limits
        jobs.put_jobset(name, namespace=f"team-{number % 1000}", owner=uid, replicated_jobs=[devices])
        jobs.put_jobset(
            name, namespace=f"team-{number % 1000}", owner=uid, replicated_jobs=[devices], ready=1, restarts=1
        )
        message = f"attempt 0: rank 0 (pod p, container node) failed with exit code {next(codes)}"
        ended = [
            condition("Complete" if number % 2 else "Failed", f"Reason{number}", at="2026-01-01T01:00:00Z"),
            condition("ContainerFailed", f"Reason{number}", message=message),
            condition("Blocked", f"Reason{number}"),
        ]
        jobs.show_job({**obj, "status": {"conditions": ended[number % 3 :]}})
    assert sum(jobs.metrics.jobs.values()) == JOBS
    runtimes = {runtime for _, _, runtime in jobs.metrics.jobs}
    assert len(runtimes) == MOST_RUNTIMES + 1
    assert OTHER in runtimes
    assert len({resource for _, resource, _ in jobs.metrics.accelerators}) == MOST_ACCELERATORS + 1
    documented = re.search(r"All of them together: ([\d,]+) series", DOCUMENTED.read_text())
    assert documented is not None
    assert len(all_series() - before) <= int(documented[1].replace(",", "")) <= 5000
    assert len(CODES) == len(EXIT_CLASSES) - 1
    jobs.observer.close()
