"""A watcher: how one client receives the events of one resource.

- Events arrive in the order of their revisions, each once, without a gap.
- The writer never waits for a watcher. One that falls behind by more than `BACKLOG` events is cut off with `Expired`
  after it consumed what it has; it must list again, as after any gap.
- A watcher ends when it is closed; closing twice is harmless.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from trainmaster.devcluster.apiserver.storage.entries import Event

BACKLOG = 20_000
"""Events that one watcher may lag behind: twice the default history, so that a full replay always fits."""


class Expired(Exception):
    """The watcher needs events that are no longer remembered."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {requested} ({oldest})")
        self.requested = requested
        self.oldest = oldest


class Watcher:
    """An async iterator of events; owned by the store that feeds it and by whoever closes it."""

    def __init__(self, replay: Iterable[Event], *, since: int, on_close: Callable[[Watcher], None]) -> None:
        self._events = deque(replay)
        self._delivered = since
        self._on_close = on_close
        self._wakeup: asyncio.Future[None] | None = None
        self._closed = False
        self._overflow: Expired | None = None

    def offer(self, event: Event) -> None:
        """Take an event from the store."""
        if self._overflow is not None:
            return
        if len(self._events) >= BACKLOG:
            self._overflow = Expired(self._events[-1].revision, event.revision)
        else:
            self._events.append(event)
        self._wake()

    @property
    def pending(self) -> int:
        """How many events wait to be consumed."""
        return len(self._events)

    @property
    def delivered(self) -> int:
        """The revision of the newest event that was consumed, or the one that the subscription started from."""
        return self._delivered

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._closed:
                raise StopAsyncIteration
            if (event := self.take()) is not None:
                return event
            if self._overflow is not None:
                overflow = self._overflow
                self.close()
                raise overflow
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await self._wakeup
            finally:
                self._wakeup = None

    def take(self) -> Event | None:
        """Return the next event if it is there already."""
        if not self._events:
            return None
        event = self._events.popleft()
        self._delivered = event.revision
        return event

    def close(self) -> None:
        """End the watcher; a waiting reader sees the end of the iteration."""
        if not self._closed:
            self._closed = True
            self._events.clear()
            self._on_close(self)
            self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
