"""Where leader election runs: in a thread of its own, or on the loop of those who lead.

Guarantees:
- L-4: the election has its own client, connections, User-Agent and event loop; it queues behind nothing.
- L-10: if the lease was lost and the main loop does not end the work before the lease expires, the process is ended.
- L-11: the lease is released when the work on the main loop has ended, not when it was told to.
- L-15: with `ElectionInThread` nothing that blocks the main loop loses the lease: no pass of the garbage collector, no
  big answer, no bug. What blocks every thread does, and then `guard` holds.
- P-30: the thread, its loop and its tasks end with `run`.

The two loops share nothing but messages (`call_soon_threadsafe`) and the readings of the elector that are made for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, Protocol, TypeAlias

from trainmaster.controller.kube.leaderelection.elector import LeaderElector
from trainmaster.controller.kube.leaderelection.lease import LeaseClient

USER_AGENT_SUFFIX: Final = "/leader-election"

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What the leader does, until it ends or is cancelled."""

MakeElector: TypeAlias = Callable[[LeaseClient, Callable[[], None]], LeaderElector]
"""Makes the elector for a client, given what it shall call when the work of a lost lease does not end."""


class ElectionClient(LeaseClient, AbstractAsyncContextManager[Any], Protocol):
    """A client whose connections belong to the loop on which it is entered."""


class Election:
    """Decides when this process leads, on the loop of the work: every run of a simulation sees the same order.

    Args:
        on_overrun: Called when the work of a lost lease does not end.
    """

    def __init__(
        self, client: ElectionClient, make_elector: MakeElector, on_overrun: Callable[[], None] = lambda: None
    ) -> None:
        self._client = client
        self.elector = make_elector(client, on_overrun)
        """Its readings may be asked for from any thread."""

    async def run(self, work: Work) -> None:
        """Wait to lead, then work; ends when the work does, raises what it raises or `LeaseLost`."""
        async with self._client:
            await self.elector.run(work)


class ElectionInThread(Election):
    """An election in a thread of its own; the work runs on the loop that calls `run`."""

    def __init__(self, client: ElectionClient, make_elector: MakeElector, *, end: Callable[[str], object]) -> None:
        super().__init__(client, make_elector, self._overrun)
        self._end = end

    async def run(self, work: Work) -> None:
        """Wait to lead, then work on this loop.

        Cancelled once, it ends the work and releases the lease; cancelled again, it does not wait for the work.
        """
        main, aside = asyncio.get_running_loop(), asyncio.new_event_loop()
        ended = asyncio.Event()
        # The loop of the thread does not run yet, so the task may be made from here: from now on it can be cancelled.
        electing = aside.create_task(self._elect(_RemoteTask(main, work)), name="leader-election")

        def run_thread() -> None:
            try:
                _run_to_end(aside, electing)
            finally:
                _call_soon(main, ended.set)

        thread = threading.Thread(target=run_thread, name="leader-election", daemon=True)
        thread.start()
        cancelled: asyncio.CancelledError | None = None
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                _call_soon(aside, electing.cancel)
        thread.join()
        if cancelled is not None:
            raise cancelled
        electing.result()

    async def _elect(self, work: _RemoteTask) -> None:
        async with self._client:
            await self.elector.run(work.run)

    def _overrun(self) -> None:
        self._end("the lease was lost, but the work of the leader did not stop in time: the process ends at once")


class _RemoteTask:
    """Work on another loop, as the election sees it from its own: it can wait for its end and cancel it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[None] | None = None
        """Belongs to the other loop."""

    async def run(self) -> None:
        """Run the work; cancelled once, it cancels the work and waits for its end."""
        here = asyncio.get_running_loop()
        ended: asyncio.Future[None] = here.create_future()

        def start() -> None:
            self._task = self._loop.create_task(self._work(), name="leader")
            self._task.add_done_callback(lambda task: _call_soon(here, report, task))

        def report(task: asyncio.Task[None]) -> None:
            if ended.done():
                return  # cancelled for the second time: nobody waits any more
            if task.cancelled():
                ended.cancel()
            elif (error := task.exception()) is not None:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        _call_soon(self._loop, start)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not ended.done():
                # It arrives after the start, since messages to a loop keep their order.
                _call_soon(self._loop, self._cancel)
                await ended
            raise

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _run_to_end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """Run a task on a loop of this thread, then end whatever it left and close the loop."""

    async def run() -> None:
        await asyncio.wait({task})
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for other in left:
            other.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await loop.shutdown_asyncgens()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: object) -> None:
    """Have another loop call something; one that is closed needs no news."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)
