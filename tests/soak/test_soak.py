"""A manager behind a network that breaks all the time, and a server that dies now and then.

By default the short form of less than a minute. `make soak`, which sets TRAINMASTER_SOAK_MINUTES, runs as long as you
want, with longer faults and stricter bounds. TRAINMASTER_SOAK_SEED repeats the order of faults and lives of an earlier
run.
"""

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import aiohttp
import pytest
from support.audit import AuditedWrite, AuditLogReader
from support.lives import Crowd, World
from support.processes import ClusterProcess, ManagerProcess, account_token, cluster_process
from support.proxy import Direction, FaultProxy
from support.training import apply_runtime, runtime
from support.vitals import Vitals, measure, typical

from trainmaster.controller.kube.rest.concurrency_limit import MAXIMUM
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.settings import GARBAGE_COLLECTION

_DELAYS = 3
"""Of different length, one after the other, in each fault of that kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Severity:
    """How long things last at most, in seconds."""

    longest_delay: float = 2.0
    black_hole: float
    refusal: float
    downtime: float
    pause: float
    """Between two faults."""

    may_stay_silent: bool
    """Whether connections may stay silent when a black hole has ended: only time gets a client out of these."""


class ChaosMonkey:
    """Breaks the way of one manager to one cluster, time and again: every kind of fault equally often, in an order that
    the seed decides.
    """

    def __init__(self, cluster: ClusterProcess, wire: FaultProxy, *, seed: int, severity: Severity) -> None:
        self._cluster = cluster
        self._wire = wire
        self._random = Random(seed)
        self._severity = severity
        self.made: Counter[str] = Counter()
        """How many faults of each kind there were."""

    async def run(self, seconds: float) -> None:
        """Break things for some time, in whole rounds of all kinds; then nothing is broken any more."""
        kinds = {
            "delay": self._delay,
            "reset": self._reset,
            "black hole": self._black_hole,
            "refusal": self._refuse,
            "restart of the server": self._restart,
        }
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for kind in self._random.sample(sorted(kinds), len(kinds)):
                await kinds[kind]()
                self.made[kind] += 1
                await asyncio.sleep(self._up_to(self._severity.pause))
        self._wire.heal()

    async def _delay(self) -> None:
        for _ in range(_DELAYS):
            self._wire.delay(self._up_to(self._severity.longest_delay), self._direction())
            await asyncio.sleep(self._up_to(self._severity.pause))
        self._wire.delay(0)

    async def _reset(self) -> None:
        self._wire.reset_all()

    async def _black_hole(self) -> None:
        self._wire.black_hole(True, self._direction())
        await asyncio.sleep(self._up_to(self._severity.black_hole))
        self._wire.black_hole(False)
        if not self._severity.may_stay_silent or self._random.random() < 0.5:
            # What lies behind the network tells that it has forgotten these connections.
            self._wire.reset_all()

    async def _refuse(self) -> None:
        self._wire.cut(True)
        await asyncio.sleep(self._up_to(self._severity.refusal))
        self._wire.cut(False)

    async def _restart(self) -> None:
        await self._cluster.kill()
        await asyncio.sleep(self._up_to(self._severity.downtime))
        await self._cluster.start()

    def _direction(self) -> Direction | None:
        return self._random.choice((None, Direction.TO_SERVER, Direction.TO_CLIENT))

    def _up_to(self, most: float) -> float:
        return self._random.uniform(most / 10, most)


MINUTES = float(os.environ.get("TRAINMASTER_SOAK_MINUTES") or 0)
SEED = int(os.environ.get("TRAINMASTER_SOAK_SEED") or secrets.randbelow(10**6))

CREATED = 201
WRITES_OF_ONE = 15
"""How often the manager may write one object: the most eventful life needs about a third of that, without any fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How hard and how long."""

    peace: float
    """Seconds of lives without faults in the beginning."""

    warm_up: float
    """Seconds of faults until the manager has its normal size."""

    chaos: float
    """Seconds of faults from then on."""

    places: int
    """TrainJobs at once."""

    rest: float
    quiet: float
    """Seconds without a write after which everything has settled, and in which none may come then."""

    patience: float
    """Seconds from the last fault after which something that has not happened is taken for lost, and for each step from
    then on.
    """

    growth: float
    """How much more memory, in MiB, the manager may have after the faults than when it was warm."""

    severity: Severity


SHORT = Form(
    peace=2,
    warm_up=0,
    chaos=1,
    places=8,
    rest=1,
    quiet=5,
    patience=240,
    growth=32,
    severity=Severity(black_hole=2, refusal=2, downtime=0.5, pause=1, may_stay_silent=False),
)
LONG = Form(
    peace=10,
    warm_up=MINUTES * 15,
    chaos=MINUTES * 45,
    places=30,
    rest=20,
    quiet=60,
    patience=400,
    growth=12,
    severity=Severity(black_hole=90, refusal=30, downtime=10, pause=15, may_stay_silent=True),
)
FORM = LONG if MINUTES else SHORT


@dataclass
class Soak:
    """The manager, what is around it, and what was measured."""

    cluster: ClusterProcess
    manager: ManagerProcess
    wire: FaultProxy
    world: World
    audit: AuditLogReader
    metrics_port: int
    samples: list[Vitals] = field(default_factory=list)

    async def watch(self) -> None:
        """Measure until cancelled; a manager that ends is a failure."""
        while True:
            try:
                self.samples.append(await self.measure())
            except (OSError, aiohttp.ClientError) as error:
                log = self.manager.log.read_text()[-5000:]
                raise AssertionError(f"the manager ended ({self.manager.code}) or does not answer:\n{log}") from error
            await asyncio.sleep(1)

    async def measure(self) -> Vitals:
        return await measure(self.manager.pid, server_port=self.wire.port, metrics_port=self.metrics_port)

    def writes(self) -> list[AuditedWrite]:
        """What the manager has written so far, or tried to."""
        return self.audit.by(self.manager.user)

    async def settle(self) -> None:
        """Wait until the manager has written nothing for a while."""
        async with asyncio.timeout(FORM.patience):
            while time.time() - max((write.received for write in self.writes()), default=0) < FORM.quiet:
                await asyncio.sleep(0.5)

    async def nothing_happens(self) -> None:
        """Look on for as long again: what has settled stays as it is."""
        before = len(self.writes())
        await asyncio.sleep(FORM.quiet)
        assert not self.writes()[before:]

    async def comes_to_rest(self, idle: Vitals) -> Vitals:
        """Wait until every collection is watched again, and whatever else was open is closed."""
        watches = next(line.fields["informers"] for line in self.manager.lines() if line.event == "caches are filled")
        deadline = time.monotonic() + FORM.patience
        # One more asks now and then whether the server serves jobs of kubeflow.org/v1 meanwhile.
        while (now := await self.measure()).connections not in (watches, watches + 1) or now.exceeds(idle):
            assert time.monotonic() < deadline, f"{now} instead of {watches} watches and at most {idle}"
            await asyncio.sleep(0.5)
        return now


@asynccontextmanager
async def soaking(directory: Path) -> AsyncIterator[Soak]:
    async with AsyncExitStack() as stack:
        cluster, client = await stack.enter_async_context(
            cluster_process(directory, parts=frozenset({GARBAGE_COLLECTION}))
        )
        await apply_runtime(client, runtime())
        wire = await stack.enter_async_context(await FaultProxy.start("127.0.0.1", cluster.port))
        metrics_port = free_port()
        manager = ManagerProcess(
            cluster,
            "soaked",
            token=await account_token(client, "soaked"),
            port=wire.port,
            configuration={"metrics": {"bindAddress": f"127.0.0.1:{metrics_port}", "secureServing": False}},
        )
        stack.push_async_callback(manager.kill)
        await manager.start()
        await manager.logged("caches are filled")
        world = World(client)
        yield Soak(cluster, manager, wire, world, AuditLogReader(cluster.audit_log), metrics_port)


@pytest.mark.timeout(300 + 2 * (FORM.warm_up + FORM.chaos) + 4 * FORM.patience)
async def test_a_manager_survives_trouble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No job is lost or served twice, nothing is left over, nothing grows, and in the end there is silence."""
    print(f"to repeat the order of events: TRAINMASTER_SOAK_SEED={SEED}")  # noqa: T201 - shown if it fails
    async with soaking(tmp_path) as soak, asyncio.TaskGroup() as group:
        looking = [group.create_task(soak.world.run()), group.create_task(soak.watch())]
        await soak.settle()
        # All but one of a controller's workers start when there are keys, and some of them stay.
        idle = await soak.measure()
        idle = replace(idle, tasks=idle.tasks + MAXIMUM - 1)
        crowd = Crowd(soak.world, seed=SEED, rest=FORM.rest)
        living = group.create_task(crowd.run(FORM.places))
        await asyncio.sleep(FORM.peace)
        chaos = ChaosMonkey(soak.cluster, soak.wire, seed=SEED, severity=FORM.severity)
        if FORM.warm_up:
            await chaos.run(FORM.warm_up)
        warm = typical(soak.samples[len(soak.samples) // 2 :])
        await chaos.run(FORM.chaos)
        soak.world.expect_within(FORM.patience)
        crowd.close()
        await living
        await soak.settle()
        await soak.nothing_happens()
        soak.world.expect_within(FORM.patience)
        await asyncio.gather(*(life.delete() for life in crowd.staying))
        await soak.settle()
        await soak.nothing_happens()
        end = await soak.comes_to_rest(idle)
        for task in looking:
            task.cancel()
        with capsys.disabled():
            print(_summary(crowd, chaos, soak, {"idle": idle, "warm": warm, "end": end}))  # noqa: T201 - the point of it

    for resource in (TRAINJOBS, JOBSETS, CONFIGMAPS):
        assert not soak.world.all(resource), "something is left over"
    made = Counter(w.name for w in soak.writes() if w.resource == "jobsets" and w.code == CREATED)
    assert made <= crowd.created, f"JobSets were made twice: {made - crowd.created}"
    counted = Counter((w.resource, w.subresource, w.name) for w in soak.writes() if w.may_have_counted)
    ((most, times),) = counted.most_common(1)
    assert times <= WRITES_OF_ONE, f"{most} was written {times} times"
    assert not [line for line in soak.manager.lines() if line.level in {"error", "fatal"}]
    assert end.memory <= warm.memory + FORM.growth


def _summary(crowd: Crowd, chaos: ChaosMonkey, soak: Soak, moments: dict[str, Vitals]) -> str:
    lines = [
        f"seed: {SEED}",
        f"TrainJobs: {crowd.created.total()}; {_counted(crowd.lived)}",
        f"faults: {chaos.made.total()}; {_counted(chaos.made)}",
        f"connections made: {soak.wire.accepted}; writes of the manager: {len(soak.writes())}",
        "log of the manager: " + _counted(Counter(f"{line.level}: {line.event}" for line in soak.manager.lines())),
        *(f"{moment}: {vitals}" for moment, vitals in moments.items()),
        "MiB by the minute: " + " ".join(f"{sample.memory:.0f}" for sample in soak.samples[::60]),
    ]
    return "\n" + "\n".join(lines)


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counter.most_common())
