"""The reader: reads of the store, in a thread of its own, for those who wait on the event loop.

It has a connection of its own, so that nobody waits for a writer, nor a writer for anybody who reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from trainmaster.controller.history.query import Position, Query
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.history.store import HistoryStore, HistoryUnavailable

T = TypeVar("T")

MAX_WAITING: Final = 64
"""Requests that wait for the one that reads; more are refused."""


class HistoryReader:
    """Reads the history, one request after the other.

    Args:
        store: Where it is; used by the reader only.
    """

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history-reader")
        self._waiting = 0

    async def find(self, query: Query) -> tuple[list[JobRecord], Position | None]:
        """Return jobs that have ended (see the store).

        Raises:
            HistoryUnavailable: They cannot be read.
        """
        return await self._read(lambda: self._store.find(query))

    async def get(self, uid: str) -> JobRecord | None:
        """Return what is recorded of a job; errors as of `find`."""
        return await self._read(lambda: self._store.get(uid))

    async def namespaces(self) -> list[str]:
        """Return the namespaces of jobs that have ended; errors as of `find`."""
        return await self._read(self._store.namespaces)

    async def close(self) -> None:
        """End; whoever still waits gets an error."""
        await asyncio.to_thread(self._close)

    async def _read(self, read: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise HistoryUnavailable("too many requests wait for the history already; try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, read)
        except RuntimeError as error:
            raise HistoryUnavailable("the manager ends; ask again in a moment") from error
        finally:
            self._waiting -= 1

    def _close(self) -> None:
        self._thread.submit(self._store.close)
        self._thread.shutdown(wait=True, cancel_futures=False)
