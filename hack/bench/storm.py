"""How long a storm of changes stalls the event loop: 10,000 statuses of JobSets and TrainJobs that come in at once.

The caches are those of a manager with all plugins, with the handlers that it has; nothing takes from its queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from bench import samples
from bench.lives import pairs
from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.rest.watch import WatchStream
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

EVENTS: Final = 10_000

_CHUNK: Final = 64 * 2**10
"""Bytes, as a server under load sends them."""


async def longest_turn() -> tuple[float, float]:
    """Return for how many seconds of CPU the loop was held at most, and how many all events took."""
    server = _Storm()
    caches = Caches(server, Framework(load_plugins()).watches())
    caches.add_trainjob_handlers(WorkQueue(metrics=WorkQueueMetrics("storm")))
    observer = TrainJobObserver(TrainJobsMetrics(), clock=SystemClock(), trace_id=lambda _uid: "")
    observer.lead()
    caches.add_observer(observer)
    reading = asyncio.create_task(caches.run())
    await caches.wait_for_sync()
    server.begins.set()
    started = last = time.thread_time()
    longest = 0.0
    while not server.is_over:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    observer.close()
    return longest, last - started


class _Storm:
    """A server with TrainJobs and JobSets, all of which change at once when it is told to begin."""

    def __init__(self) -> None:
        self.begins = asyncio.Event()
        found = list(pairs())
        self._objects: dict[Resource, list[JsonObject]] = {
            TRAINJOBS: [job for job, _ in found],
            JOBSETS: [jobset for _, jobset in found],
        }
        self._changes = {resource: b"".join(_changes(objects)) for resource, objects in self._objects.items()}
        self._raging = len(self._changes)

    @property
    def is_over(self) -> bool:
        """Whether everything was read."""
        return not self._raging

    async def list_bytes(self, *_: Any, **__: Any) -> bytes:
        """Never called: the watch brings the initial state."""
        raise AssertionError("an informer lists although its watch brings everything")

    @asynccontextmanager
    async def watch(self, resource: Resource, **_: Any) -> AsyncIterator[WatchStream]:
        """Open the watch."""
        yield WatchStream(self._chunks(resource), clock=SystemClock())

    async def _chunks(self, resource: Resource) -> AsyncIterator[bytes]:
        end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "1"}
        bookmark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": end}
        objects = self._objects.get(resource, [])
        yield b"".join(_frame("ADDED", obj, 1) for obj in objects) + _frame("BOOKMARK", bookmark, 1)
        await self.begins.wait()
        if changes := self._changes.get(resource):
            for start in range(0, len(changes), _CHUNK):
                yield changes[start : start + _CHUNK]
            self._raging -= 1
        await asyncio.Event().wait()


def _changes(objects: list[JsonObject]) -> Iterator[bytes]:
    """Yield the changes of one kind, which are half of all."""
    report = samples.running()["status"]
    for number in range(EVENTS // 2):
        obj = objects[number % len(objects)]
        status = report if obj["kind"] == JOBSETS.kind else {"jobsStatus": report["replicatedJobsStatus"]}
        yield _frame("MODIFIED", {**obj, "status": status}, number + 2)


def _frame(event: str, obj: JsonObject, version: int) -> bytes:
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    return orjson.dumps({"type": event, "object": {**obj, "metadata": metadata}}) + b"\n"
