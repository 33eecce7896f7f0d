"""Leader election on a Lease: of all replicas one acts.

Guarantees:
- L-5: whether another holder's lease has expired is judged by when we last saw it change, on our monotonic clock; the
  times written in the lease are never compared with our clock.
- L-6: only a change of the spec is a renewal.
- L-8: a holder renews by one write of the lease it knows; only if that fails it reads first.
- L-9, L-10: a holder that cannot renew within the renew deadline has lost: its work is cancelled and `LeaseLost` is
  raised. It does not try again; the process is expected to end.
- L-11: the lease is released only after the work has ended, and only if it was not lost.
- L-14: there is no fencing. Writes protect themselves by UIDs and resource versions.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import structlog

from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from trainmaster.controller.kube.events import micro_time
from trainmaster.controller.kube.pacing import Random
from trainmaster.controller.kube.resources import LEASES, Resource
from trainmaster.metrics.leader import LeaderMetrics
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

_JITTER: Final = 1.2
"""Candidates wait up to 120 % longer than the retry period, so that they do not move in step (L-7)."""


class LeaseLost(KubeError):
    """Another replica may lead now; whatever this one did as the leader has been cancelled."""


class LeaseClient(Protocol):
    """What the elector needs of a client."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object."""

    async def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Create an object."""

    async def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Replace an object."""


class LeaderElector:
    """One candidate for one lease."""

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
    ) -> None:
        if not identity:
            raise ValueError("leader election needs an identity that no other replica has")
        if not lease_duration > renew_deadline > retry_period * _JITTER > 0:
            raise ValueError(
                "leader election needs lease_duration > renew_deadline > "
                f"{_JITTER} * retry_period > 0, not {lease_duration:g}, {renew_deadline:g}, {retry_period:g}"
            )
        self.identity = identity
        self._client = client
        self._namespace = lease_namespace
        self._name = lease_name
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._request_timeout = max(renew_deadline / 2, 1.0)
        self._clock = clock or SystemClock()
        self._random = random
        self._metrics = metrics or LeaderMetrics(lease_name)
        self._lease: JsonObject | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._leading = False
        self._log = log.bind(lease=f"{lease_namespace}/{lease_name}", identity=identity)

    @property
    def is_leader(self) -> bool:
        """Whether this candidate holds the lease, as far as it knows."""
        return self._leading

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen; empty if nobody did."""
        return str(_spec(self._lease).get("holderIdentity") or "")

    def is_healthy(self, *, tolerance: float = 20.0) -> bool:
        """Unhealthy is only a leader whose last renewal is older than its lease (L-13)."""
        age = self._clock.monotonic() - self._renewed_at
        return not self._leading or age <= self._lease_duration + tolerance

    async def run(self, on_started: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `on_started` while holding it, release it.

        Ends when `on_started` ends; raises what it raises, or `LeaseLost` if the lease was lost first.
        """
        await self._acquire()
        working = asyncio.ensure_future(on_started())
        renewing = asyncio.create_task(self._renew_until_lost())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if renewing.done() and not working.done():
                self._log.error("lease lost, stopping the work of the leader")
        finally:
            # The work ends first, under a lease that is still renewed, so that there are never two leaders.
            try:
                await _stop(working)
            finally:
                lost = renewing.done()
                await _stop(renewing)
                self._leading = False
                self._metrics.leading(now=False)
                # A second cancellation may have brought us here while the work still runs: then the lease must expire.
                if working.done() and not lost:
                    await self._release()
        if lost:
            renewing.result()
            failure = None if working.cancelled() else working.exception()
            raise LeaseLost(f"{self.identity} lost the lease {self._namespace}/{self._name}") from failure
        working.result()

    async def _acquire(self) -> None:
        self._log.info("waiting for the lease")
        while not await self._try():
            await self._clock.sleep(self._retry_period * (1.0 + _JITTER * self._random()))
        self._leading = True
        self._metrics.leading(now=True)
        self._log.info("lease acquired")

    async def _renew_until_lost(self) -> None:
        while (left := self._renewed_at + self._renew_deadline - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(self._retry_period, left))
            left = self._renewed_at + self._renew_deadline - self._clock.monotonic()
            if left > 0:
                try:
                    async with self._clock.timeout(left):
                        renewed = await self._try()
                except TimeoutError:
                    return
                if not renewed and self.holder not in {self.identity, ""}:
                    # Someone else has it; there is nothing left to wait for.
                    return

    async def _try(self) -> bool:
        """Acquire or renew the lease once."""
        # Our lease counts from before the request: it may have reached the server any time since.
        started = self._clock.monotonic()
        try:
            async with self._clock.timeout(self._request_timeout):
                held = await self._renew_known() or await self._read_and_take()
        except TimeoutError:
            self._log.debug("lease request timed out")
            return False
        except KubeError as error:
            self._log.debug("lease request failed", error=str(error))
            return False
        if held:
            self._renewed_at = started
        return held

    async def _renew_known(self) -> bool:
        """Renew by writing the lease as we know it; False if that is not possible."""
        if self._lease is None or self.holder != self.identity or not self._leading:
            return False
        try:
            self._observe(await self._client.update(LEASES, self._held(self._lease)))
        except KubeError as error:
            self._metrics.slow_path()
            self._log.debug("lease is read before it is renewed", error=str(error))
            return False
        return True

    async def _read_and_take(self) -> bool:
        """Read the lease and take it if it is free, expired or ours."""
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name)
        except NotFound:
            lease = None
        try:
            if lease is None:
                self._observe(await self._client.create(LEASES, self._held(None)))
                return True
            self._observe(lease)
            if self.holder not in {self.identity, ""} and not self._expired():
                return False
            self._observe(await self._client.update(LEASES, self._held(lease)))
        except (AlreadyExists, Conflict):
            # Another candidate was quicker.
            return False
        return True

    def _observe(self, lease: JsonObject) -> None:
        """Remember the lease, and when its spec last changed in our eyes."""
        if self._lease is None or _spec(lease) != _spec(self._lease):
            if str(_spec(lease).get("holderIdentity") or "") != self.holder:
                self._log.info("lease has a new holder", holder=_spec(lease).get("holderIdentity") or "nobody")
            self._seen_at = self._clock.monotonic()
        self._lease = lease

    def _expired(self) -> bool:
        duration = _spec(self._lease).get("leaseDurationSeconds")
        seconds = float(duration) if isinstance(duration, int) else self._lease_duration
        return self._clock.monotonic() - self._seen_at > seconds

    def _held(self, lease: JsonObject | None) -> JsonObject:
        """Return the lease as it is when we hold it from now on."""
        now = micro_time(self._clock.now())
        spec = _spec(lease)
        ours = spec.get("holderIdentity") == self.identity
        transitions = spec.get("leaseTransitions")
        transitions = transitions if isinstance(transitions, int) else 0
        metadata = lease["metadata"] if lease else {"namespace": self._namespace, "name": self._name}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                **spec,
                "holderIdentity": self.identity,
                "leaseDurationSeconds": round(self._lease_duration),
                "acquireTime": spec.get("acquireTime", now) if ours else now,
                "renewTime": now,
                "leaseTransitions": transitions if ours or lease is None else transitions + 1,
            },
        }

    async def _release(self) -> None:
        """Give the lease back, so that the next leader need not wait for it to expire."""
        try:
            async with self._clock.timeout(self._renew_deadline):
                while not await self._release_once():
                    await self._clock.sleep(self._retry_period)
        except (KubeError, TimeoutError) as error:
            self._log.warning("lease was not released, it expires by itself", error=str(error) or "timeout")
            return
        self._log.info("lease released")

    async def _release_once(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name)
            if _spec(lease).get("holderIdentity") != self.identity:
                return True
            held = self._held(lease)
            held["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            await self._client.update(LEASES, held)
        except Conflict:
            return False
        return True


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    await asyncio.wait({task})


def _spec(lease: JsonObject | None) -> JsonObject:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}
