"""Remembering answers for a short time.

Guarantees:
- Nothing is remembered for longer than it was said to be good for, and never more than so many things: what was not
  asked for longest goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from trainmaster.controller.kube.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """A bounded mapping whose entries expire.

    Args:
        limit: The most entries.
        clock: The time.
    """

    def __init__(self, *, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return what is remembered, if it is still good."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        until, value = entry
        if self._clock.monotonic() >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V, *, seconds: float) -> None:
        """Remember something for so many seconds."""
        self._entries[key] = (self._clock.monotonic() + seconds, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)
