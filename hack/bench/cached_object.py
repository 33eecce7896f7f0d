"""The memory of a TrainJob in the cache of an informer: what Python allocates for it, the same on every machine."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from bench import samples
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.watch import WatchStream
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

_OBJECTS = 1000
_TIMEOUT = 60.0


def memory_of_cached_object() -> float:
    """Return the bytes that an informer holds for a TrainJob that it has read: the same on every machine."""

    async def fill() -> float:
        told, done = 0, asyncio.Event()

        def count(*_: object) -> None:
            nonlocal told
            told += 1
            if told == _OBJECTS:
                done.set()

        informer = Informer(_Canned(b"".join(_frames())), TRAINJOBS)
        informer.add_event_handler(count)
        gc.collect()
        tracemalloc.start()
        reading = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(_TIMEOUT):
                await done.wait()
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / _OBJECTS
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            tracemalloc.stop()

    return asyncio.run(fill())


def _frames() -> Iterator[bytes]:
    """Frames of a watch that starts with nothing: TrainJobs appear."""
    end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "1"}
    yield _frame("BOOKMARK", {"kind": "TrainJob", "apiVersion": TRAINJOBS.api_version, "metadata": end})
    conditions = [{"type": "Suspended", "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}]
    for number in range(_OBJECTS):
        obj = {**samples.trainjob(number), "status": {"conditions": conditions}}
        obj["metadata"] |= {
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(number + 2),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
        }
        yield _frame("ADDED", obj)


def _frame(event: str, obj: JsonObject) -> bytes:
    return orjson.dumps({"type": event, "object": obj}) + b"\n"


class _Canned:
    """A server whose one watch is known beforehand, and stays open at its end."""

    def __init__(self, wire: bytes) -> None:
        self._wire = wire

    async def list_bytes(self, *_: Any, **__: Any) -> bytes:
        """Never called: the watch brings the initial state."""
        raise AssertionError("the informer lists although the watch brings everything")

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchStream]:
        """Open the watch."""
        yield WatchStream(self._chunks(), clock=SystemClock())

    async def _chunks(self, size: int = 64 * 1024) -> AsyncIterator[bytes]:
        for start in range(0, len(self._wire), size):
            yield self._wire[start : start + size]
        await asyncio.Event().wait()
