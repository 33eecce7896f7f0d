"""What pieces of the code cost by themselves, in this process.

Times are the best of several rounds without garbage collection: they say what the code costs, not what else the machine
did. Memory is what Python allocated for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from bench import samples
from bench.lives import LIVES, count_lives, explain_waiting
from bench.storm import EVENTS, longest_turn
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.watch import WatchStream
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.api import ClusterTrainingRuntime, TrainingRuntime, TrainJob, parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.framework.framework import ENFORCING
from trainmaster.runtime.framework.signatures import implements, taken_arguments
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import new_info, resolve
from trainmaster.runtime.yamltext import load_yaml

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "torch-digits"

_ROUNDS = 5
_RESOLUTIONS = 500
_EVENTS = 20_000
_OBJECTS = 1000
_TIMEOUT = 60.0


def measure_pieces() -> dict[str, float]:
    """Measure every piece; returns figures by name."""
    events = b"".join(_frames(_EVENTS))
    stall, storm = asyncio.run(longest_turn())
    return {
        "micro.storm": storm / EVENTS * 1e6,
        "micro.storm_stall": stall * 1000,
        "micro.resolve": _best(_resolutions) / _RESOLUTIONS * 1e6,
        "micro.framework": _framework() * 1e6,
        "micro.informer": _EVENTS / _best(lambda: asyncio.run(_deliver(events))),
        "micro.cached_object": memory_of_cached_object() / 1024,
        "micro.job_metrics": _best(count_lives) / LIVES * 1e6,
        "micro.explain": _best(explain_waiting) / LIVES * 1e6,
    }


def _best(measure: Callable[[], float]) -> float:
    gc.collect()
    gc.disable()
    try:
        return min(measure() for _ in range(_ROUNDS))
    finally:
        gc.enable()


def _example() -> tuple[TrainJob, TrainingRuntime | ClusterTrainingRuntime]:
    raw_job = _load("trainjob.yaml")
    raw_job["metadata"] |= {"namespace": "default", "uid": "00000000-0000-0000-0000-000000000000"}
    return parse_trainjob(raw_job), parse_runtime(_load("runtime.yaml"))


def _framework() -> float:
    """Seconds that the framework takes for plans and status reports, less what its plugins take by themselves."""
    framework = Framework(load_plugins())
    job, runtime = _example()
    serving = {plugin.name for plugin in framework.serving(new_info(job, runtime), job)}
    methods = [
        (getattr(plugin, phase), taken_arguments(phase, getattr(plugin, phase)), phase == "build")
        for phase in (*ENFORCING, "build", "status")
        for plugin in framework.plugins()
        if implements(plugin, phase) and plugin.name in serving
    ]

    def guided() -> None:
        framework.resolve(new_info(job, runtime), job, NO_LISTERS)
        framework.status(job, NO_LISTERS)

    def bare() -> None:
        given = {"info": new_info(job, runtime), "job": job, "listers": NO_LISTERS, "config": None}
        for method, names, collects in methods:
            result = method(**{name: given[name] for name in names})
            if collects:
                list(result)

    def best(function: Callable[[], None]) -> float:
        def once() -> float:
            started = time.perf_counter()
            function()
            return time.perf_counter() - started

        return _best(lambda: min(once() for _ in range(_RESOLUTIONS)))

    return best(guided) - best(bare)


def _resolutions() -> float:
    framework = Framework(load_plugins())
    job, runtime = _example()
    started = time.perf_counter()
    for _ in range(_RESOLUTIONS):
        resolve(job, runtime, framework)
    return time.perf_counter() - started


async def _deliver(wire: bytes) -> float:
    """Time from the first byte of a watch to the last call of a handler."""
    told, done = 0, asyncio.Event()

    def count(*_: object) -> None:
        nonlocal told
        told += 1
        if told == _EVENTS:
            done.set()

    informer = Informer(_Canned(wire), TRAINJOBS)
    informer.add_event_handler(count)
    started = time.perf_counter()
    async with _running(informer):
        await done.wait()
    return time.perf_counter() - started


def memory_of_cached_object() -> float:
    """Return the bytes that an informer holds for a TrainJob that it has read: the same on every machine."""

    async def fill() -> float:
        told, done = 0, asyncio.Event()

        def count(*_: object) -> None:
            nonlocal told
            told += 1
            if told == _OBJECTS:
                done.set()

        canned = _Canned(b"".join(_frames(_OBJECTS)))
        informer = Informer(canned, TRAINJOBS)
        informer.add_event_handler(count)
        gc.collect()
        tracemalloc.start()
        try:
            async with _running(informer):
                await done.wait()
                gc.collect()
                return tracemalloc.get_traced_memory()[0] / _OBJECTS
        finally:
            tracemalloc.stop()

    return asyncio.run(fill())


@asynccontextmanager
async def _running(informer: Informer) -> AsyncIterator[None]:
    reading = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(_TIMEOUT):
            yield
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


def _load(name: str) -> JsonObject:
    obj: JsonObject = load_yaml((EXAMPLE / name).read_bytes())
    return obj


def _frames(events: int) -> Iterator[bytes]:
    """Frames of a watch that starts with nothing: TrainJobs appear, then change in turn."""
    end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "1"}
    yield _frame("BOOKMARK", {"kind": "TrainJob", "apiVersion": TRAINJOBS.api_version, "metadata": end})
    conditions = [{"type": "Suspended", "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}]
    for number in range(events):
        obj = {**samples.trainjob(number % _OBJECTS), "status": {"conditions": conditions}}
        obj["metadata"] |= {
            "uid": f"00000000-0000-0000-0000-{number % _OBJECTS:012}",
            "resourceVersion": str(number + 2),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
        }
        yield _frame("ADDED" if number < _OBJECTS else "MODIFIED", obj)


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
