"""Backoff of the pods that replace failed ones, as CrashLoopBackOff is for containers.

A pod may fail as soon as it exists: a node refuses it, an image has no program. The first few of a slot are replaced at
once, then each has to wait twice as long as the one before. Guarantee: what is remembered here only delays; after a
restart of the process the first few come at once again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from trainmaster.controller.kube.clock import Clock

FREE: Final = 3
"""Replacements of a slot that are made at once."""

FIRST_DELAY: Final = 10.0
LONGEST_DELAY: Final = 300.0
"""Seconds, as the kubelet's for containers."""

FORGOTTEN_AFTER: Final = 600.0
"""Seconds without a replacement, after which a slot starts anew; so does the kubelet."""

_REMEMBERED: Final = 65_536


@dataclass(slots=True)
class _Slot:
    count: int
    at: float


class RestartBackoff:
    """Counts the replacements of each slot.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: LRUCache[tuple[str, str], _Slot] = LRUCache(_REMEMBERED)
        """By UID of the job and name of the pod."""

    def wait(self, job_uid: str, pod: str) -> float:
        """Return the seconds until a pod may be replaced; 0 if it may be now."""
        slot = self._slots.get((job_uid, pod))
        if slot is None or slot.count < FREE:
            return 0.0
        passed = self._clock.monotonic() - slot.at
        return max(min(FIRST_DELAY * 2.0 ** min(slot.count - FREE, 10), LONGEST_DELAY) - passed, 0.0)

    def record(self, job_uid: str, pod: str) -> None:
        """Note that a pod is replaced."""
        now, old = self._clock.monotonic(), self._slots.get((job_uid, pod))
        count = old.count if old is not None and now - old.at < FORGOTTEN_AFTER else 0
        self._slots[job_uid, pod] = _Slot(count + 1, now)
