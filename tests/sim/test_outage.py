"""An API server that is away, and a burst of TrainJobs at one that performs one request after the other."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from statistics import median

import pytest
from support.sim.actors import Fate
from support.sim.listening import LogEntry
from support.sim.loop import Process, VirtualLoop
from support.sim.scenarios import runtime, trainjob
from support.sim.server import Frames, Interference, Perform
from support.sim.wire import WRITES, Answer, Pipe, Request, broken
from support.sim.world import World, quiet, simulate, trainer_registry

from trainmaster.controller.kube.rest.errors import NotConnected
from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINJOBS

AWAY = 600.0


class Outage(Interference):
    """A server that may be away: connections break, or fall silent, and no new one is accepted."""

    def __init__(self, *, silent: bool) -> None:
        self.away = False
        self._silent = silent
        self._pipes: list[Pipe] = []
        self.tries = 0

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back."""
        if not self.away:
            return await perform()
        self.tries += 1
        if self._silent:
            await asyncio.Event().wait()
        raise NotConnected("simulated: connection refused")

    def stream(self, process: Process, request: Request, frames: Frames, pipe: Pipe) -> Frames:
        """Return the frames of a watch as they arrive."""
        self._pipes.append(pipe)
        return frames

    def begin(self) -> None:
        """Go away."""
        self.away = True
        for pipe in self._pipes:
            if self._silent:
                pipe.silent = True
            else:
                pipe.end(broken("watch"))
        self._pipes.clear()


@dataclass
class Course:
    """What came of it."""

    seconds: dict[str, float]
    """From the return of the server until a TrainJob had its JobSet, by name."""

    counts: Counter[str]
    starts: int
    tries: int
    logged: Counter[str]
    violations: list[str]


def play(*, managers: int, silent: bool, seed: int) -> Course:
    """Have the server go away while a TrainJob runs, ends and another one comes, and come back."""
    registry = trainer_registry()

    async def main(loop: VirtualLoop, entries: list[LogEntry]) -> Course:
        world = World(
            loop,
            registry=registry,
            seed=seed,
            fates={"runs": Fate(seconds=100.0)},
            configuration=quiet(elects=managers > 1),
        )
        outage = world.server.interference = Outage(silent=silent)
        await world.begin()
        await world.user.create(CLUSTER_TRAINING_RUNTIMES, runtime())
        world.ensure(managers)
        await world.user.create(TRAINJOBS, trainjob("runs"))
        await world.until(lambda: world.runs("runs"), "the first TrainJob runs")
        # One is known when the server goes away, and fails again and again meanwhile.
        await world.user.create(TRAINJOBS, trainjob("caught"))
        await asyncio.sleep(0.005)
        outage.begin()
        before, starts = len(entries), len(world.processes)
        await asyncio.sleep(AWAY)
        assert world.jobset("caught") is None
        await world.user.create(TRAINJOBS, trainjob("new"))
        logged = Counter(f"{each['level']}: {each['event']}" for each in entries[before:] if each["level"] != "debug")
        outage.away, back = False, loop.time()
        seconds: dict[str, float] = {}
        while len(seconds) < 2:
            waiting = {"caught", "new"} - seconds.keys()
            await world.until(lambda: any(map(world.jobset, waiting)), "they have their JobSets")  # noqa: B023
            seconds |= {name: loop.time() - back for name in waiting if world.jobset(name)}
        await world.until(lambda: all(world.holds(name, "Complete") for name in ("runs", "caught", "new")), "all end")
        return Course(seconds, world.counts(), len(world.processes) - starts, outage.tries, logged, world.violations)

    course: Course = simulate(main, seed=seed)
    return course


WITHIN = {(1, False): 30.0, (2, False): 45.0, (1, True): 90.0, (2, True): 120.0}
"""Seconds from the return of the server to the first write: for one manager the wait of whoever looks first, for
several a lease more; where nobody is told that a connection is dead, the timeout of a request more."""


LONGEST_WAIT = 61.0
"""Seconds for which a cache waits at most, with its request; that all of them do is a matter of their lots."""

TRIES = 1.4 * AWAY
"""Of one manager, which has some thirty caches, each of which tries about every 45 s; with what restarts."""


@pytest.mark.guarantee("R-27")
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
@pytest.mark.parametrize("managers", [1, 2])
def test_ten_minutes_without_a_server_are_over_soon_after_it_is_back(managers: int, silent: bool) -> None:
    """Nothing is made twice, nobody is asked or told without end, and a leader that lost its lease restarts once."""
    for seed in range(4):
        course = play(managers=managers, silent=silent, seed=seed)
        assert course.violations == []
        assert max(course.seconds.values()) < WITHIN[managers, silent], f"seed {seed}: {course.seconds}"
        assert set(course.counts.values()) == {1}
        assert course.starts == managers - 1
        assert course.tries < managers * TRIES
        assert course.logged.total() < 60 * (managers + course.starts), course.logged
        assert course.logged["warning: collection cannot be read, trying again"] < 20 * (managers + course.starts)


@pytest.mark.guarantee("R-27")
def test_a_longer_absence_makes_nobody_wait_longer() -> None:
    """The key of a TrainJob that failed all the while would wait for as long again as it has failed."""
    seconds = [max(play(managers=1, silent=False, seed=seed).seconds.values()) for seed in range(4, 10)]
    assert median(seconds) < WITHIN[1, False]
    assert max(seconds) < LONGEST_WAIT


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
