"""Chaos on the way between a manager and its cluster, drawn from a seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from random import Random

from support.processes import ClusterProcess
from support.proxy import Direction, FaultProxy

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
