"""Definitions that are absent, come later, and go while the manager runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.stack import QUIET, Stack, api_server
from support.training import apply_runtime, conditions, runtime, trainjob, until

from trainmaster.controller.configuration import Health
from trainmaster.controller.kube.cache import reflector
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    install_definitions,
)
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
POD_GROUPS = "podgroups.scheduling.x-k8s.io"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """A cluster that serves the kinds of Trainer and no others."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        await install_definitions(stack.cluster.api, TRAINER_DEFINITIONS)
        yield stack


@asynccontextmanager
async def probed(stack: Stack, *plugins: Any) -> AsyncIterator[str]:
    """Run a manager; yields where it tells whether it is ready."""
    port, stop = free_port(), asyncio.Event()
    health = Health(health_probe_bind_address=f"127.0.0.1:{port}")
    framework = Framework([*load_plugins(), *plugins])
    running = Manager(stack.access, QUIET.model_copy(update={"health": health}), framework)
    task = asyncio.create_task(running.run(stop))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await task


async def readiness(url: str) -> str:
    async with aiohttp.request("GET", f"{url}/readyz?verbose") as answer:
        return f"{answer.status} {await answer.text()}"


async def blocked(stack: Stack, name: str) -> JsonObject | None:
    return (await conditions(stack.client, name)).get("Blocked")


async def has_jobset(stack: Stack, name: str) -> bool:
    try:
        await stack.client.get(JOBSETS, "default", name)
    except NotFound:
        return False
    return True


@pytest.mark.defect("U17")
async def test_without_jobset_it_says_so_and_goes_on_when_that_comes(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original exits. TrainJobs are told, readiness tells, and nothing has to be restarted."""
    monkeypatch.setattr(reflector, "_ABSENT_INTERVAL", 0.5)
    assert stack.cluster is not None
    await apply_runtime(stack.client, runtime())
    await stack.client.create(TRAINJOBS, trainjob("early"))
    with capture_logs() as logs:
        async with probed(stack) as url:
            told = await until(lambda: blocked(stack, "early"))
            assert told["reason"] == "KindNotServed"
            assert told["message"] == (
                "the cluster does not serve JobSet (jobset.x-k8s.io/v1alpha2), which the plugin jobset needs; install "
                "its definition (jobsets.jobset.x-k8s.io), or disable the plugin"
            )
            ready = await readiness(url)
            assert ready.startswith("500")
            assert "jobsets.jobset.x-k8s.io" in ready
            await install_definitions(stack.cluster.api, JOBSET_DEFINITIONS)
            await until(lambda: has_jobset(stack, "early"))

            async def is_ready() -> bool:
                return (await readiness(url)).startswith("200")

            await until(is_ready)
    lines = [each for each in logs if "podgroup" in str(each).lower() and each["log_level"] != "debug"]
    assert lines == [], "nobody uses these"
    assert len([each for each in logs if each["log_level"] in {"warning", "error"}]) < 10


@pytest.mark.defect("U17")
async def test_a_definition_that_is_removed_while_it_runs_is_missed_and_taken_up_again(stack: Stack) -> None:
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, (*JOBSET_DEFINITIONS, *GANG_DEFINITIONS))
    gang = runtime("gang")
    gang["spec"]["podGroupPolicy"] = {"coscheduling": {}}
    await apply_runtime(stack.client, gang)
    async with probed(stack):
        await stack.client.create(TRAINJOBS, trainjob("first", on="gang"))
        await until(lambda: has_jobset(stack, "first"))
        await stack.client.delete(DEFINITIONS, None, POD_GROUPS)

        async def is_gone() -> bool:
            try:
                await stack.client.get(DEFINITIONS, None, POD_GROUPS)
            except NotFound:
                return True
            return False

        await until(is_gone)
        await stack.client.create(TRAINJOBS, trainjob("second", on="gang"))
        told = await until(lambda: blocked(stack, "second"))
        assert f"install the CustomResourceDefinition {POD_GROUPS}" in told["message"]
        await install_definitions(stack.cluster.api, GANG_DEFINITIONS)
        await until(lambda: has_jobset(stack, "second"))


QUEUE = Resource("acme.io", "v1", "Queue", "queues", namespaced=True)
QUEUE_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.acme.io"},
    "spec": {
        "group": "acme.io",
        "scope": "Namespaced",
        "names": {"kind": "Queue", "plural": "queues", "singular": "queue", "listKind": "QueueList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Queued:
    """Labels the JobSets of torch by the only queue that there is."""

    name = "acme-queues"
    policies = ("torch",)

    def watch_extension(self) -> list[Watch]:
        return [Watch(QUEUE.api_version, QUEUE.kind, QUEUE.plural)]

    def validate(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[FieldError]:
        if not list(listers.list(QUEUE.api_version, QUEUE.kind)):
            yield FieldError("spec", "there is no queue")

    def enforce_ml_policy(self, info: Info) -> None:
        (queue,) = info.listers.list(QUEUE.api_version, QUEUE.kind)
        info.labels["queue"] = queue["metadata"]["name"]


async def test_a_kind_that_is_installed_later_is_waited_for_by_the_trainjobs_of_its_plugin_alone(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manager is ready, and says in its readiness and in its log whose TrainJobs wait for what."""
    monkeypatch.setattr(reflector, "_ABSENT_INTERVAL", 0.5)
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, JOBSET_DEFINITIONS)
    plain = runtime("plain")
    plain["spec"]["mlPolicy"] = {"numNodes": 1}
    for each in (plain, runtime("torch")):
        await apply_runtime(stack.client, each)
    with capture_logs() as logs:
        async with probed(stack, Queued()) as url:
            await stack.client.create(TRAINJOBS, trainjob("other", on="plain"))
            await until(lambda: has_jobset(stack, "other"))
            ready = await readiness(url)
            assert ready.startswith("200")
            assert "[+]informer-sync ok: waiting for queues.acme.io for the TrainJobs of acme-queues" in ready
            await stack.client.create(TRAINJOBS, trainjob("queued", on="torch"))
            told = await until(lambda: blocked(stack, "queued"))
            assert told["reason"] == "KindNotServed"
            assert "does not serve Queue (acme.io/v1), which the plugin acme-queues needs" in told["message"]
            await stack.client.create(DEFINITIONS, QUEUE_DEFINITION)
            told = await until(lambda: failing(stack, "queued"))
            await stack.client.create(
                QUEUE,
                {"apiVersion": "acme.io/v1", "kind": "Queue", "metadata": {"name": "blue", "namespace": "default"}},
            )
            await until(lambda: has_jobset(stack, "queued"))
            jobset = await stack.client.get(JOBSETS, "default", "queued")
            assert jobset["metadata"]["labels"]["queue"] == "blue"
            assert "waiting for queues" not in await readiness(url)
    (line,) = [each for each in logs if "does not serve a kind that plugins need" in each["event"]]
    assert (line["log_level"], line["kind"], line["plugins"]) == ("warning", "Queue", ["acme-queues"])


async def failing(stack: Stack, name: str) -> JsonObject | None:
    told = await blocked(stack, name)
    return told if told and told["reason"] == "PluginFailed" else None
