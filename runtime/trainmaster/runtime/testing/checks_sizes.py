"""Checks of sizes: what a TrainJob costs when it is a small one, and when somebody writes an enormous one."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.testing.subject import Budget, Problem, Subject, outcome_of, validate

MOST_STEPS: Final = 1_000_000
"""Lines of Python that one call may run, whatever the TrainJob: a second or so, during which no other job gets on."""

MOST_MEMORY: Final = 64 * 1024 * 1024
"""Bytes that one call may hold, whatever the TrainJob."""

MOST_GROWTH: Final = 4 * 1024 * 1024
"""Bytes by which that may grow when somebody writes a larger number of nodes, where nothing gets longer."""

MOST_KEPT: Final = 1024
"""Bytes that may stay behind of each TrainJob."""

_NODES: Final = (2**10, 2**23, 2**31 - 1, 2**31, 2**63)
_MANY: Final = 10_000
_ROUNDS: Final = 12

_BLOCKED: Final = "anybody who may create a TrainJob could stop the controller for everybody"


def stays_in_its_budget(
    subject: Subject, *, most_steps: int = MOST_STEPS, most_memory: int = MOST_MEMORY
) -> Iterator[Problem]:
    """Each of its samples takes no more than so many steps and so much memory, and leaves hardly anything behind."""
    on = subject.whole_runtime()
    for job in subject.whole_jobs():
        budget = Budget(most_steps)
        found = list(_costs(subject, budget, job["metadata"]["name"], job=job, on=on, most_memory=most_memory))
        yield from found
        if found:
            return
    yield from _kept(subject, next(subject.whole_jobs()), on)


def _kept(subject: Subject, job: JsonObject, on: JsonObject) -> Iterator[Problem]:
    plugin = subject.make()
    framework = subject.framework(plugin=plugin)

    def rounds(start: int) -> int:
        for number in range(start, start + _ROUNDS):
            metadata = {**job["metadata"], "name": f"demo-{number}", "uid": f"uid-{number}"}
            outcome_of(framework, {**job, "metadata": metadata}, on, subject.listers())
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    gc.freeze()  # what is there already need not be looked at
    try:
        rounds(0)
        before = rounds(_ROUNDS)
        kept = (rounds(2 * _ROUNDS) - before) // _ROUNDS
    finally:
        gc.unfreeze()
        if not tracing:
            tracemalloc.stop()
    if kept > MOST_KEPT:
        yield Problem(
            f"{kept:,} bytes stay behind of each TrainJob, more than {MOST_KEPT:,}",
            "the controller runs for months and sees millions of them: it would run out of memory",
            "keep nothing between calls, or no more than a limited number of things, with functools.lru_cache(maxsize) "
            f"of at most {_ROUNDS}, or clear what you keep",
        )


def stands_hostile_sizes(
    subject: Subject, *, most_steps: int = MOST_STEPS, most_memory: int = MOST_MEMORY
) -> Iterator[Problem]:
    """An enormous TrainJob is built or rejected within the budget as well."""
    on = subject.whole_runtime()
    job = next(subject.whole_jobs())
    first = 0
    for nodes in _NODES:
        budget = Budget(most_steps)
        trainer = {**(job["spec"].get("trainer") or {}), "numNodes": nodes}
        enormous = {**job, "spec": {**job["spec"], "trainer": trainer}}
        what = f"numNodes: {nodes:,}"
        found = list(_costs(subject, budget, what, job=enormous, on=on, most_memory=most_memory))
        first = first or budget.memory
        if not found and budget.memory - first > MOST_GROWTH:
            found.append(
                Problem(
                    f"with {what} a call holds {budget.memory:,} bytes, with {_NODES[0]:,} nodes {first:,}",
                    f"the number is whatever a user wrote: {_BLOCKED}",
                    "make no list with an item for each node; `endpoints` of a pod set makes names one by one; where "
                    "all have to be written out, set a limit and raise Rejected beyond it",
                )
            )
        yield from found
        if found:
            return  # The next one would take all the memory of this machine.
    for what, changed_job, changed_runtime in _enormous(job, on):
        budget = Budget(most_steps)
        yield from _costs(subject, budget, what, job=changed_job, on=changed_runtime, most_memory=most_memory)


def _costs(
    subject: Subject, budget: Budget, what: str, *, job: JsonObject, on: JsonObject, most_memory: int
) -> Iterator[Problem]:
    framework = subject.framework(budget.around)
    name = subject.name
    try:
        validate(framework, job, on, subject.listers())
        outcome_of(framework, job, on, subject.listers())
    except PluginFailed as error:
        if error.plugin != name:
            return
        if not budget.ended:
            yield Problem(
                f"{what}: {error}",
                "the TrainJob is blocked, and its author reads this instead of what to change",
                "raise Rejected with a sentence that says what the limit is",
            )
    if budget.ended:
        yield Problem(
            f"{what}: {budget.ended} takes more than {budget.most_steps:,} steps (lines of Python) in one call",
            f"no other TrainJob gets on meanwhile: {_BLOCKED}",
            "do nothing for each node, and nothing that takes the square of the number of variables or jobs; set a "
            "limit and raise Rejected beyond it",
        )
    elif budget.memory > most_memory:
        yield Problem(
            f"{what}: a call holds {budget.memory:,} bytes, more than {most_memory:,}",
            _BLOCKED,
            "make no copies of what is large; set a limit and raise Rejected beyond it",
        )


def _enormous(job: JsonObject, on: JsonObject) -> Iterator[tuple[str, JsonObject, JsonObject]]:
    """Make large ones of a TrainJob and its runtime."""
    trainer = job["spec"].get("trainer") or {}

    def with_trainer(**fields: Any) -> JsonObject:
        return {**job, "spec": {**job["spec"], "trainer": {**trainer, **fields}}}

    env = [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(_MANY)]
    yield f"{_MANY:,} variables", with_trainer(env=env), on
    yield f"{_MANY:,} arguments", with_trainer(args=["x"] * _MANY), on
    yield "a command of a million characters", with_trainer(command=["x" * 1_000_000]), on
    labels = {f"label-{number}": "x" for number in range(_MANY)}
    yield f"{_MANY:,} labels", {**job, "metadata": {**job["metadata"], "labels": labels}}, on
    spec = (on["spec"].get("template") or {}).get("spec") or {}
    jobs = spec.get("replicatedJobs") or []
    if jobs:
        many = [*jobs, *({**jobs[-1], "name": f"job-{number}"} for number in range(100))]
        template = {**on["spec"]["template"], "spec": {**spec, "replicatedJobs": many}}
        yield "100 more ReplicatedJobs", job, {**on, "spec": {**on["spec"], "template": template}}
