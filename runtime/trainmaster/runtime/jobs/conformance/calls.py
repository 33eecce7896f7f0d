"""Calls of the methods of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import copy_tree
from trainmaster.runtime.testing.problems import first_difference


def unkept(job: Job, method: str, call: Callable[[], Any]) -> Iterator[str]:
    """Call a method twice: nothing of the job may change, and what comes back has to be the same."""
    before = _everything(job)
    first, second = call(), call()
    if first != second:
        yield f"{method} makes something else of the same each time"
    difference = first_difference(before, _everything(job))
    if difference:
        yield f"{method} changes the job, which others use at the same time: {difference}"


def _everything(job: Job) -> Any:
    templates = {name: spec.template for name, spec in job.replica_specs.items()}
    return copy_tree({"templates": templates, "spec": job.spec, "status": job.status, "raw": job.raw})
