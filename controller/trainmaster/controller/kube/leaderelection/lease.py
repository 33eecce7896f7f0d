"""The lease of an election: what is in it, who holds it, and how it is taken, renewed and given back.

Guarantees:
- L-1: the lease says who holds it, for how long, since when and how often it changed hands; what others wrote into it
  stays. A lease that vanished, or that says nothing sensible, is written anew.
- L-5: whether another holder's lease has expired is judged by when we last saw it change, on our monotonic clock; the
  times written in the lease are never compared with our clock.
- L-6: only a change of the spec is a renewal.
- L-11: a release is retried, but not beyond a limit; the lease of somebody else is not touched.
- L-16: our lease counts from before the request that renewed it was sent, everybody else's from when its answer
  arrived.

When to do what is up to the elector. All state belongs to its event loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, Protocol

import structlog

from trainmaster.controller.kube.clock import Clock, micro_time
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotConnected,
    NotFound,
    RequestTimeout,
)
from trainmaster.controller.kube.rest.resources import LEASES, Resource
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

_LOG_INTERVAL: Final = 300.0
"""Seconds between two log lines about the same lasting error."""


class LeaseClient(Protocol):
    """What an election needs of a client."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object."""

    async def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Create an object."""

    async def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Replace an object."""


class LeaseLock:
    """One lease as one candidate sees it.

    Args:
        client: The way to the lease; it should not retry by itself.
        duration: Seconds that the lease lasts without a renewal.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration: float,
        request_timeout: float,
        clock: Clock,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration = duration
        self._request_timeout = request_timeout
        self._clock = clock
        self._known: JsonObject | None = None
        self._seen_at = 0.0
        self._logged_at: dict[str, float] = {}
        self._log = log.bind(lease=str(self), identity=identity)
        self.renewed_at = 0.0
        """When our last renewal was sent, by the clock that goes on while the machine is suspended."""
        self.may_be_ours = False
        """Whether a write of ours may have given us the lease, for all we know."""

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    @property
    def holder(self) -> str:
        """Who held the lease when it was last seen; empty if nobody did."""
        return _holder(self._known)

    @property
    def is_others(self) -> bool:
        """Whether somebody else held the lease when it was last seen."""
        return self.holder not in {self._identity, ""}

    async def renew(self) -> bool:
        """Renew by writing the lease as we know it; False if it is not known as ours.

        Raises:
            KubeError: It was not renewed, or nobody knows.
        """
        if self._known is None or self.holder != self._identity:
            return False
        await self._write(self._known)
        return True

    async def take(self) -> bool:
        """Read the lease and take it if it is free, expired or ours; returns whether it is ours now.

        Raises:
            KubeError: It was not taken, or nobody knows.
        """
        lease: JsonObject | None = None
        with suppress(NotFound):
            lease = await self._request("get", self._client.get(LEASES, self._namespace, self._name))
        if lease is not None:
            self._observe(lease)
            if self.is_others and not self._expired():
                return False
        try:
            await self._write(lease)
        except (AlreadyExists, Conflict):
            # Another candidate was quicker.
            return False
        return True

    async def release(self, *, within: float, pause: float) -> None:
        """Give the lease back, so that the next leader need not wait for it to expire, if that can be done in time."""
        try:
            async with self._clock.timeout(within):
                while not await self._release_once():
                    await self._clock.sleep(pause)
        except (KubeError, TimeoutError) as error:
            self._log.warning("lease was not released, it expires by itself", error=str(error) or "timeout")

    def log_rarely(self, event: str, *, level: int = logging.WARNING, **fields: object) -> None:
        """Log something that may last, each event of it rarely."""
        now = self._clock.monotonic()
        last = self._logged_at.get(event)
        if last is None or now - last >= _LOG_INTERVAL:
            self._logged_at[event] = now
            self._log.log(level, event, **fields)

    async def _write(self, known: JsonObject | None) -> None:
        """Write the lease as ours, over the version that we know or as a new one."""
        # It counts from before the request: that may have reached the server any time since.
        started = self._clock.boottime()
        held = self._held(known)
        write = self._client.create if known is None else self._client.update
        could_be, self.may_be_ours = self.may_be_ours, True
        try:
            answer = await self._request("create" if known is None else "update", write(LEASES, held))
        except (ApiError, NotConnected) as error:
            # Refused: whatever we held before, this write did not add to it.
            if not isinstance(error, ApiError) or error.status < 500:
                self.may_be_ours = could_be
            raise
        self._observe(answer)
        self.renewed_at = started

    async def _release_once(self) -> bool:
        """Try to give the lease back; False if that is worth another try."""
        try:
            lease = await self._request("get", self._client.get(LEASES, self._namespace, self._name))
            if _holder(lease) != self._identity:
                return True
            held = self._held(lease)
            held["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            await self._request("update", self._client.update(LEASES, held))
        except NotFound:
            return True
        except Forbidden:
            raise
        except KubeError as error:
            self._log.debug("lease not released, trying again", error=str(error))
            return False
        self._log.info("lease released")
        return True

    async def _request(self, verb: str, answer: Awaitable[JsonObject]) -> JsonObject:
        """Wait for an answer, within the time that lets a renewal be tried again."""
        try:
            async with self._clock.timeout(self._request_timeout):
                return await answer
        except TimeoutError as error:
            raise RequestTimeout(f"no answer to {verb} {LEASES.name} within {self._request_timeout:g} s") from error
        except Forbidden as error:
            if not error.told:
                self.log_rarely(
                    f"the service account may not {verb} the lease; grant it the verbs get, create and update "
                    f"on {LEASES.name} in namespace {self._namespace}",
                    level=logging.ERROR,
                    error=str(error),
                )
            raise

    def _observe(self, lease: JsonObject) -> None:
        """Keep the lease as observed, and when its spec last changed in our eyes."""
        if self._known is None or _spec(lease) != _spec(self._known):
            if _holder(lease) not in {self.holder, self._identity}:  # of our own holding the elector tells
                self._log.info("lease has a new holder", holder=_holder(lease) or "nobody")
            self._seen_at = self._clock.monotonic()
        self._known = lease

    def _expired(self) -> bool:
        """Whether the lease of another holder has expired, in our eyes."""
        return self._clock.monotonic() - self._seen_at > _count(
            _spec(self._known).get("leaseDurationSeconds"), default=self._duration
        )

    def _held(self, lease: JsonObject | None) -> JsonObject:
        """Return the lease as it is when we hold it from now on."""
        now = micro_time(self._clock.now())
        spec = _spec(lease)
        ours = _holder(lease) == self._identity
        transitions = int(_count(spec.get("leaseTransitions"), default=0))
        metadata = lease["metadata"] if lease else {"namespace": self._namespace, "name": self._name}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                **spec,
                "holderIdentity": self._identity,
                # The API knows whole seconds only; what others wait for must not be shorter than what we rely on.
                "leaseDurationSeconds": math.ceil(self._duration),
                "acquireTime": spec.get("acquireTime", now) if ours else now,
                "renewTime": now,
                "leaseTransitions": transitions if ours or lease is None else transitions + 1,
            },
        }


def _spec(lease: JsonObject | None) -> JsonObject:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _holder(lease: JsonObject | None) -> str:
    return str(_spec(lease).get("holderIdentity") or "")


def _count(value: object, *, default: float) -> float:
    """Read a number that somebody may have left out or spoilt."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
