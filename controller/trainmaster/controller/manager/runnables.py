"""The runnables that need leader election, from the wait for the caches to the end of the last reconcile.

Guarantees:
- M-1: the election and the controllers begin once the caches have synced.
- M-2, K-6: told to stop, the controllers finish what they are at, for a while, and events are flushed before the lease
  is released: it goes back as soon as nobody acts any more.
- K-2: a cache that cannot sync keeps the manager waiting and not ready, and is warned of until it is. It
  does not end the process: that would read everything else again and again, and cure nothing.
- P-30: each task of the manager has an owner that waits for its end.
- M-7: servers that others call go on for a while after the manager was told to stop, while readiness is down already:
  it takes a moment until nobody is sent here any more. The controllers stop and the lease goes meanwhile.
- A stop takes less than the 30 s after which Kubernetes kills a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain, repeat
from typing import Any, Final

import structlog

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.leaderelection.election_thread import Election
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.process import background_task, wait_for_first
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.server.server import AddressInUse, Server

log = structlog.get_logger(__name__)

STOP_TIMEOUT: Final = 26.0
"""Seconds until everything but the servers has stopped; they take two at most, and Kubernetes kills a pod after 30."""

CONTROLLERS_GRACE: Final = 18.0
"""Seconds of these in which reconciles may finish; the lease is ours all the time."""

EVENTS_GRACE: Final = 2.0
"""Seconds of these for events that nobody wrote yet."""

CACHE_SYNC_TIMEOUT: Final = 120.0
"""Seconds after which caches that have not synced are an error and not just slow."""

_WARNING_PERIODS: Final = (10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds between two warnings of caches that have not synced; the last one repeats. What is wrong, as a right that is
missing, is told by itself, and once.
"""

_NOT_SYNCED_HINT: Final = (
    "check that the CustomResourceDefinitions of what is missing are installed, and that the service account "
    "may list and watch these resources; it goes on by itself as soon as they can be read"
)


class RunnableFailed(Exception):
    """A runnable of the manager ended although nobody told it to; without it the rest is of no use."""


def raise_if_ended(task: asyncio.Task[Any]) -> None:
    """Refuse to go on if a task of the manager has ended by itself.

    Raises:
        AddressInUse: It has, because it cannot bind its address: nothing has failed that a traceback would explain.
        RunnableFailed: It has, whatever the reason.
    """
    if not task.done():
        return
    error = None if task.cancelled() else task.exception()
    cause = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, AddressInUse):
        raise cause
    what = f"failed: {type(cause).__name__}: {cause}" if cause is not None else "ended without being told to"
    raise RunnableFailed(f"the part {task.get_name()!r} of the manager {what}") from error


async def drain(stop: asyncio.Event, servers: Sequence[Server], *, delay: float, clock: Clock) -> None:
    """Wait until told to stop, and then until nobody calls these servers any more, so that they may end.

    Args:
        stop: Set when told to stop; readiness is down from then on.
        servers: What is called; without any there is nothing to wait for.
        delay: Seconds until load balancers have noticed.
    """
    await stop.wait()
    if not servers or not delay:
        return
    log.info("stopping: not ready any more, requests are answered until nobody sends any", seconds=delay)
    for server in servers:
        server.drain()
    await clock.sleep(delay)


class LeaderElectionRunnables:
    """The controllers, and more, which run while this process leads; `run` may be called once.

    Args:
        controllers: What runs while this process leads.
        election: Decides when this process leads; None: always.
        on_caches_synced: Called once, when the caches have synced.
        leading: What else runs while this process leads, until it is cancelled.
    """

    def __init__(
        self,
        *,
        caches: Caches,
        controllers: Sequence[Controller],
        recorder: EventRecorder,
        election: Election | None,
        clock: Clock,
        on_caches_synced: Callable[[], object],
        leading: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._leading = leading
        self._caches = caches
        self._controllers = controllers
        self._recorder = recorder
        self._election = election
        self._clock = clock
        self._on_caches_synced = on_caches_synced
        self._is_leader = False

    async def run(self, stop: asyncio.Event) -> None:
        """Wait for the caches, become the leader if there is an election, and run the controllers until told to stop.

        Raises:
            LeaseLost: Another replica may lead now.
            RunnableFailed: Something else ended, or did not end in time.
        """
        async with background_task(stop.wait()) as stopped:
            if not await self._wait_for_cache_sync(stopped):
                return

            async def lead() -> None:
                self._is_leader = True
                await self._run_controllers(stopped)

            async with background_task(self._election.run(lead) if self._election is not None else lead()) as leading:
                await wait_for_first(leading, stopped)
                if leading.done():
                    leading.result()
                elif self._is_leader:
                    try:
                        async with self._clock.timeout(STOP_TIMEOUT):
                            await leading
                    except TimeoutError as error:
                        raise RunnableFailed(f"the leader did not stop within {STOP_TIMEOUT:g} s") from error
                # else still a candidate: there is nothing to finish

    async def _wait_for_cache_sync(self, stopped: asyncio.Task[Any]) -> bool:
        """Wait until the caches have synced; False if we were told to stop first."""
        started = self._clock.monotonic()
        async with background_task(self._caches.wait_for_sync()) as synced:
            for period in chain(_WARNING_PERIODS, repeat(_WARNING_PERIODS[-1])):
                try:
                    async with self._clock.timeout(period):
                        await wait_for_first(synced, stopped)
                    break
                except TimeoutError:
                    waited = self._clock.monotonic() - started
                    warn = log.warning if waited < CACHE_SYNC_TIMEOUT else log.error
                    warn(
                        "caches are not filled yet",
                        missing=self._caches.not_synced(),
                        hint=_NOT_SYNCED_HINT,
                        seconds=round(waited),
                    )
            if not synced.done():
                return False
            synced.result()
        seconds_taken = round(self._clock.monotonic() - started, 3)
        log.info(
            "caches are filled",
            trainjobs=len(self._caches.trainjobs.store),
            informers=self._caches.synced(),
            seconds=seconds_taken,
        )
        self._on_caches_synced()
        return True

    async def _run_controllers(self, stopped: asyncio.Task[Any]) -> None:
        """Run controllers until told to stop, then let them finish what they are at; cancelled, they stop at once."""

        async def run_all() -> None:
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(each()) for each in self._leading]
                async with asyncio.TaskGroup() as controlling:
                    for controller in self._controllers:
                        controlling.create_task(controller.run())
                for other in others:
                    other.cancel()

        async with background_task(run_all(), name="controllers") as running:
            await wait_for_first(running, stopped)
            raise_if_ended(running)
            log.info("stopping: reconciles that run finish, no others start")
            for controller in self._controllers:
                controller.queue.shut_down()
            try:
                async with self._clock.timeout(CONTROLLERS_GRACE):
                    await asyncio.wait({running})
            except TimeoutError:
                log.warning("some reconciles did not finish in time and are cancelled", seconds=CONTROLLERS_GRACE)
            else:
                if running.exception() is not None:
                    raise_if_ended(running)
        await self._recorder.flush(EVENTS_GRACE)
