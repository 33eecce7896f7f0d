"""The manager: how it starts, how it stops, and what ends it."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from support.commands import eventually
from support.stack import QUIET, Stack, api_server
from support.training import found, trainjob

from trainmaster.controller.configuration import Configuration, Health, LeaderElection, Metrics
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.leaderelection.elector import LeaderElector
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.manager import manager
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.manager.runnables import LeaderElectionRunnables, RunnableFailed, drain
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.server.server import Server
from trainmaster.devcluster.listener import free_port
from trainmaster.metrics.queue import DEPTH
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.usefixtures("debugged")

ELECTION = QUIET.model_copy(update={"leader_election": LeaderElection(leader_elect=True, resource_namespace="default")})


def served() -> Configuration:
    """A configuration with election, and with servers on free ports."""
    metrics = Metrics(bind_address=f"127.0.0.1:{free_port()}", secure_serving=False)
    health = Health(health_probe_bind_address=f"127.0.0.1:{free_port()}")
    return ELECTION.model_copy(update={"metrics": metrics, "health": health})


async def said(logged: Sequence[MutableMapping[str, Any]], event: str) -> None:
    """Wait until something was logged."""
    await eventually(lambda: any(entry["event"] == event for entry in logged))


async def lease(stack: Stack) -> JsonObject:
    """What the lease says, once there is one."""
    there = await eventually(lambda: found(stack.client, LEASES, "trainer.kubeflow.org"))
    spec: JsonObject = there["spec"]
    return spec


def depth() -> float:
    """How many TrainJobs wait in queues of this process."""
    (family,) = DEPTH.collect()
    return sum(sample.value for sample in family.samples if sample.labels["controller"] == "trainjob_controller")


@pytest.mark.guarantee("M-1", "M-2", "M-5", "M-7")
async def test_the_order_of_start_and_stop(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def noted(owner: type, method: str, begin: str, end: str) -> None:
        original = getattr(owner, method)

        async def wrapped(*arguments: Any) -> Any:
            order.append(begin)
            try:
                return await original(*arguments)
            finally:
                order.append(end)

        monkeypatch.setattr(owner, method, wrapped)

    drained = AsyncMock(wraps=drain)
    monkeypatch.setattr(manager, "drain", drained)
    noted(Caches, "run", "caches", "caches end")
    noted(EventRecorder, "flush", "events are flushed", "events end")
    noted(LeaderElector, "_release", "lease is released", "lease free")
    noted(LeaderElectionRunnables, "_run_controllers", "controllers", "controllers end")
    original = Server.listening

    @asynccontextmanager
    async def listening(server: Server, app: web.Application) -> AsyncIterator[tuple[str, int]]:
        async with original(server, app) as address:
            order.append(server.options.purpose)
            yield address
            order.append(f"{server.options.purpose} end")

    monkeypatch.setattr(Server, "listening", listening)
    stop = asyncio.Event()
    configuration = served().model_copy(update={"shutdown_delay_duration": "100ms"})
    made = Manager(Setup(stack.access, configuration, Framework(load_plugins())))
    running = asyncio.create_task(made.run(stop))
    await eventually(lambda: "controllers" in order)
    stop.set()
    await running
    assert drained.call_args.kwargs["delay"] == 0.1
    assert order == [
        *("probes", "metrics", "caches", "controllers"),
        *("events are flushed", "events end", "controllers end", "lease is released", "lease free"),
        *("caches end", "metrics end", "probes end"),
    ]
    assert (await lease(stack))["holderIdentity"] == ""
    with pytest.raises(RuntimeError, match="runs once"):
        await made.run(stop)


FAMILIES = (
    *(f"workqueue_{name}" for name in ("depth", "adds_total", "retries_total", "unfinished_work_seconds")),
    *(f"workqueue_{name}" for name in ("longest_running_processor_seconds", "queue_duration_seconds_count")),
    "workqueue_work_duration_seconds_count",
    *(f"controller_runtime_reconcile_{name}_total" for name in ("errors", "panics", "timeouts")),
    "controller_runtime_reconcile_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "controller_runtime_reconcile_time_seconds_count",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds_count",
    "leader_election_master_status",
    "leader_election_slowpath_total",
    *(f"trainmaster_informer_{name}" for name in ("objects", "synced", "resource_version", "snapshots_total")),
    *(f"trainmaster_informer_{name}_total" for name in ("watches", "events", "failures")),
    "trainmaster_event_loop_lag_seconds_count",
    "trainmaster_event_loop_lag_worst_seconds",
    "trainmaster_gc_pause_seconds_count",
    "trainmaster_asyncio_tasks",
    "process_resident_memory_bytes",
    "process_open_fds",
    "python_info",
)


@pytest.mark.guarantee("M-3", "M-4", "K-7", "K-11", "K-12", "L-12")
async def test_a_follower_is_ready_serves_every_metric_and_fills_its_queues_until_it_stops(stack: Stack) -> None:
    """It leaves nothing in its queues, which the metrics of the process would count for ever."""
    theirs = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 0}
    metadata = {"name": "trainer.kubeflow.org", "namespace": "default"}
    held = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": theirs}
    await stack.client.create(LEASES, held)
    for name in ("one", "two"):
        await stack.client.create(TRAINJOBS, trainjob(name, on="none"))
    configuration = served()
    stop = asyncio.Event()
    with capture_logs() as logged:
        running = asyncio.create_task(Manager(Setup(stack.access, configuration, Framework(load_plugins()))).run(stop))
        await said(logged, "waiting for the lease")
    for _ in range(3):
        job = await stack.client.get(TRAINJOBS, "default", "one")
        job["metadata"]["labels"] = {"x": secrets.token_hex(4)}
        await stack.client.update(TRAINJOBS, job)
    probes = f"http://{configuration.health.health_probe_bind_address}"
    for probe in ("healthz", "readyz"):
        async with aiohttp.request("GET", f"{probes}/{probe}") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
    async with aiohttp.request("GET", f"http://{configuration.metrics.bind_address}/metrics") as answer:
        text = await answer.text()
    assert depth() == 2
    stop.set()
    await running
    assert depth() == 0
    samples = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert set(FAMILIES) - samples == set()
    helps = {family.name for family in text_string_to_metric_families(text) if not family.documentation}
    assert helps == set(), "a metric without a help text"
    assert 'leader_election_master_status{name="trainer.kubeflow.org"} 0.0' in text
    depths = re.findall(r'workqueue_depth\{controller="trainjob_controller".*\} (.*)', text)
    assert sum(map(float, depths)) == 2, "each key once, however often it changed"
    assert (await lease(stack))["holderIdentity"] == "other"


@pytest.mark.guarantee("M-5", "L-11")
async def test_a_failure_in_the_background_ends_the_manager_and_releases_the_lease(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-5: the next replica need not wait for the lease to expire, and nobody acts on caches that stand still."""
    fail = asyncio.Event()

    async def run(self: EventRecorder) -> None:
        await fail.wait()
        raise RuntimeError("broken")

    monkeypatch.setattr(EventRecorder, "run", run)
    running = asyncio.create_task(
        Manager(Setup(stack.access, ELECTION, Framework(load_plugins()))).run(asyncio.Event())
    )
    assert (await lease(stack))["holderIdentity"]
    fail.set()
    with pytest.raises(RunnableFailed, match="broken"):
        await running
    assert (await lease(stack))["holderIdentity"] == ""
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not any(name.startswith(("trainjob_controller", "informer")) for name in left)


@pytest.mark.guarantee("L-12", "K-2")
async def test_it_stops_while_the_caches_wait_for_their_kinds(tmp_path: Path) -> None:
    async with api_server(tmp_path, definitions=False) as stack:
        stop = asyncio.Event()
        with capture_logs() as logged:
            running = asyncio.create_task(Manager(Setup(stack.access, QUIET, Framework(load_plugins()))).run(stop))
            await said(logged, "collection cannot be read, trying again")
        stop.set()
        await running
