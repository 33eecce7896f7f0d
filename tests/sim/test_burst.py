"""A burst of TrainJobs at a server that performs one request after the other: what happens to older ones."""

from __future__ import annotations

import asyncio

import pytest
from support.sim.actors import Fate
from support.sim.listening import LogEntry
from support.sim.loop import Process, VirtualLoop
from support.sim.scenarios import runtime, trainjob
from support.sim.server import Interference, Perform
from support.sim.wire import WRITES, Answer, Request
from support.sim.world import World, simulate, trainer_registry

from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINJOBS

AT_ONCE = 1.0
"""Seconds: what workers are at, and the requests of the one that matters."""


class OneAtATime(Interference):
    """A server that takes ten milliseconds for each write, and performs no two of them at once."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back."""
        if request.verb not in WRITES:
            return await perform()
        async with self._turn:
            await asyncio.sleep(0.01)
            return await perform()


def seconds_to_suspend(burst: int) -> tuple[float, int]:
    """Suspend an old TrainJob after a burst of others; returns how long that took, and how many had JobSets by then."""
    registry = trainer_registry()

    async def main(loop: VirtualLoop, _: list[LogEntry]) -> tuple[float, int]:
        world = World(loop, registry=registry, seed=1, fates={"old": Fate(seconds=3600.0)})
        world.server.network.shortest = world.server.network.longest = 0.001
        await world.begin()
        await world.user.create(CLUSTER_TRAINING_RUNTIMES, runtime())
        world.ensure(1)
        await world.user.create(TRAINJOBS, trainjob("old"))
        await world.until(lambda: world.runs("old"), "the old TrainJob runs")
        world.server.interference = OneAtATime()
        for number in range(burst):
            await world.user.create(TRAINJOBS, trainjob(f"new-{number}"))
        await asyncio.sleep(0.5)
        began = loop.time()
        await world.user.patch(TRAINJOBS, "default", "old", {"spec": {"suspend": True}})
        await world.until(lambda: (world.jobset("old") or {})["spec"].get("suspend"), "its JobSet is suspended")
        made = sum(event.type == "ADDED" and event.key.resource == JOBSETS for event in world.server.history)
        return loop.time() - began, made - 1

    course: tuple[float, int] = simulate(main, seed=1)
    return course


@pytest.mark.guarantee("W-19")
@pytest.mark.parametrize("burst", [100, 500])
def test_an_older_trainjob_is_suspended_at_once_whatever_the_burst(burst: int) -> None:
    seconds, made = seconds_to_suspend(burst)
    assert seconds < AT_ONCE
    assert made < burst / 2, "the burst is still there"
