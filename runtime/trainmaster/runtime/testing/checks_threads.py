"""The check of two calls at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.testing.interleaving import Turns
from trainmaster.runtime.testing.problems import Problem, first_difference
from trainmaster.runtime.testing.subject import Outcome, Subject, outcome_of

_WHY: Final = (
    "calls come from several threads at once: from reconciles, and from admission; the values of one user would end in "
    "the pods of another"
)
_DO: Final = (
    "keep nothing of a TrainJob on `self`, on the class or in the module; what a hook needs of an earlier one, it "
    "derives again, or leaves in `info`"
)


def stands_two_calls_at_once(subject: Subject) -> Iterator[Problem]:
    """Two TrainJobs that are resolved at the same time become what each becomes alone."""
    on = subject.whole_runtime()
    job = next(subject.whole_jobs())
    pair = [_named(job, "one"), _named(job, "other")]
    turns = Turns()
    alone = [outcome_of(subject.framework(), each, on, subject.listers()) for each in pair]
    framework = subject.framework(turns.around)
    first, second = pair

    def resolving(each: JsonObject) -> Outcome:
        return outcome_of(framework, each, on, subject.listers())

    together = turns.run(lambda: resolving(first), lambda: resolving(second))
    for each, expected, result in zip(pair, alone, together, strict=True):
        name = each["metadata"]["name"]
        if isinstance(result, BaseException):
            yield Problem(
                f"TrainJob {name} fails while another one is resolved: {type(result).__name__}: {result}",
                _WHY,
                _DO,
            )
            continue
        difference = first_difference(expected.settled(), result.settled())
        if difference:
            yield Problem(
                f"TrainJob {name} becomes something else while another one is resolved: {difference}",
                _WHY,
                _DO,
            )


def _named(job: JsonObject, name: str) -> JsonObject:
    env = [*((job["spec"].get("trainer") or {}).get("env") or []), {"name": "OWNER", "value": name}]
    trainer = {**(job["spec"].get("trainer") or {}), "env": env}
    metadata = {**job["metadata"], "name": name, "uid": f"uid-of-{name}"}
    return {**job, "metadata": metadata, "spec": {**job["spec"], "trainer": trainer}}
