"""The probes of one running container: how often they ask, and when their answers count.

- Until the startup probe has succeeded, the others do not ask.
- An answer changes something when it was given as often in a row as the threshold says. A startup or liveness probe
  that fails for that long ends the container and does not ask again; a readiness probe makes it unready, and ready
  again.
- Every single failure is told, for the Event that users look for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainmaster.devcluster.kubelet.prober.handler import Outcome
from trainmaster.runtime.jsontree import JsonObject

Kind: TypeAlias = Literal["startup", "readiness", "liveness"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a probe has found out. `decided` tells whether it counts, or is a failure that does not count yet."""

    kind: Kind
    outcome: Outcome
    decided: bool


class Threshold:
    """Turns single answers into decisions."""

    def __init__(self, probe: JsonObject) -> None:
        self._needed = {True: probe.get("successThreshold") or 1, False: probe.get("failureThreshold") or 3}
        self._last: bool | None = None
        self._count = 0

    def note(self, ok: bool) -> bool:
        """Take note of an answer; say whether it has now been given often enough to count."""
        self._count = self._count + 1 if ok is self._last else 1
        self._last = ok
        return bool(self._count >= self._needed[ok])


async def watch_over(
    container: JsonObject,
    *,
    perform: Callable[[JsonObject], Awaitable[Outcome]],
    tell: Callable[[Finding], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run the probes of a container that has just started, until cancelled or nothing is left to ask."""

    async def follow(kind: Kind, *, until: tuple[bool, ...]) -> bool:
        """Ask until one of certain answers counts, and give that one."""
        probe = container.get(f"{kind}Probe")
        if probe is None:
            return True
        threshold = Threshold(probe)
        await sleep(probe.get("initialDelaySeconds") or 0)
        while True:
            outcome = await perform(probe)
            decided = threshold.note(outcome.ok)
            if decided or not outcome.ok:
                tell(Finding(kind, outcome, decided))
            if decided and outcome.ok in until:
                return outcome.ok
            await sleep(probe.get("periodSeconds") or 10)

    # A failure that counts ends the container: whoever asked again would be answered by its end.
    if not await follow("startup", until=(True, False)):
        return
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow("readiness", until=()))
        tasks.create_task(follow("liveness", until=(False,)))
