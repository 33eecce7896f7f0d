"""The part of the work queue in which keys wait for their time; client-go's delaying queue.

Guarantees:
- A key waits once, for the time that was set last; keys come out in the order of their times, ties in the order in
  which those were set.
- There is one timer, for the earliest key (W-8 needs no loop that looks again now and then).
- Void places, which a key leaves in the heap when its time changes, are swept before they outnumber the keys by far.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from trainmaster.controller.kube.clock import Clock, Timer

_VOID_PLACES: Final = 1000
"""So many void places are not worth a sweep."""


class DelayingQueue:
    """Keys and their times.

    Args:
        clock: The time.
        on_due: Called when a key may be due; it should take what is.
    """

    def __init__(self, clock: Clock, on_due: Callable[[], object]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._places: dict[str, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._tickets = itertools.count()
        self._timer: Timer | None = None
        self._timer_due = 0.0

    def set(self, key: str, due: float) -> None:
        """Have `key` come out at `due` of the clock."""
        place = self._places[key] = (due, next(self._tickets))
        heapq.heappush(self._heap, (*place, key))
        if len(self._heap) > 2 * len(self._places) + _VOID_PLACES:
            # A key that is always taken out before its long delay ends would pile them up.
            self._heap = [(*place, key) for key, place in self._places.items()]
            heapq.heapify(self._heap)
        self._set_timer()

    def discard(self, key: str) -> None:
        """Forget `key`, if it is there."""
        self._places.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._places.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_due(self) -> Iterator[str]:
        """Take out what is due, in order."""
        now = self._clock.monotonic()
        while self._heap:
            due, ticket, key = self._heap[0]
            void = self._places.get(key) != (due, ticket)
            if not void and due > now:
                break
            heapq.heappop(self._heap)
            if not void:
                del self._places[key]
                yield key
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._on_due()
