"""Single flight, as golang.org/x/sync has it: what many want at once is done by one of them.

Guarantees:
- For each key one block runs at a time. Who comes meanwhile waits, and finds the result where the block has put it.
- One that failed or was cancelled leaves its turn to the next: nobody gets an error that was another's.
- Memory: one entry for each block that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class SingleFlight(Generic[K]):
    """Blocks of which one runs at a time for each key."""

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        """Run the block when no other of the key runs; it looks for the result first."""
        while (ended := self._running.get(key)) is not None:
            await ended.wait()
        self._running[key] = ended = asyncio.Event()
        try:
            yield
        finally:
            del self._running[key]
            ended.set()
