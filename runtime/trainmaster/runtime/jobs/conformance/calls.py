"""Calls of the methods of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import copy_tree


def unkept(job: Job, method: str, call: Callable[[], Any]) -> Iterator[str]:
    """Call a method twice: nothing of the job may change, and what comes back has to be the same."""
    before = _everything(job)
    first, second = call(), call()
    if first != second:
        yield f"{method} makes something else of the same each time"
    if _everything(job) != before:
        yield f"{method} changes the job, which others use at the same time"


def _everything(job: Job) -> Any:
    templates = {name: copy_tree(spec.template) for name, spec in job.replica_specs.items()}
    return templates, copy_tree(job.spec), copy_tree(job.status), copy_tree(job.raw)
