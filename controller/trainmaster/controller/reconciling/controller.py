"""The generic controller: workers that take keys from a queue and reconcile them.

Guarantees:
- K-1: `require_unique_names` refuses controllers that would share a name, and with it their metrics.
- K-2: at most `workers` reconciles run at once, and as many do if there are keys; where that number changes, there are
  more from the next key on, and those that are too many end after theirs. One that takes longer than `timeout` on the
  injected clock is cancelled and retried.
- K-3: what follows from how a reconcile ended, with the label of its result:

      an exception         again with backoff                  error
      TerminalError        nothing; backoff is not forgotten   error, and the terminal counter
      RequeueAfter         backoff forgotten, again then       requeue_after
      ExpectationsPending  again then                          requeue_after
      Requeue              again with backoff                  requeue
      Done                 backoff forgotten                   success

- W-26: whatever brings a key back keeps its priority.
- K-4: an exception in one reconcile is logged and retried, every member of an exception group for itself, and none
  ends a worker. A cancellation of the worker is never held up; a `CancelledError` without one is a failure of that one
  reconcile.
- K-5: every log line of a reconcile, those of the code below it included, carries its own id.
- K-6: on stop, workers finish what they are at.
- K-14: with a tracer each reconcile that it records is a span, with what went wrong in it, and its log lines carry the
  ids of trace and span. Without one nothing is done for it.
- K-7, K-8: the metrics of controller-runtime, every series from the start.
- C-3: a key whose own write no event will ever tell of, because what was written has vanished meanwhile, is reconciled
  again within two minutes.
- C-9: after a conflict the work is dropped and the key reconciled again, with backoff.
- P-33: cancellation passes through.
- P-35: other tasks get a turn after every reconcile, also when a thousand in a row wait for nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotLeading,
    TransportError,
)
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, ShutDown, WorkQueue
from trainmaster.controller.log_context import RECONCILED
from trainmaster.controller.reconciling.outcomes import (
    UNTIL_GRANTED,
    ExpectationsPending,
    Outcome,
    Reconcile,
    Requeue,
    RequeueAfter,
    TerminalError,
)
from trainmaster.metrics.controller import ControllerSeries, controller_series
from trainmaster.metrics.controller import Result as ResultLabel

log = structlog.get_logger(__name__)

UNOBSERVED_INTERVAL = 60.0
"""Seconds from one look for keys that nothing was heard of to the next."""

RECONCILE_TIMEOUT = 120.0
"""Seconds; far above what any number of retries within one reconcile adds up to."""


class ReconcileSpan(Protocol):
    """The record of one reconcile in a trace."""

    trace_id: str
    span_id: str

    def add_error(self, error: BaseException | str) -> None:
        """Take note of what went wrong."""

    def set_result(self, result: ResultLabel) -> None:
        """Take note of how it ended."""


class ReconcileTracer(Protocol):
    """Records the reconciles of one controller, or some of them, as spans."""

    def reconcile(self, key: str) -> AbstractContextManager[ReconcileSpan | None]:
        """Make what happens within the block a part of the reconcile of a key; None: it is not recorded."""

    def current(self) -> ReconcileSpan | None:
        """Return the span of the reconcile that this is called in."""


class Controller:
    """Runs one reconcile function with a number of workers.

    Args:
        name: Unique in the process; a label of metrics and logs.
        queue: Where keys come from; belongs to this controller.
        workers: How many keys are reconciled at the same time; a function is asked each time.
        on_start: Called before the first reconcile: from now on this process leads.
        unobserved: Names the keys that should have been reconciled again after a write of theirs.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        queue: WorkQueue,
        *,
        workers: int | Callable[[], int] = 1,
        on_start: Callable[[], object] = lambda: None,
        unobserved: Callable[[], Iterable[str]] = tuple,
        timeout: float = RECONCILE_TIMEOUT,
        clock: Clock | None = None,
        tracer: ReconcileTracer | None = None,
    ) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._allowed = workers if callable(workers) else lambda: workers
        self._workers = 0
        self._on_start = on_start
        self._unobserved = unobserved
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._tracer = tracer
        self._series: ControllerSeries = controller_series(name)
        self._series.max_concurrent.set(self._allowed())

    async def run(self) -> None:
        """Work until the queue is shut down; until there is a first key, one worker waits for all of them."""
        self._on_start()
        self.queue.start()
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._add_unobserved(), name=f"{self.name}-unobserved")
            async with asyncio.TaskGroup() as workers:
                self._start_worker(workers)
            looking.cancel()

    async def _add_unobserved(self) -> None:
        while True:
            await self._clock.sleep(UNOBSERVED_INTERVAL)
            for key in self._unobserved():
                log.debug("nothing was heard of what was written for a key, looking again", key=key)
                self.queue.add(key, priority=LOW_PRIORITY)

    def _start_worker(self, workers: asyncio.TaskGroup) -> None:
        workers.create_task(self._run_worker(workers), name=f"{self.name}-{self._workers}")
        self._workers += 1

    async def _run_worker(self, workers: asyncio.TaskGroup) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            allowed = self._allowed()
            self._series.max_concurrent.set(allowed)
            while self._workers < allowed:
                self._start_worker(workers)
            try:
                if self._tracer is None:
                    await self._process(key)
                else:
                    await self._trace(key, self._tracer)
            finally:
                self.queue.done(key)
            # A settled object is reconciled without a single wait, and a queue full of them answers without one, too:
            # thousands of keys, as after a start, would be one step of the event loop.
            await self._clock.sleep(0)
            if self._workers > self._allowed():
                self._workers -= 1
                return

    async def _trace(self, key: str, tracer: ReconcileTracer) -> None:
        with tracer.reconcile(key) as span:
            if span is None:
                await self._process(key)
                return
            with structlog.contextvars.bound_contextvars(trace_id=span.trace_id, span_id=span.span_id):
                span.set_result(await self._process(key))

    async def _process(self, key: str) -> ResultLabel:
        bound = RECONCILED.set((self.name, key, random.getrandbits(32)))
        self._series.active_workers.inc()
        started = self._clock.monotonic()
        try:
            result = self._requeue(key, await self._run_reconcile(key))
        finally:
            self._series.active_workers.dec()
            self._series.duration.observe(self._clock.monotonic() - started)
            RECONCILED.reset(bound)
        self._series.reconciles[result].inc()
        return result

    async def _run_reconcile(self, key: str) -> Outcome | None:
        """Run the reconcile; None means that it failed."""
        started = self._clock.monotonic()
        try:
            async with self._clock.timeout(self._timeout):
                return await self._reconcile(key)
        except asyncio.CancelledError as error:
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise
            # Nobody cancelled this worker: something that the reconcile waited for was cancelled. Raised further it
            # would end the worker without a word, because a task group takes a cancelled child for a finished one.
            self._log_errors([error])
        except TimeoutError as error:
            if self._clock.monotonic() - started < self._timeout:
                self._log_errors([error])
            else:
                self._series.timeouts.inc()
                self._add_error(f"it took longer than {self._timeout:g} s and was cancelled")
                log.error("reconcile took too long and was cancelled, trying again", seconds=self._timeout)
        except Forbidden as error:
            if error.told:
                self._add_error(error)
                return Requeue(str(error), at_latest=UNTIL_GRANTED)
            self._log_errors([error])
        except BaseExceptionGroup as group:
            ours, others = group.split((Exception, asyncio.CancelledError))
            if ours is not None:
                self._log_errors(list(_leaves(ours)))
            if others is not None:
                raise others from None
        except Exception as error:
            self._log_errors([error])
        self._series.errors.inc()
        return None

    def _log_errors(self, errors: list[BaseException]) -> None:
        """Log what went wrong, each error at the level that it deserves."""
        for error in errors:
            self._add_error(error)
            if isinstance(error, NotLeading):
                # The election ends this process, and tells why; a line for each reconcile would bury that.
                log.debug("this process does not lead any more", error=str(error))
            elif isinstance(error, Conflict | AlreadyExists):
                # Somebody was faster: look again at what they did (C-9). Normal, so it is no warning.
                log.debug("the object changed meanwhile, trying again", error=str(error))
            elif isinstance(error, ApiError | TransportError):
                log.warning("reconcile failed, trying again", error=str(error))
            elif isinstance(error, KubeError):
                log.error("reconcile failed, trying again", error=str(error))
            else:
                self._series.panics.inc()
                log.error("reconcile failed with an unforeseen error, trying again", exc_info=error)

    def _add_error(self, error: BaseException | str) -> None:
        span = self._tracer.current() if self._tracer is not None else None
        if span is not None:
            span.add_error(error)

    def _requeue(self, key: str, outcome: Outcome | None) -> ResultLabel:
        if outcome is None:
            self.queue.add_rate_limited(key)
            return "error"
        if isinstance(outcome, TerminalError):
            log.error("reconcile failed for good, waiting for a change", reason=outcome.reason)
            self._add_error(outcome.reason)
            self._series.errors.inc()
            self._series.terminal_errors.inc()
            return "error"
        if isinstance(outcome, Requeue):
            log.debug("trying again later", reason=outcome.reason)
            self.queue.add_rate_limited(key, at_latest=outcome.at_latest)
            return "requeue"
        if isinstance(outcome, ExpectationsPending):
            self.queue.add_after(key, outcome.seconds)
            return "requeue_after"
        self.queue.forget(key)
        if isinstance(outcome, RequeueAfter):
            self.queue.add_after(key, outcome.seconds)
            return "requeue_after"
        return "success"


def require_unique_names(controllers: Iterable[Controller]) -> None:
    """Refuse two controllers of one process under one name: nobody could tell their metrics and logs apart (K-1)."""
    seen: set[str] = set()
    for controller in controllers:
        if controller.name in seen:
            raise ValueError(f"there are two controllers called {controller.name!r}; give one of them another name")
        seen.add(controller.name)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Every single exception of a group, whatever way it is nested."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
