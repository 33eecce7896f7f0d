"""The heap of the process: what is there for good, what is garbage, and what goes back to the operating system.

Guarantees:
- P-22: `freeze` takes everything that is there for good out of the sight of the garbage collector.
- A connection that broke leaves a cycle behind, in the tracebacks of its errors, which holds a quarter of a mebibyte of
  TLS buffers that the collector does not see. `collect_periodically` finds such garbage also while nothing happens.
- Freed buffers go back to the operating system (`unmap_freed_blocks`), so that trouble leaves no larger process behind.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from contextlib import suppress
from typing import Final

COLLECT_EVERY: Final = 15.0
"""Seconds."""

_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 128 * 1024
"""Bytes; the value with which glibc begins."""


def freeze() -> None:
    """Keep the garbage collector away from what is there for good: before anything is served, and when caches are full.

    Our modules alone are 113,000 objects that it follows, for 25 to 200 ms in each full pass; 20,000 objects in the
    caches add none, because they are bytes, and neither does another snapshot of them. Frozen, a full pass takes no
    measurable time. What is frozen is still freed when nothing refers to it any more. The thresholds keep passes over
    young objects short (ten thousand of them take some milliseconds), and full ones frequent.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)


def unmap_freed_blocks() -> None:
    """Have the C library map each large block for itself, and unmap it when it is freed.

    So it does by default, but only until the first such block is freed: from then on glibc takes blocks of that size
    from a heap that seldom shrinks. Other C libraries have no such knob, and no need of one.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)


async def collect_periodically() -> None:
    """Collect garbage from time to time until cancelled; of a frozen heap that costs next to nothing."""
    while True:
        await asyncio.sleep(COLLECT_EVERY)
        gc.collect()
