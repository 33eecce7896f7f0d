"""A lease on a server, and candidates for it whose way to the server can be cut."""

import asyncio
from typing import Any

from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaderElector
from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, Forbidden, NotFound, TransportError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject, copy_tree


class LeaseServer:
    """Keeps one lease with optimistic locking."""

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self.version = 0
        self.calls: list[str] = []

    @property
    def spec(self) -> JsonObject:
        """What the lease says."""
        assert self.lease is not None
        spec: JsonObject = self.lease["spec"]
        return spec

    def write(self, obj: JsonObject) -> JsonObject:
        """Keep a lease under a new version."""
        self.version += 1
        self.lease = copy_tree(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy_tree(self.lease)  # type: ignore[no-any-return] # a copy of a JSON object


class LeaseClient:
    """The way of one candidate to the server; it can be cut or become endless, or lose the answers to writes."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.cut = False
        self.hanging = False
        self.deaf = False
        self.forbidden: set[str] = set()

    async def _pass(self, call: str) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        if self.cut:
            raise TransportError("cut")
        if call in self.forbidden:
            raise Forbidden(status=403, reason="Forbidden", message=f"cannot {call}")
        self.server.calls.append(call)

    async def _answer(self, obj: JsonObject) -> JsonObject:
        if self.deaf:
            await asyncio.Event().wait()
        return obj

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read the lease."""
        await self._pass("get")
        if self.server.lease is None:
            raise NotFound(status=404)
        return copy_tree(self.server.lease)  # type: ignore[no-any-return] # a copy of a JSON object

    async def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Write the first lease."""
        await self._pass("create")
        if self.server.lease is not None:
            raise AlreadyExists(status=409)
        return await self._answer(self.server.write(obj))

    async def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """Write the lease, if nobody else has meanwhile."""
        await self._pass("update")
        if self.server.lease is None:
            raise NotFound(status=404)
        if obj["metadata"].get("resourceVersion") != str(self.server.version):
            raise Conflict(status=409)
        return await self._answer(self.server.write(obj))


class Candidate:
    """An elector, its connection and what its work is doing."""

    def __init__(self, server: LeaseServer, clock: VirtualClock, identity: str, **options: Any) -> None:
        self.client = LeaseClient(server)
        self.elector = LeaderElector(
            self.client,
            lease_namespace="ns",
            lease_name=options.pop("lease_name", "lease"),
            identity=identity,
            clock=clock,
            random=options.pop("random", lambda: 0.0),
            **options,
        )
        self.working = False
        self.release = asyncio.Event()
        self.stopping_takes = 0.0
        self.clock = clock
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self) -> None:
        """Work until released or stopped."""
        self.working = True
        try:
            await self.release.wait()
        finally:
            try:
                await self.clock.sleep(self.stopping_takes)
            finally:
                self.working = False


async def end(*candidates: Candidate) -> None:
    """Cancel candidates, and wait for their end."""
    for candidate in candidates:
        candidate.task.cancel()
    await asyncio.wait({candidate.task for candidate in candidates})
