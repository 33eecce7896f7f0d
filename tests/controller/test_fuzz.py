"""Whatever objects a manager lists and watches: it goes on, its loop does not stall, and other jobs are built.

The suite feeds it some hundreds; `make fuzz` 20,000.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from support.installations import create_namespace
from support.objects import runtime_object, trainjob_object
from support.oddities import NAMESPACE, OddObjects, OddTransport, watched_kinds
from support.series import series
from support.sim.listening import listening
from support.stack import QUIET, Stack, api_server
from support.training import found, until

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.framework import Framework, load_plugins

log = structlog.get_logger(__name__)

IS_MEASURED = "TRAINMASTER_FUZZ_OBJECTS" in os.environ
"""Whether this is `make fuzz`: only that says something about seconds, since machines differ by a factor of three."""

OBJECTS = int(os.environ.get("TRAINMASTER_FUZZ_OBJECTS", "300"))
SEEDS = 2
LONGEST = 1.0
"""Seconds of computing for which the loop may do one thing; a busy machine does not count, so it is no time of day."""

IN_LISTS = 10


class LoopWatch:
    """Measures the longest stretch of computing for which a timer of the loop had to wait."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._timer = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        self._timer = self._loop.call_later(0.002, self._tick)

    def stop(self) -> None:
        """End the measurement."""
        self._timer.cancel()


@asynccontextmanager
async def fed_manager(
    stack: Stack, *, seed: int, lists: bool
) -> AsyncIterator[tuple[OddTransport, asyncio.Task[None]]]:
    """A manager whose lists and watches have odd objects in between."""
    framework = Framework(load_plugins())
    real = HttpTransport(stack.access, clock=SystemClock())
    transport = OddTransport(real, watched_kinds(framework), lists=IN_LISTS, streaming_lists=not lists, seed=seed)
    stop, filled = asyncio.Event(), asyncio.Event()

    def connect(**options: Any) -> KubeClient:
        return KubeClient(stack.access, transport=transport, **options)

    manager = Manager(Setup(stack.access, QUIET, framework, new_client=connect), on_caches_synced=filled.set)
    task = asyncio.create_task(manager.run(stop))
    waiting = asyncio.create_task(filled.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        yield transport, task
    finally:
        waiting.cancel()
        stop.set()
        await task


async def built(client: KubeClient, name: str) -> None:
    """Create a sound TrainJob, and wait until it has its JobSet."""
    await client.create(TRAINJOBS, {**trainjob_object(), "metadata": {"name": name, "namespace": "team"}})
    await until(lambda: found(client, JOBSETS, name, namespace="team"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_manager_goes_on_whatever_objects_it_is_fed(tmp_path: Path, seed: int) -> None:
    odd = OddObjects(seed)
    with listening() as logs:
        async with api_server(tmp_path) as stack:
            for name in ("team", NAMESPACE):
                await create_namespace(stack.client, name)
            await stack.client.create(TRAINING_RUNTIMES, runtime_object())
            loop_watch = LoopWatch()
            async with fed_manager(stack, seed=seed, lists=seed % 2 == 1) as (transport, task):
                kinds = transport.kinds
                plurals = sorted(kinds)
                jobs = 0
                for number in range(OBJECTS // SEEDS):
                    # TrainJobs and what belongs to them come more often than the rest.
                    plural = ("trainjobs", "jobsets", "configmaps", plurals[number // 4 % len(plurals)])[number % 4]
                    kind = odd.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED"))
                    frame = b'{"type":"' + kind.encode() + b'","object":' + odd.make(*kinds[plural]) + b"}\n"
                    async with asyncio.timeout(60):
                        await transport.put(plural, frame)
                    assert not task.done()
                    if number % 250 == 0:
                        await built(stack.client, f"sound-{number}")
                        jobs += 1
                await transport.drained()
                await built(stack.client, "sound-last")
                assert not task.done()
            loop_watch.stop()
    assert transport.sent["watch"] == OBJECTS // SEEDS
    assert (transport.sent["list"] > 0) == (seed % 2 == 1)
    assert any(each.value for each in series("trainmaster_informer_unreadable_objects"))
    unforeseen = [entry for entry in logs if "unforeseen" in entry["event"] or entry["event"] == "handler failed"]
    log.info("fed", **transport.sent, sound_jobs=jobs + 1, longest=round(loop_watch.longest, 3))
    assert loop_watch.longest < LONGEST or not IS_MEASURED
    assert not unforeseen, "\n".join(sorted({str(entry.get("exception"))[-600:] for entry in unforeseen}))
