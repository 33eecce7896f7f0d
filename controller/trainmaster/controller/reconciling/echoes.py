"""Echoes: the events that tell a reconciler nothing but what its own last reconcile wrote.

Each write of a reconcile comes back as an event, and a reconcile for it would find everything as the last one left it.
So where that is certain, such an event puts no key into the queue; whatever is not certain does.

Guarantees:
- An event is an echo only if it shows an object in the very state, by UID and resource version, in which a write left
  it that nothing unseen can hide behind (see `Expectations.expect_write`), and if the reconcile that wrote it said at
  its end that it left nothing to do. All other events put their key into the queue, and so does whatever else asks for
  a key; timers and failures do so past this module.
- What comes while a key is reconciled is decided on at the end of that. The queue would hand the key out no earlier,
  and an event may overtake the answer of the write that it tells of.
- An event that is no echo ends it for its key: what comes after it is no echo until the next reconcile.
- An echo fulfils its expectation. It is no write of which nothing was heard.
- What is remembered of a key lasts until its echoes have come; all of it may be forgotten at any time.
"""

from __future__ import annotations

from trainmaster.controller.kube.cache.delta import Version
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.expectations import Expectations


class Echoes:
    """Stands between events and the queue of a reconciler.

    Args:
        queue: Where its keys wait.
        expectations: What its writes are expected to look like in the caches.
    """

    def __init__(self, queue: WorkQueue, expectations: Expectations) -> None:
        self._queue = queue
        self._expectations = expectations
        self._held: dict[str, dict[Version | None, tuple[bool, int]]] = {}
        """What events have told of each key that is being reconciled: each with `anew` and its priority."""

        self._settled: set[str] = set()
        """Keys of which echoes are to come."""

        self._asked_anew: set[str] = set()
        """Keys whose next reconcile is to take nothing for known."""

        self._last: tuple[str, Version] | None = None
        """The last echo: several handlers may tell of one event."""

    def __len__(self) -> int:
        """Count the keys of which something is remembered."""
        return len(self._held) + len(self._settled) + len(self._asked_anew)

    def add(
        self, key: str, version: Version | None, *, anew: bool = False, priority: int = 0, delay: float = 0.0
    ) -> None:
        """Have a key reconciled because of an event, unless that is an echo.

        Args:
            key: The key.
            version: The state that an object has come to; None: it is no event that could be an echo.
            anew: Whether the reconcile is to take nothing for known, because of something that it does not look at.
            priority: That of the key.
            delay: Seconds that this may wait, for what comes in between to be reconciled together with it.
        """
        held = self._held.get(key)
        if held is not None:
            before = held.get(version, (anew, priority))
            held[version] = (anew or before[0], max(priority, before[1]))
        elif not self._is_echo(key, version):
            self._add(key, anew=anew, priority=priority, delay=delay)

    def begin(self, key: str) -> bool:
        """Say that the reconcile of a key begins, which sees all that came until now.

        Returns:
            Whether it is to take nothing for known.
        """
        self._settled.discard(key)
        self._held[key] = {}
        anew = key in self._asked_anew
        self._asked_anew.discard(key)
        return anew

    def settle(self, key: str) -> None:
        """Say that the reconcile of a key leaves nothing to do, as soon as the caches show what it wrote."""
        if self._expectations.all_foreseen(key):
            self._settled.add(key)

    def end(self, key: str) -> None:
        """Say that the reconcile of a key has ended, well or not."""
        for version, (anew, priority) in self._held.pop(key).items():
            if not self._is_echo(key, version):
                self._add(key, anew=anew, priority=priority)

    def _add(self, key: str, *, anew: bool, priority: int, delay: float = 0.0) -> None:
        self._settled.discard(key)
        if delay:
            self._queue.add_after(key, delay, priority=priority)
        else:
            self._queue.add(key, priority=priority)
        if key not in self._queue:
            self._asked_anew.discard(key)  # there is no such TrainJob, and nobody works on the queue
        elif anew:
            self._asked_anew.add(key)

    def _is_echo(self, key: str, version: Version | None) -> bool:
        if version is None:
            return False
        if self._last == (key, version):
            return True
        if key not in self._settled or not self._expectations.fulfil(key, version):
            return False
        self._last = key, version
        if not self._expectations.is_pending(key):
            self._settled.discard(key)
        return True
