"""Pods, watches and lists as an API server writes them, and what a test needs to listen to an informer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import orjson
from support.commands import eventually
from support.virtualtime import settle

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.rest.watch import WatchStream
from trainmaster.metrics.cache import RESTARTS
from trainmaster.runtime.jsontree import JsonObject

Until: TypeAlias = Callable[[Callable[[], object]], Awaitable[None]]


def pod(name: str, version: int, **extra: Any) -> JsonObject:
    """Return a Pod."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | extra}


def event(kind: str, obj: JsonObject) -> JsonObject:
    """Return a frame of a watch."""
    return {"type": kind, "object": obj}


def bookmark(version: int, *, end: bool = False) -> JsonObject:
    """Return a bookmark; `end` closes the initial events."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version), **annotations}})


def pod_list(version: int, *pods: JsonObject, **metadata: str) -> JsonObject:
    """Return a PodList, whose items name no kind."""
    items = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in pods]
    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version), **metadata},
        "items": items,
    }


class Ear:
    """A handler that writes down what it hears."""

    def __init__(self, informer: Informer) -> None:
        self.heard: list[str] = []
        self.deleted: list[tuple[JsonObject | None, bool]] = []
        """The last state of each, and whether it may be older than the final one."""

        self.sizes: list[int] = []
        self.informer = informer
        self.remove = informer.add_event_handler(self.hear)

    def hear(self, delta: Delta) -> None:
        name = delta.key.rpartition("/")[2]
        if delta.is_deletion:
            self.deleted.append((delta.old, delta.final_state_unknown))
            self.heard.append(f"-{name}")
        elif delta.is_addition:
            self.heard.append(f"+{name}{'!' if delta.initial else ''}")
        else:
            old, new = (delta.old or {})["metadata"], (delta.new or {})["metadata"]
            self.heard.append(f"~{name}:{old['resourceVersion']}>{new['resourceVersion']}")
        self.sizes.append(len(self.informer.store))


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[None]:
    """Run an informer beside the block."""
    task = asyncio.create_task(informer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled()


async def run_until(informer: Informer, holds: Callable[[], object]) -> None:
    """Run an informer until a condition holds."""
    async with running(informer):
        await eventually(holds)


def failure(code: int | None, reason: str = "") -> JsonObject:
    """Return an ERROR frame."""
    status = {"kind": "Status", "reason": reason} | ({} if code is None else {"code": code})
    return event("ERROR", status)


class Script:
    """A server, without a wire, that offers streaming lists and says what a test tells it to; it may be silent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.opened: list[dict[str, Any]] = []

    async def send(self, *frames: JsonObject) -> None:
        """Say something, and wait until it was heard."""
        for frame in frames:
            self._chunks.put_nowait(orjson.dumps(frame) + b"\n")
        await settle()

    async def send_at_once(self, *frames: JsonObject) -> None:
        """Say something in one go."""
        self._chunks.put_nowait(b"".join(orjson.dumps(frame) + b"\n" for frame in frames))
        await settle()

    async def list_bytes(self, *_: Any, **__: Any) -> bytes:
        """Fail: nobody needs to list here."""
        raise AssertionError("a list was asked for although streaming lists are offered")

    @asynccontextmanager
    async def watch(self, resource: Resource, **asked: Any) -> AsyncIterator[WatchStream]:
        """Open a watch."""
        self.opened.append({"resource": resource, **asked})
        yield WatchStream(self._read(), clock=self._clock, inactivity_limit=1e6)

    async def close(self) -> None:
        """End the watch, as a server does after some minutes."""
        self._chunks.put_nowait(None)
        await settle()

    async def _read(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk


def restarts(resource: str = "pods") -> dict[str, float]:
    """Return how often a kind was read anew, by cause."""
    samples = [sample for family in RESTARTS.collect() for sample in family.samples]
    return {sample.labels["cause"]: sample.value for sample in samples if sample.labels["resource"] == resource}
