"""The generic controller: workers that take keys from a queue and reconcile them.

Guarantees:
- K-3: an error is retried with backoff; `RequeueAfter` and `Done` forget earlier failures, `NotYet` does not.
- K-4: an exception in one reconcile is logged and retried; it never ends a worker.
- K-5: every log line of a reconcile carries its own id.
- K-2: a reconcile that takes too long is cancelled and retried.
- K-6: on stop, workers finish what they are at.
"""

from __future__ import annotations

import asyncio
import secrets
import time

import structlog

from trainmaster.controller.kube.errors import ApiError, Conflict, KubeError, TransportError
from trainmaster.controller.kube.queueing import ShutDown, WorkQueue
from trainmaster.controller.reconciling.outcomes import NotYet, Outcome, Reconcile, RequeueAfter, Retry
from trainmaster.metrics.controller import ControllerSeries, controller_series
from trainmaster.metrics.controller import Result as ResultLabel

log = structlog.get_logger(__name__)

RECONCILE_TIMEOUT = 120.0
"""Seconds; far above what any number of retries within one reconcile adds up to."""


class Controller:
    """Runs one reconcile function with a number of workers.

    Args:
        name: Unique in the process; a label of metrics and logs.
        reconcile: Called with a key; never twice at the same time for one key.
        queue: Where keys come from; belongs to this controller.
        workers: How many keys are reconciled at the same time.
        timeout: Seconds that one reconcile may take.
    """

    def __init__(
        self, name: str, reconcile: Reconcile, queue: WorkQueue, *, workers: int, timeout: float = RECONCILE_TIMEOUT
    ) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._workers = workers
        self._timeout = timeout
        self._series: ControllerSeries = controller_series(name)
        self._series.max_concurrent.set(workers)

    async def run(self) -> None:
        """Work until the queue is shut down."""
        async with asyncio.TaskGroup() as workers:
            for number in range(self._workers):
                workers.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self._process(key)
            finally:
                self.queue.done(key)

    async def _process(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        with structlog.contextvars.bound_contextvars(
            controller=self.name, namespace=namespace, name=name, reconcile_id=secrets.token_hex(4)
        ):
            self._series.active_workers.inc()
            started = time.monotonic()
            try:
                result = self._requeue(key, await self._outcome(key))
            finally:
                self._series.active_workers.dec()
                self._series.duration.observe(time.monotonic() - started)
            self._series.reconciles[result].inc()

    async def _outcome(self, key: str) -> Outcome | None:
        """Run the reconcile; None means that it failed."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._reconcile(key)
        except Conflict as error:
            # Somebody was faster: look again at what they did (C-9). Normal, so nobody has to hear of it.
            log.debug("the object changed meanwhile, trying again", error=str(error))
        except (ApiError, TransportError) as error:
            log.warning("reconcile failed, trying again", error=str(error))
        except KubeError as error:
            log.error("reconcile failed, trying again", error=str(error))
        except TimeoutError:
            self._series.timeouts.inc()
            log.error("reconcile took too long and was cancelled, trying again", seconds=self._timeout)
        except Exception:
            self._series.panics.inc()
            log.exception("reconcile failed with an unforeseen error, trying again")
        self._series.errors.inc()
        return None

    def _requeue(self, key: str, outcome: Outcome | None) -> ResultLabel:
        if outcome is None:
            self.queue.add_rate_limited(key)
            return "error"
        if isinstance(outcome, Retry):
            log.debug("trying again later", reason=outcome.reason)
            self.queue.add_rate_limited(key)
            if outcome.at_latest is not None:
                self.queue.add_after(key, outcome.at_latest)
            return "requeue"
        if isinstance(outcome, NotYet):
            self.queue.add_after(key, outcome.seconds)
            return "requeue_after"
        self.queue.forget(key)
        if isinstance(outcome, RequeueAfter):
            self.queue.add_after(key, outcome.seconds)
            return "requeue_after"
        return "success"
