"""TrainJobs in a namespace of their own, on whatever cluster has Trainmaster.

Containers run `python3` of one image, which the embedded cluster takes from its machine. Runtimes are in the namespace
as well, so that its end takes everything along. Nothing is assumed about nodes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from support.commands import client_of
from support.training import conditions_of, create_namespace, ended, found, logs, pods, trainjob, until
from support.training import runtime as cluster_runtime

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

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
