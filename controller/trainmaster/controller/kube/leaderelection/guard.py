"""Whether a write may start: only while we hold the lease, and for certain.

Guarantees:
- L-9, L-14: nothing passes before the lease is held, after it was lost, or once the renew deadline has passed by our
  own clock, which goes on while the process is stopped or the machine is suspended. The server does not fence: a
  request that is on its way already is beyond recall.
- May be called from any thread.
"""

from __future__ import annotations

import asyncio

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.leaderelection.lease import LeaseLock
from trainmaster.controller.kube.rest.errors import NotLeading


class WriteGuard:
    """Called before each write of the leader.

    Args:
        lease: The lease.
        renew_deadline: Seconds without a renewal after which no write may start.
        clock: The time.
    """

    def __init__(self, lease: LeaseLock, *, renew_deadline: float, clock: Clock) -> None:
        self._lease = lease
        self._renew_deadline = renew_deadline
        self._clock = clock
        self._open = False
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the lease is held, as far as is known."""
        return self._open

    def open(self, renewing: asyncio.Task[None]) -> None:
        """Let writes pass from now on; `renewing` is cancelled when it turns out to be too late."""
        self._renewing = renewing
        self._open = True

    def close(self) -> None:
        """Let nothing pass from now on."""
        self._open = False

    def seconds_to_renew(self) -> float:
        """Return the seconds that are left until the renew deadline; negative when it has passed."""
        return self._lease.renewed_at + self._renew_deadline - self._clock.boottime()

    def __call__(self) -> None:
        """Refuse a write that must not start, because the lease is not ours, or soon may not be (L-14).

        Raises:
            NotLeading: Do not write. If the lease was not renewed in time, the election ends as lost.
        """
        if not self._open:
            raise NotLeading(f"nothing was written: this process does not hold the lease {self._lease}")
        if self.seconds_to_renew() <= 0:
            renewing = self._renewing
            if renewing is not None:
                renewing.get_loop().call_soon_threadsafe(renewing.cancel)
            raise NotLeading(f"nothing was written: the lease {self._lease} was not renewed in time")
