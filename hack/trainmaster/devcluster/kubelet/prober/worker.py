"""The probes of one running container: how often they run, and when their results count.

- Until the startup probe has succeeded, the others do not run.
- A result changes something when it came as often in a row as the threshold says. A startup or liveness probe that
  fails for that long ends the container and does not run again; a readiness probe makes it unready, and ready again.
- Every single failure is reported, for the Event that users look for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainmaster.devcluster.kubelet.prober.handler import HandlerResult
from trainmaster.runtime.jsontree import JsonObject

ProbeType: TypeAlias = Literal["startup", "readiness", "liveness"]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """A result of a probe that its container has to know. `counts` is false for a failure below the threshold."""

    type: ProbeType
    result: HandlerResult
    counts: bool


class Threshold:
    """Turns single results into decisions."""

    def __init__(self, probe: JsonObject) -> None:
        self._needed = {True: probe.get("successThreshold") or 1, False: probe.get("failureThreshold") or 3}
        self._last: bool | None = None
        self._count = 0

    def observe(self, ok: bool) -> bool:
        """Take note of a result; say whether it has now come often enough to count."""
        self._count = self._count + 1 if ok is self._last else 1
        self._last = ok
        return bool(self._count >= self._needed[ok])


async def run_probes(
    container: JsonObject,
    *,
    run: Callable[[JsonObject], Awaitable[HandlerResult]],
    report: Callable[[ProbeResult], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run the probes of a container that has just started, until cancelled or none is left to run."""

    async def probe_until(probe_type: ProbeType, *, until: tuple[bool, ...]) -> bool:
        """Probe until one of certain results counts, and give that one."""
        probe = container.get(f"{probe_type}Probe")
        if probe is None:
            return True
        threshold = Threshold(probe)
        await sleep(probe.get("initialDelaySeconds") or 0)
        while True:
            result = await run(probe)
            counts = threshold.observe(result.ok)
            if counts or not result.ok:
                report(ProbeResult(probe_type, result, counts))
            if counts and result.ok in until:
                return result.ok
            await sleep(probe.get("periodSeconds") or 10)

    # A failure that counts ends the container: a further probe would only see its end.
    if not await probe_until("startup", until=(True, False)):
        return
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(probe_until("readiness", until=()))
        tasks.create_task(probe_until("liveness", until=(False,)))
