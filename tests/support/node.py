"""A node of the embedded cluster for tests: the kubelet with the real API and real processes, and nothing else."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT, eventually
from support.machine import FOUND, needs_namespaces

from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, EVENTS, PODS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.network.mode import Networking
from trainmaster.devcluster.settings import KubeletSettings
from trainmaster.runtime.jsontree import JsonObject

REWRITING = Networking("rewriting")
MODES = [pytest.param(REWRITING, id="rewriting"), pytest.param(FOUND, id="namespaces", marks=needs_namespaces)]
"""Parameters for tests that have to pass in both modes of networking."""

RESOLVING = pytest.mark.parametrize(
    "node", [pytest.param(FOUND, id="namespaces", marks=needs_namespaces)], indirect=True
)
"""For tests of names: where names are rewritten, that of a pod is an address from the beginning."""


def sh(script: str, **container: Any) -> JsonObject:
    return {"name": "c", "image": "any", "command": ["/bin/sh", "-c", script], **container}


class Node:
    """A kubelet on an API of its own, which can be restarted."""

    def __init__(self, directory: Path, networking: Networking = REWRITING) -> None:
        self.directory = directory
        self.networking = networking
        self.store = Store()
        self.api = Api(self.store, builtin_registry())
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.settings = KubeletSettings(restart_backoff=0.02, retry_interval=0.02)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Kubelet]:
        kubelet = Kubelet(
            self.api,
            node_name="laptop",
            root_dir=self.directory,
            server_url="https://127.0.0.1:16443",
            networking=self.networking,
            clock=self.clock,
            settings=self.settings,
        )
        task = asyncio.create_task(kubelet.run())
        try:
            yield kubelet
        finally:
            assert not task.done(), task.exception()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def create(
        self, *containers: JsonObject, name: str = "p", labels: Any = None, owner: str = "", **spec: Any
    ) -> None:
        """Create a pod, which may belong to an object of a kind, `KIND/NAME`."""
        kind, _, of = owner.partition("/")
        owners = [{"apiVersion": "x/v1", "kind": kind, "name": of, "uid": of, "controller": True}] if owner else []
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels or {}, "ownerReferences": owners},
            "spec": {"restartPolicy": "Never", "nodeName": "laptop", **spec, "containers": list(containers)},
        }
        await self.api.create(PODS, pod)

    async def create_data(self, **data: str) -> None:
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cm", "namespace": "default"},
            "data": data,
        }
        await self.api.create(CONFIGMAPS, obj)

    async def reached(self, condition: Callable[[JsonObject], Any], *, name: str = "p") -> JsonObject:
        """Wait until a condition holds for the pod."""
        async with asyncio.timeout(TIMEOUT), self.api.watch(PODS, since=None) as changes:
            async for change in changes:
                if change.object and change.object["metadata"]["name"] == name and condition(change.object):
                    return change.object
        raise AssertionError("the watch ended")

    async def phase(self, phase: str, *, name: str = "p") -> JsonObject:
        pod = await self.reached(lambda pod: pod["status"].get("phase") in {phase, "Failed", "Succeeded"}, name=name)
        assert pod["status"]["phase"] == phase, pod["status"]
        return pod

    async def gone(self, name: str = "p") -> None:
        await eventually(lambda: not any(r.object["metadata"]["name"] == name for r in self.api.list(PODS)[0]))

    def events(self, name: str = "p") -> list[tuple[str, str, str]]:
        """Type, reason and message of each event about the pod."""
        found = [r.object for r in self.api.list(EVENTS)[0] if r.object["involvedObject"]["name"] == name]
        return [(event["type"], event["reason"], event["message"]) for event in found]

    async def event_message(self, reason: str, *, name: str = "p") -> str:
        """Wait for an event and give its message."""
        found: list[str] = await eventually(lambda: [text for _, why, text in self.events(name) if why == reason])
        return found[0]

    async def log(self, kubelet: Kubelet, *, name: str = "p", container: str = "c", **options: Any) -> str:
        defaults: dict[str, Any] = dict.fromkeys(("run", "tail_lines", "since_seconds", "since_time", "limit_bytes"))
        defaults |= dict.fromkeys(("follow", "previous", "timestamps"), False)
        pod = self.api.get(PODS, "default", name)
        stream = await kubelet.logs.read(pod=pod, container=container, **{**defaults, **options})
        return b"".join([block async for block in stream]).decode()


async def first_line(node: Node, kubelet: Kubelet) -> str:
    """Wait for the first output of the pod's container."""
    pod = node.api.get(PODS, "default", "p")
    path = node.directory / "pods" / pod["metadata"]["uid"] / "logs/c/0.log"
    await eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return (await node.log(kubelet)).splitlines()[0]


def terminated(pod: JsonObject, index: int = 0, *, state: str = "state") -> JsonObject:
    found: JsonObject = pod["status"]["containerStatuses"][index][state]["terminated"]
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
