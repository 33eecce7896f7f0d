"""Measure Trainmaster on this machine: the resolver, the informer, and TrainJobs on an embedded cluster.

    python hack/bench.py [--jobs N] [--only resolve,informer,cluster]

Each figure is one line. The first two are the best of several rounds, in this process alone, so that they say what the
code costs and not what else the machine did. The last is wall time with everything included: API server, controllers,
manager, kubelet and one process a pod (`true`) share the cores with this program.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import structlog
import yaml

from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.configuration import load_cluster_access
from trainmaster.controller.kube.informing import Informer
from trainmaster.controller.kube.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.controller.kube.watching import WatchStream
from trainmaster.runtime.api import parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolving import resolve

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/torch-digits"
ROUNDS = 5
PARTS = ("resolve", "informer", "cluster")
CREATING_AT_ONCE = 16


def report(name: str, figure: str, note: str) -> None:
    """Print one result."""
    print(f"{name:<22} {figure:>18}   {note}", flush=True)


def best(measure: Callable[[], float]) -> float:
    """Return the least of several measurements, without the garbage collector's part in them."""
    gc.collect()
    gc.disable()
    try:
        return min(measure() for _ in range(ROUNDS))
    finally:
        gc.enable()


def bench_resolve(*, times: int = 1000) -> None:
    """Time from parsed TrainJob and runtime to the desired objects."""
    framework = Framework(load_plugins())
    raw_job, raw_runtime = _load("trainjob.yaml"), _load("runtime.yaml")
    raw_job["metadata"] |= {"namespace": "default", "uid": "00000000-0000-0000-0000-000000000000"}
    job, runtime = parse_trainjob(raw_job), parse_runtime(raw_runtime)

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(times):
            resolve(job, runtime, framework)
        return time.perf_counter() - started

    report("resolve", f"{best(measure) / times * 1e6:,.0f} us", "one TrainJob of examples/torch-digits to its JobSet")


def bench_informer(*, events: int = 20_000) -> None:
    """Time from the bytes of a watch to a handler that was told."""
    wire = b"".join(_frames(events))

    async def deliver() -> float:
        told, done = 0, asyncio.Event()

        def count(*_: object) -> None:
            nonlocal told
            told += 1
            if told == events:
                done.set()

        informer = Informer(_Canned(wire), TRAINJOBS)
        informer.add_handler(on_add=count, on_update=count)
        started = time.perf_counter()
        reading = asyncio.create_task(informer.run())
        async with asyncio.timeout(60):
            await done.wait()
        seconds = time.perf_counter() - started
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return seconds

    seconds = best(lambda: asyncio.run(deliver()))
    report(
        "informer", f"{events / seconds:,.0f} events/s", f"of {len(wire) // events} bytes, from the wire to a handler"
    )


def bench_cluster(*, jobs: int) -> None:
    """Time from the first creation to the last completion of many TrainJobs of one pod."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as directory:
        command = [sys.executable, "-P", "-m", "trainmaster.controller.cli", "cluster"]
        state = ["--state-dir", directory]
        subprocess.run([*command, "up", "--detach", *state], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ours
        try:
            created, completed, latencies = asyncio.run(_complete(Path(directory) / "kubeconfig", jobs))
        finally:
            subprocess.run([*command, "down", *state], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ours
    report("cluster, created", f"{created:.1f} s", f"{jobs} TrainJobs of one pod that runs `true`")
    report("cluster, all Complete", f"{completed:.1f} s", f"{jobs / completed:.1f} TrainJobs/s")
    ordered = sorted(latencies)
    worst = ordered[math.ceil(len(ordered) * 0.99) - 1]
    report(
        "cluster, one TrainJob",
        f"{statistics.median(ordered):.1f} s",
        f"median, creation to Complete; p99 {worst:.1f} s",
    )


async def _complete(kubeconfig: Path, jobs: int) -> tuple[float, float, list[float]]:
    """Create the jobs and wait for all; returns both times and those of each job."""
    access = await load_cluster_access(kubeconfig=str(kubeconfig))
    places = asyncio.Semaphore(CREATING_AT_ONCE)
    births: dict[str, float] = {}
    latencies: dict[str, float] = {}
    done = asyncio.Event()

    def look(_: JsonObject, job: JsonObject) -> None:
        name = job["metadata"]["name"]
        states = {each["type"] for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"}
        if "Failed" in states:
            raise SystemExit(f"TrainJob {name} failed: {job['status']['conditions']}")
        if "Complete" in states and name not in latencies:
            latencies[name] = time.perf_counter() - births[name]
            if len(latencies) == jobs:
                done.set()

    async with KubeClient(access, user_agent="trainmaster-bench") as client:
        await client.create(CLUSTER_TRAINING_RUNTIMES, _runtime())
        informer = Informer(client, TRAINJOBS)
        informer.add_handler(on_update=look)
        reading = asyncio.create_task(informer.run())
        await informer.wait_synced()
        started = time.perf_counter()

        async def create(name: str) -> None:
            async with places:
                births[name] = time.perf_counter()
                await client.create(TRAINJOBS, _job(name), namespace="default")

        async with asyncio.timeout(60 + 2 * jobs):
            await asyncio.gather(*(create(f"bench-{number}") for number in range(jobs)))
            created = time.perf_counter() - started
            await done.wait()
        completed = time.perf_counter() - started
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return created, completed, list(latencies.values())


def _runtime() -> JsonObject:
    container = {"name": "node", "image": "none", "command": ["true"]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": pod},
    }
    return {
        "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
        "kind": CLUSTER_TRAINING_RUNTIMES.kind,
        "metadata": {"name": "bench"},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }


def _job(name: str) -> JsonObject:
    return {
        "apiVersion": TRAINJOBS.api_version,
        "kind": TRAINJOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": {"name": "bench"}},
    }


def _load(name: str) -> JsonObject:
    obj: JsonObject = yaml.safe_load((EXAMPLE / name).read_text(encoding="utf-8"))
    return obj


def _frames(events: int) -> Iterator[bytes]:
    """Frames of a watch that starts with nothing: a thousand TrainJobs appear, then change in turn."""
    end = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "1"}
    yield _frame("BOOKMARK", {"kind": "TrainJob", "apiVersion": TRAINJOBS.api_version, "metadata": end})
    job = _load("trainjob.yaml")
    conditions = [{"type": "Suspended", "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}]
    for number in range(events):
        metadata = {"name": f"job-{number % 1000}", "namespace": "default", "resourceVersion": str(number + 2)}
        obj = {**job, "metadata": metadata, "status": {"conditions": conditions}}
        yield _frame("ADDED" if number < 1000 else "MODIFIED", obj)


def _frame(event: str, obj: JsonObject) -> bytes:
    return orjson.dumps({"type": event, "object": obj}) + b"\n"


class _Canned:
    """A server whose one watch is known beforehand, and stays open at its end."""

    def __init__(self, wire: bytes) -> None:
        self._wire = wire

    async def list(self, *_: Any, **__: Any) -> JsonObject:
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


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200, metavar="N", help="TrainJobs on the cluster (default 200)")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help="default: " + ",".join(PARTS))
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}; the parts are {', '.join(PARTS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.platform()}")
    if "resolve" in parts:
        bench_resolve()
    if "informer" in parts:
        bench_informer()
    if "cluster" in parts:
        bench_cluster(jobs=arguments.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
