"""Leader election on a Lease: of all replicas one acts.

Guarantees:
- L-2: durations with which two replicas could lead at once are refused.
- L-3: `new_identity` is different for each process, so that a restarted pod is another candidate.
- L-7: candidates wait the retry period and up to 120 % more, so that they do not move in step.
- L-8: a holder renews by one write of the lease it knows; only if that fails it reads first.
- L-9, L-10: a holder that cannot renew within the renew deadline has lost: `guard` lets nothing pass from then on, its
  work is cancelled without grace, and `LeaseLost` is raised. It does not try again; the process is expected to end.
- L-11: the lease is released only after the work has ended, and only if it was not lost. A release is retried, but not
  beyond the renew deadline. A candidate that is told to stop while its request is under way releases what it may have
  got.
- L-12: every end is the same end: whoever calls `run` needs no clean-up that depends on whether it ever led.
- L-13: unhealthy is only a leader whose last renewal is older than its lease and then some.
- L-14: the server does not fence. `guard` holds back writes once the renew deadline has passed by our own clock, which
  goes on while the process is stopped or the machine is suspended; a request that is on its way already is beyond
  recall, and writes protect themselves from that by UIDs and resource versions. Somebody who deletes the lease, or
  writes another holder into it, makes two leaders until the next renewal.
- L-16: our lease counts from before the request that renewed it was sent, everybody else's from when its answer
  arrived, and we write until the renew deadline only, which is shorter. So no two candidates start writes at once, not
  even if one's clock runs faster than the other's, by up to the ratio of lease duration and renew deadline.

What is in the lease, and when that of another has expired, is the business of `lease`. All state belongs to the event
loop that runs the elector; `guard`, `is_healthy` and `state` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import random as randomness
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from trainmaster.controller.kube.clock import Clock, Random, SystemClock
from trainmaster.controller.kube.leaderelection.lease import LeaseClient, LeaseLock
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotLeading
from trainmaster.metrics.controller import LeaderMetrics
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

JITTER: Final = 1.2
"""How many retry periods more than one a candidate waits at most (L-7)."""

_LAST_GRACE: Final = 1.0
"""Seconds that cancelled work gets even if the lease has expired; `guard` lets no write of it pass."""

_HEALTHY_TOLERANCE: Final = 20.0
"""Seconds that a lease may have been over before its leader is unhealthy (L-13)."""

_TOO_SHORT: Final = 0.001
"""Seconds in which no answer comes; waiting for less may not move a clock at all."""


class LeaseLost(KubeError):
    """Another replica may lead now; whatever this one did as the leader has been cancelled."""


def new_identity() -> str:
    """Return a name for this candidate that no other has, not even the same pod after a restart."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """One candidate for one lease; `run` may be called once.

    Args:
        client: The way to the lease; it should not retry by itself.
        lease_duration: Seconds that the lease lasts without a renewal.
        renew_deadline: Seconds without a renewal after which the leader gives up.
        retry_period: Seconds between two renewals, and at least that between two tries of a candidate.
        metrics: Where the state is published; by default under the name of the lease.
        on_overrun: Called when the lease was lost and the work has still not ended when the lease is about to expire;
            expected to end the process. By default `run` just raises.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        lease_namespace: str,
        lease_name: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Clock | None = None,
        random: Random = randomness.random,
        metrics: LeaderMetrics | None = None,
        on_overrun: Callable[[], None] = lambda: None,
    ) -> None:
        if not identity:
            raise ValueError("leader election needs an identity that no other replica has")
        if not lease_duration > renew_deadline > retry_period * JITTER > 0:
            raise ValueError(
                "leader election needs lease_duration > renew_deadline > "
                f"{JITTER} * retry_period > 0, not {lease_duration:g}, {renew_deadline:g}, {retry_period:g}"
            )
        self.identity = identity
        self._clock = clock or SystemClock()
        self._lease = LeaseLock(
            client,
            namespace=lease_namespace,
            name=lease_name,
            identity=identity,
            duration=lease_duration,
            request_timeout=max(renew_deadline / 2, 1.0),
            clock=self._clock,
        )
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._random = random
        self._metrics = metrics or LeaderMetrics(lease_name)
        self._on_overrun = on_overrun
        self._renewing: asyncio.Task[None] | None = None
        """Renews the lease while it is held, as far as is known; None: it is not."""

        self._log = log.bind(lease=str(self._lease), identity=identity)

    def guard(self) -> None:
        """Refuse a write that must not start, because the lease is not ours, or soon may not be (L-14).

        Raises:
            NotLeading: Do not write. If the lease was not renewed in time, the election ends as lost.
        """
        renewing = self._renewing
        if renewing is None:
            raise NotLeading(f"nothing was written: this process does not hold the lease {self._lease}")
        if self._seconds_to_renew() <= 0:
            renewing.get_loop().call_soon_threadsafe(renewing.cancel)
            raise NotLeading(f"nothing was written: the lease {self._lease} was not renewed in time")

    def is_healthy(self) -> bool:
        """Unhealthy is only a leader whose last renewal is older than its lease (L-13)."""
        return self._renewing is None or self._seconds_left() >= -_HEALTHY_TOLERANCE

    def state(self) -> JsonObject:
        """Return who leads as far as this candidate knows, for people."""
        leading = self._renewing is not None
        return {
            "lease": str(self._lease),
            "identity": self.identity,
            "leading": leading,
            "holder": self._lease.holder,
            "secondsSinceRenewal": round(self._clock.boottime() - self._lease.renewed_at, 1) if leading else None,
            "secondsToRenew": round(self._seconds_to_renew(), 1) if leading else None,
            "healthy": self.is_healthy(),
        }

    async def run(self, on_started: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `on_started` while holding it, release it.

        Ends when `on_started` ends; raises what it raises, or `LeaseLost` if the lease was lost first.
        """
        await self._acquire()
        working = asyncio.ensure_future(on_started())
        renewing = self._renewing = asyncio.create_task(self._renew_until_lost())
        self._metrics.leading(now=True)
        self._log.info("lease acquired")
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            try:
                # The work ends first, under a lease that is still renewed, so that there are never two leaders.
                await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
                if renewing.done():
                    self._report_loss()
                    await self._end_before_expiry(working)
            finally:
                lost = renewing.done()
                self._stop_leading()
                await _stop(renewing)
                # A second cancellation may have brought us here while the work still runs: then the lease must expire.
                if working.done() and not lost:
                    await self._release()
        if lost:
            failure = None if not working.done() or working.cancelled() else working.exception()
            raise LeaseLost(f"{self.identity} lost the lease {self._lease}; another replica may lead now") from failure
        working.result()

    async def _acquire(self) -> None:
        self._log.info("waiting for the lease")
        try:
            while not await self._try_acquire_or_renew():
                await self._clock.sleep(self._retry_period * (1.0 + JITTER * self._random()))
        except asyncio.CancelledError:
            if self._lease.may_be_ours:
                await self._release()
            raise

    async def _renew_until_lost(self) -> None:
        while (left := self._seconds_to_renew()) > _TOO_SHORT:
            await self._clock.sleep(min(self._retry_period, left))
            left = self._seconds_to_renew()
            if left > _TOO_SHORT:
                try:
                    async with self._clock.timeout(left):
                        renewed = await self._try_acquire_or_renew()
                except TimeoutError:
                    return
                if not renewed and self._lease.is_others:
                    # Someone else has it; there is nothing left to wait for.
                    return

    async def _end_before_expiry(self, working: asyncio.Future[None]) -> None:
        """Wait for the end of cancelled work, no longer than nobody else can lead."""
        margin = (self._lease_duration - self._renew_deadline) / 10
        try:
            async with self._clock.timeout(max(self._seconds_left() - margin, _LAST_GRACE)):
                await asyncio.wait({working})
        except TimeoutError:
            self._on_overrun()

    async def _try_acquire_or_renew(self) -> bool:
        """Acquire or renew the lease once."""
        try:
            return await self._renew_known() or await self._lease.take()
        except KubeError as error:
            if self._renewing is not None:
                self._log.warning(
                    "lease not renewed, trying again",
                    error=str(error),
                    seconds_left=round(self._seconds_to_renew(), 1),
                )
            elif not isinstance(error, Forbidden):
                self._lease.log_rarely("lease cannot be read or taken, trying again", error=str(error))
            return False

    async def _renew_known(self) -> bool:
        """Renew by one write; False if that is not possible."""
        if self._renewing is None:
            return False
        try:
            return await self._lease.renew()
        except KubeError as error:
            self._metrics.slow_path()
            self._log.debug("lease is read before it is renewed", error=str(error))
            return False

    async def _release(self) -> None:
        await self._lease.release(within=self._renew_deadline, pause=self._retry_period / 4)

    def _stop_leading(self) -> None:
        self._renewing = None
        self._metrics.leading(now=False)

    def _report_loss(self) -> None:
        self._stop_leading()
        self._log.error(
            "lease lost: the work of the leader is cancelled and this process ends, so that another replica can lead",
            holder=self._lease.holder or "nobody",
            seconds_since_renewal=round(self._clock.boottime() - self._lease.renewed_at, 1),
        )

    def _seconds_to_renew(self) -> float:
        """How long until the renew deadline; negative when it has passed."""
        return self._lease.renewed_at + self._renew_deadline - self._clock.boottime()

    def _seconds_left(self) -> float:
        """How long the lease is still ours, whatever happens elsewhere."""
        return self._lease.renewed_at + self._lease_duration - self._clock.boottime()


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.wait({task})
