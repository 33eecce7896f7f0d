"""A namespace of a cluster, and the command line in it: jobs whose nodes run a shell script."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import Finished, Running, client_of, started
from support.devcluster.faultycluster import FaultyCluster
from support.running_jobs import job, jobs
from support.stack import api_server
from support.training import (
    apply_runtime,
    conditions_of,
    create_namespace,
    ended,
    found,
    logs,
    pods,
    runtime,
    trainjob,
    until,
)
from support.training import runtime as cluster_runtime

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

IN_PLACE = "restarted-in-place"
"""A runtime whose containers are started again in their pods."""


@dataclass(frozen=True)
class Team:
    """A namespace of a cluster."""

    name: str
    client: KubeClient
    kubeconfig: Path
    directory: Path
    """The working directory of its commands."""

    @property
    def options(self) -> list[str]:
        """What leads a command here, as the commands that are advised have it."""
        return ["-n", self.name, "--kubeconfig", str(self.kubeconfig)]

    def started(self, *words: str) -> AbstractAsyncContextManager[Running]:
        """Start a command in the namespace."""
        return started(*words, *self.options, cwd=self.directory)

    async def cli(self, *words: str, code: int | None = None) -> Finished:
        """Run a command in the namespace to its end, which is to have this exit code if one is given."""
        async with self.started(*words) as running:
            return await running.finish(code=code)

    def advised(self, *words: str) -> str:
        """A command as it is advised."""
        return " ".join(["trainmaster", *words, *self.options])

    def manifest(self, name: str, script: str, *, on: str = "processes", nodes: int = 1, **spec: Any) -> JsonObject:
        """A TrainJob of the namespace."""
        job = trainjob(name, on=on, trainer={"command": ["sh", "-c", script], "numNodes": nodes}, **spec)
        return {**job, "metadata": {"name": name, "namespace": self.name}}

    async def submit(self, name: str, script: str, **options: Any) -> JsonObject:
        """Create a TrainJob."""
        return await self.client.create(TRAINJOBS, self.manifest(name, script, **options))

    async def submit_v1(self, kind: str, name: str, replicas: JsonObject) -> JsonObject:
        """Create a job of `kubeflow.org/v1`, as `support.running_jobs` has them."""
        obj = job(kind, name, replicas)
        obj["metadata"]["namespace"] = self.name
        return await self.client.create(jobs(kind), obj)

    async def tell(self, name: str, kind: str, *, reason: str = "Done", message: str = "") -> None:
        """Give a TrainJob a condition, as a manager does."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        status = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
        await self.client.patch(TRAINJOBS, self.name, name, status, subresource="status")

    async def condition(self, name: str, kind: str) -> JsonObject:
        """Wait until a TrainJob has a condition; returns it."""

        async def held() -> JsonObject | None:
            return conditions_of(await self.client.get(TRAINJOBS, self.name, name)).get(kind)

        found: JsonObject = await until(held)
        return found

    async def pods(self, name: str) -> list[JsonObject]:
        """The pods of a TrainJob."""
        return await pods(self.client, name, namespace=self.name)


@asynccontextmanager
async def team(kubeconfig: Path, name: str, directory: Path) -> AsyncIterator[Team]:
    """A new namespace, with the runtimes `processes` and `IN_PLACE` in its cluster; it is deleted in the end."""
    async with client_of(kubeconfig) as client:
        await create_namespace(client, name)
        await apply_runtime(client, runtime())
        await apply_runtime(client, runtime(IN_PLACE, backoff_limit=3, restart_policy="OnFailure"))
        yield Team(name, client, kubeconfig, directory)
        await client.delete(NAMESPACES, None, name)


@asynccontextmanager
async def quiet_team(directory: Path) -> AsyncIterator[tuple[Team, FaultyCluster]]:
    """A namespace of an API server on which nobody works, and that server: jobs stay as the test leaves them."""
    async with api_server(directory) as stack:
        assert stack.cluster is not None
        kubeconfig = directory / "cluster/kubeconfig"
        async with client_of(kubeconfig) as client:
            await create_namespace(client, "research")
            (directory / "files").mkdir()
            yield Team("research", client, kubeconfig, directory / "files"), stack.cluster


KUBECONFIG_VARIABLE = "TRAINMASTER_E2E_KUBECONFIG"
IMAGE = os.environ.get("TRAINMASTER_E2E_IMAGE", "python:3.13-slim")
"""Any image that has `python3`."""

PATIENCE = 300.0
"""Seconds for what a cluster does about a TrainJob, which may have to pull the image first."""


def python(script: str) -> list[str]:
    """A command that runs a Python script in any image that has one."""
    return ["python3", "-c", script]


@dataclass(frozen=True)
class Place:
    """A namespace of a cluster."""

    client: KubeClient
    namespace: str

    async def make_runtime(self, name: str, *, replicas: int = 1, policy: JsonObject | None = None) -> JsonObject:
        """Make a TrainingRuntime, for torch by default, whose nodes do nothing unless the TrainJob says what."""
        obj = cluster_runtime(name)
        obj |= {"kind": "TrainingRuntime"}
        obj["metadata"]["namespace"] = self.namespace
        obj["spec"]["mlPolicy"] = policy or {"numNodes": 1, "torch": {}}
        (job,) = obj["spec"]["template"]["spec"]["replicatedJobs"]
        job["replicas"] = replicas
        job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
        return await self.client.apply(TRAINING_RUNTIMES, obj, field_manager="tests")

    async def submit(self, name: str, *, on: str, **spec: Any) -> JsonObject:
        """Create a TrainJob."""
        obj = trainjob(name, runtimeRef={"kind": "TrainingRuntime", "name": on}, **spec)
        obj["metadata"]["namespace"] = self.namespace
        return await self.client.create(TRAINJOBS, obj)

    async def conditions(self, name: str) -> dict[str, JsonObject]:
        """The conditions of a TrainJob that hold, by type."""
        return conditions_of(await self.client.get(TRAINJOBS, self.namespace, name))

    async def pods(self, name: str) -> list[JsonObject]:
        """The pods of a TrainJob."""
        return await pods(self.client, name, namespace=self.namespace)

    async def logs(self, name: str) -> list[str]:
        """What the pods of a TrainJob printed, sorted."""
        return await logs(self.client, name, namespace=self.namespace)

    async def ended(self, name: str) -> JsonObject:
        """Wait for the end of a TrainJob; returns the condition."""
        return await ended(self.client, name, namespace=self.namespace, timeout=PATIENCE)


@asynccontextmanager
async def new_place(kubeconfig: str) -> AsyncIterator[Place]:
    """Make a namespace; delete it afterwards, and wait until it is gone."""
    name = f"trainmaster-e2e-{secrets.token_hex(4)}"
    async with client_of(kubeconfig) as client:
        await create_namespace(client, name)
        try:
            yield Place(client, name)
        finally:
            await client.delete(NAMESPACES, None, name)

            async def gone() -> bool:
                return await found(client, NAMESPACES, name, namespace=None) is None

            await until(gone, timeout=PATIENCE)
