"""The check of two calls at once, line by line in turns: the same each time, and worse than two free threads.

Lines of the SDK itself run through; each other line of Python that a plugin runs hands over to the other thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, TypeVar

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.testing.subject import Outcome, Problem, Subject, first_difference, outcome_of

_WHY: Final = (
    "calls come from several threads at once: from reconciles, and from admission; the values of one user would end in "
    "the pods of another"
)
_DO: Final = (
    "keep nothing of a TrainJob on `self`, on the class or in the module; what a hook needs of an earlier one, it "
    "derives again, or leaves in `info`"
)

_OURS: Final = ("trainmaster.runtime.", "pydantic")
_PATIENCE: Final = 0.05
"""Seconds after which a thread goes on all the same: the other one may wait for a lock of the plugin's."""

_Result = TypeVar("_Result")


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


class Turns:
    """Lets two threads run in turns. `around` stands around each call of a plugin."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._turn = 0
        self._ended: set[int] = set()
        self._me = threading.local()

    def run(self, *functions: Callable[[], _Result]) -> list[_Result | BaseException]:
        """Run two functions to their end, and return what each returned or raised."""
        results: dict[int, _Result | BaseException] = {}

        def work(number: int, function: Callable[[], _Result]) -> None:
            self._me.number = number
            try:
                results[number] = function()
            except BaseException as error:
                results[number] = error
            finally:
                with self._condition:
                    self._ended.add(number)
                    self._condition.notify_all()

        threads = [threading.Thread(target=work, args=each, daemon=True) for each in enumerate(functions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[number] for number in range(len(functions))]

    def around(self, phase: str, call: Callable[[], Any], arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - as all of its kind
        """Make a call, handing over at each of its lines."""

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            if frame.f_globals.get("__name__", "").startswith(_OURS):
                return None
            if event == "line":
                self._hand_over()
            return trace

        self._hand_over()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _hand_over(self) -> None:
        me = self._me.number
        with self._condition:
            self._turn = 1 - me
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._turn == me or 1 - me in self._ended, timeout=_PATIENCE)
            self._turn = me
