"""Probes: when results count. Time is a list of the pauses that were made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.commands import TIMEOUT

from trainmaster.devcluster.kubelet.prober.handler import HandlerResult
from trainmaster.devcluster.kubelet.prober.worker import ProbeResult, Threshold, run_probes
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.parametrize(
    ("results", "counted"),
    [
        ("fff", "..f"),
        ("ffoff", "...."),
        ("ff" + "oo" + "fff", "...o..f"),
        ("o" + "o" + "f" * 4, ".o..ff"),
    ],
)
def test_results_count_when_they_come_often_enough_in_a_row(results: str, counted: str) -> None:
    threshold = Threshold({"successThreshold": 2, "failureThreshold": 3})
    seen = "".join(result if threshold.observe(result == "o") else "." for result in results)
    assert seen.startswith(counted)


class Probes:
    """Runs the probes of a container against prepared results; the last one of each kind is given for ever."""

    def __init__(self, **results: str) -> None:
        self.prepared = {kind: list(text) for kind, text in results.items()}
        self.results: list[ProbeResult] = []
        self.pauses: list[float] = []
        self.ran: list[str] = []

    async def run(self, container: JsonObject, *, until: Callable[[], bool] | None = None) -> None:
        """Probe until a condition holds or, without one, to the end."""

        async def run(probe: JsonObject) -> HandlerResult:
            kind = probe["kind"]
            self.ran.append(kind)
            left = self.prepared[kind]
            return HandlerResult((left.pop(0) if len(left) > 1 else left[0]) == "o", "said so")

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        task = asyncio.create_task(run_probes(container, run=run, report=self.results.append, sleep=sleep))
        async with asyncio.timeout(TIMEOUT):
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
        return [(found.type, found.result.ok) for found in self.results if found.counts]


def probe(kind: str, **fields: Any) -> JsonObject:
    return {f"{kind}Probe": {"kind": kind, **fields}}


async def test_the_other_probes_wait_for_the_startup_probe() -> None:
    probes = Probes(startup="ffo", readiness="o", liveness="o")
    container = probe("startup") | probe("readiness") | probe("liveness")
    await probes.run(container, until=lambda: len(set(probes.ran)) == 3)
    assert probes.ran[:3] == ["startup", "startup", "startup"]
    assert "startup" not in probes.ran[3:]
    assert probes.decisions[0] == ("startup", True)


async def test_delays_and_periods_are_those_of_the_probe() -> None:
    probes = Probes(readiness="o")
    container = probe("readiness", initialDelaySeconds=5, periodSeconds=7)
    await probes.run(container, until=lambda: len(probes.ran) == 3)
    assert [pause for pause in probes.pauses if pause][:3] == [5, 7, 7]


async def test_readiness_comes_and_goes() -> None:
    probes = Probes(readiness="ofo")
    await probes.run(probe("readiness", failureThreshold=1), until=lambda: len(probes.results) >= 3)
    assert probes.decisions[:3] == [("readiness", True), ("readiness", False), ("readiness", True)]


async def test_every_failure_is_reported_even_if_it_does_not_count_yet() -> None:
    probes = Probes(liveness="f")
    await probes.run(probe("liveness", failureThreshold=3))
    assert [found.counts for found in probes.results] == [False, False, True]
    assert probes.results[0].result.output == "said so"


async def test_nothing_is_probed_after_a_startup_that_failed() -> None:
    """The container is about to be ended: a result that its end causes would be reported as one more failure."""
    probes = Probes(startup="f", readiness="o", liveness="o")
    await probes.run(probe("startup", failureThreshold=2) | probe("readiness") | probe("liveness"))
    assert probes.ran == ["startup", "startup"]
    assert probes.decisions == [("startup", False)]


async def test_a_liveness_that_failed_is_not_probed_again() -> None:
    probes = Probes(readiness="o", liveness="of")
    container = probe("readiness") | probe("liveness", failureThreshold=1)
    await probes.run(container, until=lambda: probes.ran.count("readiness") >= 10)
    assert probes.ran.count("liveness") == 2
    assert probes.decisions.count(("liveness", False)) == 1
