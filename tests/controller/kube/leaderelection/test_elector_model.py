"""L-16: whatever happens to processes and networks, no two candidates start a write at the same time.

A world in virtual time, drawn from a seed: three candidates on clocks of different rates, a network that delays, loses
and duplicates nothing but time, processes that are paused, blocked, killed, stopped in order and started again.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.leases import LeaseClient, LeaseServer
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.clock import Timer
from trainmaster.controller.kube.leaderelection.elector import LeaderElector, LeaseLost
from trainmaster.controller.kube.rest.errors import NotLeading, TransportError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.metrics.controller import LeaderMetrics
from trainmaster.runtime.jsontree import JsonObject

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(4, 30))]
DURATION = 200.0
ROUNDS = 12
"""Turns of the loop between two timers; more than the longest chain of wake-ups here."""
RATES = (0.85, 1.2)
"""Their ratio is just below that of lease duration and renew deadline, which is what clocks may differ by."""


class Call:
    """A call that can be cancelled also while it is held up."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def __call__(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class OwnClock:
    """The clock of one process: it has a rate of its own, and serves no timer while the process is paused."""

    def __init__(self, world: VirtualClock, rate: float) -> None:
        self._world = world
        self._rate = rate
        self._awake = asyncio.Event()
        self._awake.set()
        self._dead = False
        self._held: list[Callable[[], object]] = []

    def pause(self) -> None:
        self._awake.clear()

    def kill(self) -> None:
        self.pause()
        self._dead = True

    def resume(self) -> None:
        if self._dead:
            return
        self._awake.set()
        held, self._held = self._held, []
        for callback in held:
            callback()

    async def awake(self) -> None:
        await self._awake.wait()

    def monotonic(self) -> float:
        return self._world.monotonic() * self._rate

    boottime = monotonic

    def now(self) -> datetime:
        return self._world.now()

    async def sleep(self, seconds: float) -> None:
        await self._world.sleep(seconds / self._rate)
        await self.awake()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        call = Call(callback)

        def due() -> None:
            if self._awake.is_set():
                call()
            else:
                self._held.append(call)

        self._world.call_at(when / self._rate, due)
        return call

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        async with asyncio.timeout(None) as scope:
            loop = asyncio.get_running_loop()
            timer = self.call_at(self.monotonic() + seconds, lambda: scope.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()


class World(LeaseServer):
    """The server, and everything that may happen."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.clock = VirtualClock()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.story: list[str] = []
        self.writes = 0
        self.violations: list[str] = []

    async def advance(self, seconds: float) -> None:
        """Move time on, timer by timer; `VirtualClock.advance` is more patient, and three times as slow."""
        target = self.clock.monotonic() + seconds
        await settle(ROUNDS)
        while (now := self.clock.monotonic()) < target:
            due = self.clock._timers[0][0] if self.clock._timers else target
            self.clock.step(max(0.0, min(due, target) - now))
            await settle(ROUNDS)

    def tell(self, what: str) -> None:
        self.story.append(f"{self.clock.monotonic():8.2f} {what}")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def holder(self) -> str:
        return str((self.lease or {}).get("spec", {}).get("holderIdentity") or "")

    def write(self, obj: JsonObject) -> JsonObject:
        before, written = self.holder(), super().write(obj)
        if self.holder() != before:
            self.tell(f"the lease goes from {before or 'nobody'} to {self.holder() or 'nobody'}")
        return written


class Network(LeaseClient):
    """What lies between one candidate and the server; a request that has left arrives, however late."""

    def __init__(self, world: World, clock: OwnClock) -> None:
        super().__init__(world)
        self.world = world
        self.clock = clock
        self.slow = 0.05
        self.partitioned = False

    async def _delay(self) -> None:
        await self.world.clock.sleep(self.world.random.random() * self.slow)
        while self.partitioned:
            await self.world.clock.sleep(0.5)

    async def _exchange(self, act: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        answered: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            await self._delay()
            try:
                answer, error = await act(), None
            except Exception as refusal:
                answer, error = {}, refusal
            await self._delay()
            if not answered.done():
                if self.world.random.random() < 0.05:
                    answered.set_exception(TransportError("the answer was lost"))
                elif error is not None:
                    answered.set_exception(error)
                else:
                    answered.set_result(answer)

        self.world.spawn(serve())
        answer = await answered
        await self.clock.awake()
        return answer

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        return await self._exchange(partial(super().get, resource, namespace, name))

    async def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        return await self._exchange(partial(super().create, resource, obj))

    async def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        return await self._exchange(partial(super().update, resource, obj))


class Process:
    """A candidate whose work is to write as often as it can, also for a while after it was told to stop."""

    numbers = itertools.count(1)

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.identity = f"{name}-{next(self.numbers)}"
        self.clock = OwnClock(world.clock, world.random.uniform(*RATES))
        self.network = Network(world, self.clock)
        self.stubborn = world.random.choice((0, 0, 3, 30))
        self.elector = LeaderElector(
            self.network,
            lease_namespace="ns",
            lease_name="lease",
            identity=self.identity,
            clock=self.clock,
            random=world.random.random,
            metrics=LeaderMetrics("safety"),
        )
        self.task = world.spawn(self._run())

    def may_write(self) -> bool:
        try:
            self.elector.guard()
        except NotLeading:
            return False
        return True

    async def _run(self) -> None:
        try:
            await self.elector.run(self._work)
        except LeaseLost:
            self.world.tell(f"{self.identity} lost")

    async def _work(self) -> None:
        try:
            while True:
                await self._write()
        except asyncio.CancelledError:
            for _ in range(self.stubborn):
                await self._write()
            raise

    async def _write(self) -> None:
        await self.clock.sleep(0.8)
        if not self.may_write():
            return
        self.world.writes += 1
        if (holder := self.world.holder()) != self.identity:
            self.world.tell(f"{self.identity} writes")
            self.world.violations.append(f"{self.identity} writes while {holder or 'nobody'} leads")


async def disturb(world: World, processes: list[Process]) -> None:
    """Let something happen to somebody."""
    chance = world.random
    process = processes[chance.randrange(len(processes))]
    what = chance.choice(("pause", "partition", "slow", "stop", "kill", "touch", "heal", "heal"))
    world.tell(f"{what} {process.identity}")
    if what == "pause":
        process.clock.pause()
        world.clock.call_at(world.clock.monotonic() + chance.uniform(1, 40), process.clock.resume)
    elif what == "partition":
        process.network.partitioned = True
    elif what == "slow":
        process.network.slow = chance.choice((1.0, 6.0, 20.0))
    elif what == "heal":
        process.network.partitioned = False
        process.network.slow = 0.05
    elif what == "touch" and world.lease is not None:
        world.write({**world.lease, "metadata": {**world.lease["metadata"], "labels": {"x": str(chance.random())}}})
    elif what == "stop":
        process.task.cancel()
    elif what == "kill":
        process.clock.kill()
    for index, each in enumerate(processes):
        if each.task.done() or (each is process and what == "kill"):
            processes[index] = Process(world, each.identity.partition("-")[0])


@pytest.mark.guarantee("L-5", "L-14", "L-16")
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_two_start_writes_at_once(seed: int) -> None:
    world = World(seed)
    with capture_logs():  # thousands of lines that nobody reads
        try:
            await live(world)
        finally:
            while world.tasks:
                for task in list(world.tasks):
                    task.cancel()
                await settle()


async def live(world: World) -> None:
    """Let a world pass, and look for writes of those who do not lead."""
    processes = [Process(world, name) for name in "abc"]
    while world.clock.monotonic() < DURATION:
        await world.advance(world.random.uniform(0.5, 12))
        await disturb(world, processes)
        assert not world.violations, "\n".join(world.story[-40:] + world.violations)
    # Once the trouble is over, exactly one leads, and soon.
    for index, process in enumerate(processes):
        process.network.partitioned = False
        process.network.slow = 0.05
        process.clock.resume()
        if process.task.done():
            processes[index] = Process(world, "z")
    await world.advance(90)
    assert not world.violations, "\n".join(world.story[-40:] + world.violations)
    assert [process.may_write() for process in processes].count(True) == 1, "\n".join(world.story[-40:])
    assert world.writes > 50
