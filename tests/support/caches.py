"""A server of many kinds for caches, plugins that watch some of them, and a queue that remembers."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from support.informers import Script, bookmark
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.rest.errors import Forbidden, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

JOBSET = Watch(JOBSETS.api_version, JOBSETS.kind, JOBSETS.plural, writes=True, workload=True, required=True)
PODGROUPS = "podgroups.scheduling.x-k8s.io"
GANG = ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")
QUEUE = ("acme.io/v1", "Queue", "queues")


class Cluster:
    """A server of many kinds; those in `absent` it does not serve, those in `denied` nobody may read."""

    def __init__(self, clock: VirtualClock) -> None:
        self.kinds: dict[str, Script] = defaultdict(lambda: Script(clock))
        self.absent: set[str] = set()
        self.denied: set[str] = set()

    async def list_bytes(self, resource: Resource, *_: Any, **__: Any) -> bytes:
        if resource.name in self.denied:
            raise Forbidden(status=403, reason="Forbidden")
        raise NotFound(status=404, reason="NotFound")

    @asynccontextmanager
    async def watch(self, resource: Resource, **asked: Any) -> AsyncIterator[Any]:
        if resource.name in self.absent:
            raise NotFound(status=404, reason="NotFound")
        if resource.name in self.denied:
            raise Forbidden(status=403, reason="Forbidden")
        async with self.kinds[resource.name].watch(resource, **asked) as stream:
            yield stream

    async def send(self, resource: Resource, *frames: JsonObject) -> None:
        await self.kinds[resource.name].send(*frames)

    async def fill(self) -> None:
        """Show that there is nothing of any kind."""
        await settle()
        for script in self.kinds.values():
            await script.send(bookmark(1, end=True))


@asynccontextmanager
async def running(caches: Caches) -> AsyncIterator[None]:
    task = asyncio.create_task(caches.run())
    try:
        await settle()
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def keep_waiting(caches: Caches) -> bool:
    """Whether controllers may not begin yet, although everything that is there has been read."""
    waiting = asyncio.create_task(caches.wait_for_sync())
    await settle()
    waits = not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})
    return waits


def jobs_of(obj: JsonObject) -> Iterable[tuple[str, str]]:
    return [(obj["metadata"]["namespace"], obj["metadata"]["labels"]["job"])]


class Recorder(WorkQueue):
    """A queue that remembers what it was given."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.added: list[tuple[str, int]] = []

    def add(self, key: str, *, priority: int = 0) -> None:
        self.added.append((key, priority))
        super().add(key, priority=priority)

    def news(self) -> list[tuple[str, int]]:
        """Return what came since the last call."""
        added, self.added = self.added, []
        return added


class Watching:
    """A plugin that watches something."""

    def __init__(self, name: str, watch: Watch) -> None:
        self.name = name
        self._watch = watch

    def watch_extension(self) -> list[Watch]:
        return [self._watch]
