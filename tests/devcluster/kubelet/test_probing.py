"""Probes: when answers count. Time is a list of the pauses that were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.devcluster.kubelet.prober.handler import Outcome
from trainmaster.devcluster.kubelet.prober.worker import Finding, Threshold, watch_over
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        ("fff", "..f"),
        ("ffoff", "...."),
        ("ff" + "oo" + "fff", "...o..f"),
        ("o" + "o" + "f" * 4, ".o..ff"),
    ],
)
def test_answers_count_when_given_often_enough_in_a_row(answers: str, counted: str) -> None:
    threshold = Threshold({"successThreshold": 2, "failureThreshold": 3})
    seen = "".join(answer if threshold.note(answer == "o") else "." for answer in answers)
    assert seen.startswith(counted)


class Asked:
    """Runs the probes of a container against prepared answers; the last one of each kind is given for ever."""

    def __init__(self, **answers: str) -> None:
        self.answers = {kind: list(text) for kind, text in answers.items()}
        self.findings: list[Finding] = []
        self.pauses: list[float] = []
        self.asked: list[str] = []

    async def run(self, container: JsonObject, *, until: Callable[[], bool] | None = None) -> None:
        """Probe until a condition holds or, without one, to the end."""

        async def perform(probe: JsonObject) -> Outcome:
            kind = probe["kind"]
            self.asked.append(kind)
            left = self.answers[kind]
            return Outcome((left.pop(0) if len(left) > 1 else left[0]) == "o", "said so")

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        task = asyncio.create_task(watch_over(container, perform=perform, tell=self.findings.append, sleep=sleep))
        async with asyncio.timeout(10):
            if until is None:
                await task
                return
            while not until():
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @property
    def decisions(self) -> list[tuple[str, bool]]:
        return [(finding.kind, finding.outcome.ok) for finding in self.findings if finding.decided]


def probe(kind: str, **fields: Any) -> JsonObject:
    return {f"{kind}Probe": {"kind": kind, **fields}}


async def test_the_other_probes_wait_for_the_startup_probe() -> None:
    asked = Asked(startup="ffo", readiness="o", liveness="o")
    container = probe("startup") | probe("readiness") | probe("liveness")
    await asked.run(container, until=lambda: len(set(asked.asked)) == 3)
    assert asked.asked[:3] == ["startup", "startup", "startup"]
    assert "startup" not in asked.asked[3:]
    assert asked.decisions[0] == ("startup", True)


async def test_delays_and_periods_are_those_of_the_probe() -> None:
    asked = Asked(readiness="o")
    container = probe("readiness", initialDelaySeconds=5, periodSeconds=7)
    await asked.run(container, until=lambda: len(asked.asked) == 3)
    assert [pause for pause in asked.pauses if pause][:3] == [5, 7, 7]


async def test_readiness_comes_and_goes() -> None:
    asked = Asked(readiness="ofo")
    await asked.run(probe("readiness", failureThreshold=1), until=lambda: len(asked.findings) >= 3)
    assert asked.decisions[:3] == [("readiness", True), ("readiness", False), ("readiness", True)]


async def test_every_failure_is_told_even_if_it_does_not_count_yet() -> None:
    asked = Asked(liveness="f")
    await asked.run(probe("liveness", failureThreshold=3))
    assert [finding.decided for finding in asked.findings] == [False, False, True]
    assert asked.findings[0].outcome.text == "said so"


async def test_nobody_is_asked_after_a_startup_that_failed() -> None:
    """The container is about to be ended: an answer that its end causes would be told as one more failure."""
    asked = Asked(startup="f", readiness="o", liveness="o")
    await asked.run(probe("startup", failureThreshold=2) | probe("readiness") | probe("liveness"))
    assert asked.asked == ["startup", "startup"]
    assert asked.decisions == [("startup", False)]


async def test_a_liveness_that_failed_is_not_asked_for_again() -> None:
    asked = Asked(readiness="o", liveness="of")
    container = probe("readiness") | probe("liveness", failureThreshold=1)
    await asked.run(container, until=lambda: asked.asked.count("readiness") >= 10)
    assert asked.asked.count("liveness") == 2
    assert asked.decisions.count(("liveness", False)) == 1
