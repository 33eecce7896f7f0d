"""What a manager does with many jobs at once, and what that costs.

The phases, on one API server:

1. a manager starts in an empty cluster (`start.*`);
2. all jobs are created as fast as the server takes them; each TrainJob gets its JobSet, each job of another kind its
   pods (`create.*`);
3. up to a thousand of them are touched, so that they are looked at again although nothing is to do (`settled.*`);
4. a new manager takes over from the first one (`restart.*`);
5. this program, in place of a JobSet controller or a kubelet, reports that every JobSet, or pod, runs and then that it
   has completed, until every job is complete; together with phase 2 that is its whole life (`life.*`).

Only where it is asked for, up to a hundred TrainJobs wait for pods before that, until it is told why (`waiting.*`).

CPU is counted until the manager rests, so that nothing which a phase causes is missed.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from bench import samples
from bench.api import AT_ONCE, MERGE_PATCH, Api, BenchmarkFailed, for_all
from bench.counting import AuditReader, Requests, counted_in_metrics
from bench.processes import Manager, Server, api_server, manager
from bench.samples import NAMESPACE, job_name, namespace
from bench.workloads import Workload
from trainmaster.controller.conditions import WAITING
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS, Resource
from trainmaster.devcluster.crds.install import definition_file
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

Phase = Literal["settled", "restart", "waiting", "live"]
"""Those that may be left out."""

USUAL: Final[frozenset[Phase]] = frozenset({"settled", "restart", "live"})

TOUCHED_AT_MOST: Final = 1000
WAITING_AT_MOST: Final = 100
_OUR_USER_AGENT: Final = "trainmaster/"

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL = 0.05
_SERVED_WITHIN = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to measure with."""

    jobs: int
    workload: Workload
    phases: Collection[Phase] = USUAL
    """Those that run besides start and creation. In `waiting` and `live` this program plays the JobSet controller or
    the kubelet."""


@dataclass(slots=True)
class Measured:
    """What came out: figures by name, and the requests of each phase."""

    values: dict[str, float] = field(default_factory=dict)
    requests: dict[str, Requests] = field(default_factory=dict)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each phase began and ended, on the monotonic clock."""


@dataclass(slots=True)
class _Cost:
    """What one phase took; complete when its block has ended."""

    cpu: float = 0.0
    requests: Requests = field(default_factory=Requests)


@dataclass(slots=True)
class _Appearances:
    """When objects were seen first."""

    expected: int
    moments: dict[str, float] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, name: str) -> None:
        self.moments.setdefault(name, time.monotonic())
        if len(self.moments) >= self.expected:
            self.complete.set()


async def measure(load: Load, directory: Path, *, say: Callable[[str], None]) -> Measured:
    """Run all phases."""
    async with prepared_server(directory, load.workload) as (server, api):
        audit = AuditReader(server.audit_log, user_agent=_OUR_USER_AGENT)
        run = _Run(load, api, audit, Measured(), say)
        await run.with_own_managers(server.kubeconfig, directory)
        return run.measured


@dataclass(frozen=True, slots=True)
class _Run:
    load: Load
    api: Api
    audit: AuditReader
    measured: Measured
    say: Callable[[str], None]

    def _set(self, **values: float) -> None:
        """Keep figures of a phase: `create__rate` is `create.rate` of this kind of jobs."""
        prefix = self.load.workload.prefix
        self.measured.values |= {prefix + name.replace("__", "."): value for name, value in values.items()}

    def _get(self, name: str) -> float:
        return self.measured.values[self.load.workload.prefix + name]

    def _at_most(self, name: str, value: float) -> None:
        """Keep the highest value of a figure that several processes have."""
        name = self.load.workload.prefix + name
        self.measured.values[name] = max(value, self.measured.values.get(name, value))

    async def with_own_managers(self, kubeconfig: Path, directory: Path) -> None:
        """Run all phases."""
        jobs = self.load.jobs
        self.say("starting a manager in an empty cluster")
        async with manager(kubeconfig, directory) as first:
            started_with = first.cpu()
            self._set(start__ready=first.ready_after, start__memory=first.memory())
            await self._create(first)
            await self._settled(first)
            if "restart" not in self.load.phases:
                await self._waiting(first)
                await self._live(first)
            await self._finish(first)
        if "restart" not in self.load.phases:
            return
        self.say(f"starting another manager, which finds {jobs} {self.load.workload.kind}s")
        before = await self.audit.count()
        began = time.monotonic()
        async with manager(kubeconfig, directory) as second:
            await second.rest(patience=self._patience)
            self.measured.times["restart"] = began, time.monotonic()
            cpu = max(second.cpu() - started_with, 0.0) * 1000 / jobs
            restart = await self.audit.count() - before
            self.measured.requests["restart"] = restart
            self._set(restart__ready=second.ready_after, restart__cpu=cpu, restart__writes=restart.writes)
            await self._waiting(second)
            await self._live(second)
            await self._finish(second)

    @property
    def _patience(self) -> float:
        """Seconds after which something must have gone wrong."""
        return 60 + 0.2 * self.load.jobs

    async def _create(self, process: Manager) -> None:
        jobs, workload = self.load.jobs, self.load.workload
        self.say(f"creating {jobs} {workload.kind}s")
        born: dict[str, float] = {}
        owners: dict[str, str] = {}
        built = _Appearances(jobs * workload.built_each)

        def see(_: str, obj: JsonObject) -> None:
            owners[obj["metadata"]["name"]] = workload.job_of(obj)
            built.see(obj["metadata"]["name"])

        async def create(number: int) -> None:
            await self.api.send("POST", workload.resource.path(NAMESPACE), workload.job(number))
            born[job_name(number)] = time.monotonic()

        watching = self.api.watching(workload.built.path(NAMESPACE), see)
        async with self._phase("create", process) as phase, watching as reading:
            started = time.monotonic()
            await for_all(range(jobs), create)
            await self._wait(built, reading, f"{workload.built.kind}s appeared", process)
        latencies = sorted(moment - born[owners[name]] for name, moment in built.moments.items())
        self._set(
            create__rate=len(latencies) / (max(built.moments.values()) - started),
            create__latency_p50=statistics.median(latencies),
            create__latency_p99=latencies[math.ceil(len(latencies) * 0.99) - 1],
            create__cpu=phase.cpu * 1000 / len(latencies),
        )
        self._set(
            create__requests=phase.requests.single / jobs,
            create__events=phase.requests.events / jobs,
            manager__lists=phase.requests.lists,
        )

    async def _settled(self, process: Manager) -> None:
        if "settled" not in self.load.phases:
            return
        touched, workload = min(self.load.jobs, TOUCHED_AT_MOST), self.load.workload
        self.say(f"touching {touched} {workload.kind}s")
        patch: JsonObject = {"metadata": {"annotations": {"example.com/touched": "yes"}}}

        async def touch(number: int) -> None:
            await self._patch(f"{workload.resource.path(NAMESPACE)}/{job_name(number)}", patch)

        async with self._phase("settled", process) as phase:
            await for_all(range(touched), touch)
        self._set(settled__cpu=phase.cpu * 1000 / touched)
        lists = self._get("manager.lists") + phase.requests.lists
        self._set(settled__writes=phase.requests.writes, manager__lists=lists)

    async def _waiting(self, process: Manager) -> None:
        if "waiting" not in self.load.phases:
            return
        waiting, workload = min(self.load.jobs, WAITING_AT_MOST), self.load.workload
        self.say(f"letting {waiting} {workload.kind}s wait for their pods")
        explained = _Appearances(waiting)

        async def wait(number: int) -> None:
            for pod in samples.pending_pods(number):
                await self.api.send("POST", PODS.path(NAMESPACE), pod)
                # An API server takes no status from whoever creates something.
                await self._patch(f"{PODS.path(NAMESPACE, pod['metadata']['name'])}/status", {"status": pod["status"]})
            await self._patch(f"{workload.built.path(NAMESPACE)}/{job_name(number)}/status", samples.starting())

        watching = self.api.watching(workload.resource.path(NAMESPACE), _seeing(WAITING, explained))
        async with self._phase("waiting", process) as phase, watching as reading:
            await for_all(range(waiting), wait)
            await self._wait(explained, reading, f"{workload.kind}s said why they wait", process)
        self._set(waiting__cpu=phase.cpu * 1000 / waiting)
        self._set(waiting__lists=phase.requests.lists / waiting, waiting__writes=phase.requests.writes / waiting)

    async def _live(self, process: Manager) -> None:
        if "live" not in self.load.phases:
            return
        jobs, workload = self.load.jobs, self.load.workload
        self.say(f"running and completing {jobs * workload.built_each} {workload.built.kind}s")
        complete = _Appearances(jobs)

        async def live(number: int) -> None:
            for reports in workload.reports(number):
                async with asyncio.TaskGroup() as tasks:
                    for name, status in reports.items():
                        tasks.create_task(self._patch(f"{workload.built.path(NAMESPACE)}/{name}/status", status))

        watching = self.api.watching(workload.resource.path(NAMESPACE), _seeing(workload.completed, complete))
        async with self._phase("live", process) as phase, watching as reading:
            await for_all(range(jobs), live, at_once=AT_ONCE // workload.built_each)
            await self._wait(complete, reading, f"{workload.kind}s completed", process)
        cpu = phase.cpu * 1000 / (jobs * workload.built_each)
        self._set(life__cpu=self._get("create.cpu") + cpu)
        self._set(
            life__requests=self._get("create.requests") + phase.requests.single / jobs,
            life__events=self._get("create.events") + phase.requests.events / jobs,
        )
        if "waiting" not in self.load.phases:  # after that, pods may be read once more
            self._set(manager__lists=self._get("manager.lists") + phase.requests.lists)

    async def _patch(self, path: str, patch: JsonObject) -> None:
        await self.api.send("PATCH", path, patch, content_type=MERGE_PATCH)

    async def _wait(self, appearances: _Appearances, reading: asyncio.Task[None], what: str, process: Manager) -> None:
        waiting = [asyncio.create_task(appearances.complete.wait()), asyncio.create_task(process.ended())]
        await asyncio.wait([*waiting, reading], timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if reading.done():
            reading.result()
        if not appearances.complete.is_set():
            raise BenchmarkFailed(
                f"only {len(appearances.moments)} of {appearances.expected} {what}, and nothing more comes; the "
                f"manager's last lines:\n{process.last_lines()}"
            )

    @asynccontextmanager
    async def _phase(self, name: str, process: Manager) -> AsyncIterator[_Cost]:
        """Measure CPU and requests of the block, and of what follows from it until the manager rests."""
        before = await self.audit.count()
        cpu = process.cpu()
        phase = _Cost()
        began = time.monotonic()
        yield phase
        await process.rest(patience=self._patience)
        self.measured.times[name] = began, time.monotonic()
        phase.cpu = process.cpu() - cpu
        phase.requests = self.measured.requests[name] = await self.audit.count() - before

    async def _finish(self, process: Manager) -> None:
        self._at_most("manager.peak_memory", process.peak_memory())
        stall = await process.worst_stall()
        if stall is not None:
            self._at_most("manager.worst_stall", stall * 1000)
        counted = counted_in_metrics(await process.metrics())
        self._at_most("manager.series", counted.series)
        self._at_most("manager.cached", counted.cached_bytes / 2**20)


def _seeing(condition: str, appearances: _Appearances) -> Callable[[str, JsonObject], None]:
    """Return what notes jobs of which a condition is true."""

    def see(_: str, obj: JsonObject) -> None:
        conditions: Iterable[JsonObject] = obj.get("status", {}).get("conditions", ())
        if any(each["type"] == condition and each["status"] == "True" for each in conditions):
            appearances.see(obj["metadata"]["name"])

    return see


@asynccontextmanager
async def prepared_server(directory: Path, workload: Workload) -> AsyncIterator[tuple[Server, Api]]:
    """Run a bare API server that has what jobs need."""
    async with api_server(directory) as server, Api(await load_config(kubeconfig=str(server.kubeconfig))) as api:
        for name in workload.definitions:
            await api.send("POST", _CRDS, load_yaml(definition_file(name).read_bytes()))
        for resource in workload.needs:
            await _wait_served(api, resource)
        await api.send("POST", NAMESPACES.path(), namespace())
        for resource, obj in workload.cluster_objects():
            await api.send("POST", resource.path(), obj)
        yield server, api


async def _wait_served(api: Api, resource: Resource) -> None:
    deadline = time.monotonic() + _SERVED_WITHIN
    while not await api.send("GET", f"{resource.path()}?limit=1", accept=(200, 404)):
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"the server does not serve {resource.name}, although its definition was accepted")
        await asyncio.sleep(_POLL)
