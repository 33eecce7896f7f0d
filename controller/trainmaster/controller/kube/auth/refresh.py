"""Credentials that change while we use them: when to reload them.

Guarantees:
- They are reloaded at least every `REFRESH_PERIOD`, by one request for all. The others go on with what we have: that
  may take as long as an identity provider does, and the leader election cannot wait (L-4).
- They are also reloaded when the server refuses them, at most once per `RENEWAL_PAUSE`. Whoever was refused waits for
  the result, also in another thread (the leader election has its own event loop).
- A reload that fails changes nothing: the next one is due after the period, and the server says meanwhile whether
  what we have is still good.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

import structlog

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError

log = structlog.get_logger(__name__)

REFRESH_PERIOD: Final = 60.0
"""Seconds; the kubelet rotates the token of a service account many minutes before it expires."""

RENEWAL_PAUSE: Final = 1.0
"""Seconds; a hundred requests that are refused together are one reason to run a plugin, not a hundred."""

_OTHER_THREAD_PERIOD: Final = 0.02
"""Seconds; reloads of two threads meet about never."""


class RefreshingCredentials(ABC):
    """When to reload; a subclass knows what."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._reloaded_at = clock.monotonic()
        self._renewed_at = float("-inf")
        self._generation = 0
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._reloading = threading.Lock()

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request, refreshed if they are about to expire."""
        if self._due() and not self._reloading.locked():
            async with self._exclusive():
                if self._due():
                    await self._refresh()
        return self._headers()

    async def renew(self) -> bool:
        """Look for new credentials and certificates because these did not do; False if there are none."""
        generation = self._generation
        async with self._exclusive():
            if self._generation != generation:
                return True
            if self._clock.monotonic() - self._renewed_at < RENEWAL_PAUSE:
                return False
            try:
                changed = await self._reload_refused()
            finally:
                self._renewed_at = self._reloaded_at = self._clock.monotonic()
            self._generation += changed
            return changed

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Keep all others from reloading: those of this loop in line, those of other threads by trying again."""
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while not self._reloading.acquire(blocking=False):
                await self._clock.sleep(_OTHER_THREAD_PERIOD)
            try:
                yield
            finally:
                self._reloading.release()

    def _due(self) -> bool:
        return self._clock.monotonic() - self._reloaded_at >= REFRESH_PERIOD

    async def _refresh(self) -> None:
        try:
            self._generation += await self._reload()
        except ConfigurationError as error:
            log.warning("the credentials could not be refreshed, keeping those we have", error=str(error))
        finally:
            self._reloaded_at = self._clock.monotonic()

    @abstractmethod
    def _headers(self) -> Mapping[str, str]:
        """Return the headers as they are."""

    @abstractmethod
    async def _reload(self) -> bool:
        """Read and run again what may give other credentials by now; tell whether anything changed.

        Raises:
            ConfigurationError: What should give credentials does not; those we have are unchanged.
        """

    async def _reload_refused(self) -> bool:
        """Do the same, but knowing that those we have are of no use."""
        return await self._reload()
