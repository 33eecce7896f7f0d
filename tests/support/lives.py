"""The lives of TrainJobs, for tests that let many of them run: each from creation to its end, whatever happens between.

A life plays everybody but the manager: the user, and the JobSet controller, whose reports it writes. It sees the
cluster through a `World` that asks the server again and again, so that restarts of the server do not matter to it.
"""

import asyncio
import contextlib
import functools
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from support.training import trainjob

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError, NotFound, TransportError
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

T = TypeVar("T")

NAMESPACE = "default"
_POLL = 0.2
_ENTRY = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}


class World:
    """What is in the cluster, a moment ago.

    Args:
        client: A client that reaches the server whenever it runs.
    """

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self._objects: dict[Resource, dict[str, JsonObject]] = {r: {} for r in (TRAINJOBS, JOBSETS, CONFIGMAPS)}
        self._looked = asyncio.Event()
        self._deadline = math.inf

    def expect_within(self, seconds: float) -> None:
        """Take for lost what does not happen in this time from now; before, nobody knows how long trouble lasts."""
        self._deadline = time.monotonic() + seconds

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for resource in self._objects:
                found = await self.insist(functools.partial(self.client.list, resource, NAMESPACE))
                self._objects[resource] = {item["metadata"]["name"]: item for item in found["items"]}
            self._looked.set()
            self._looked = asyncio.Event()
            await asyncio.sleep(_POLL)

    def all(self, resource: Resource) -> dict[str, JsonObject]:
        """Return the objects of a kind by name."""
        return self._objects[resource]

    def get(self, resource: Resource, name: str) -> JsonObject | None:
        """Return one object."""
        return self._objects[resource].get(name)

    async def until(self, ask: Callable[[], T | None], waiting_for: str) -> T:
        """Look until the answer is true; returns it."""
        while not (answer := ask()):
            assert time.monotonic() < self._deadline, f"waited in vain for {waiting_for}"
            await self._looked.wait()
        return answer

    async def insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something again and again while the server is away."""
        while True:
            try:
                return await work()
            except (TransportError, ApiError) as error:
                if (isinstance(error, ApiError) and error.status < 500) or time.monotonic() > self._deadline:
                    raise
            await asyncio.sleep(_POLL)


class Life:
    """One TrainJob with what belongs to it."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._uid = ""
        self._jobset_uid = ""

    async def create(self, **spec: Any) -> None:
        """Create the TrainJob."""
        # The server may go away between doing it and saying so.
        with contextlib.suppress(AlreadyExists):
            await self._world.insist(lambda: self._world.client.create(TRAINJOBS, trainjob(self.name, **spec)))
        job = await self._world.insist(lambda: self._world.client.get(TRAINJOBS, NAMESPACE, self.name))
        self._uid, self._jobset_uid = job["metadata"]["uid"], ""

    async def patch(self, **spec: Any) -> None:
        """Change its spec."""
        await self._write(TRAINJOBS, {"spec": spec})

    async def delete(self) -> None:
        """Delete the TrainJob and wait until nothing of it is left."""
        await self.delete_and_go_on()
        await self._until(lambda: not self._remains(), "garbage collection")

    async def delete_and_go_on(self) -> None:
        """Delete the TrainJob."""
        with contextlib.suppress(NotFound):
            await self._world.insist(lambda: self._world.client.delete(TRAINJOBS, NAMESPACE, self.name, uid=self._uid))

    async def jobset(self, holds: Callable[[JsonObject], bool] = lambda _: True) -> JsonObject:
        """Wait for the JobSet of this very TrainJob, in a certain state. It must be the same one for its whole life."""

        def ask() -> JsonObject | None:
            found = self._world.get(JOBSETS, self.name)
            if found is None or found["metadata"]["ownerReferences"][0]["uid"] != self._uid or not holds(found):
                return None
            return found

        found = await self._until(ask, "its JobSet")
        uid = found["metadata"]["uid"]
        assert self._jobset_uid in {"", uid}, f"{self.name} has another JobSet than before"
        self._jobset_uid = uid
        return found

    async def reports(self, condition: str, status: str = "True", **counts: int) -> None:
        """Write the status of the JobSet, as its controller does."""
        entry = {"type": condition, "status": status, "reason": condition, "message": condition}
        reported = {
            "replicatedJobsStatus": [_ENTRY | counts],
            "conditions": [entry | {"lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }
        await self._write(JOBSETS, {"status": reported}, subresource="status")

    async def has(self, condition: str, status: str = "True") -> JsonObject:
        """Wait until the TrainJob has a condition; returns it."""

        def ask() -> JsonObject | None:
            job = self._world.get(TRAINJOBS, self.name)
            conditions = ((job or {}).get("status") or {}).get("conditions", [])
            return next((c for c in conditions if (c["type"], c["status"]) == (condition, status)), None)

        return await self._until(ask, f"{condition}={status}")

    async def has_no_jobset(self) -> None:
        """Wait until its JobSet is gone."""
        await self._until(lambda: self._world.get(JOBSETS, self.name) is None, "the end of its JobSet")

    def _remains(self) -> list[JsonObject]:
        """What the TrainJob of this UID has left."""
        found = []
        for resource in (TRAINJOBS, JOBSETS, CONFIGMAPS):
            for obj in self._world.all(resource).values():
                owners = [reference["uid"] for reference in obj["metadata"].get("ownerReferences", [])]
                if self._uid in {obj["metadata"]["uid"], *owners}:
                    found.append(obj)
        return found

    async def _until(self, ask: Callable[[], T | None], waiting_for: str) -> T:
        return await self._world.until(ask, f"{waiting_for} of {self.name}")

    async def _write(self, resource: Resource, patch: JsonObject, *, subresource: str | None = None) -> None:
        client = self._world.client
        await self._world.insist(lambda: client.patch(resource, NAMESPACE, self.name, patch, subresource=subresource))


async def _completes(life: Life, _random: Random) -> None:
    await life.create()
    await life.jobset()
    await life.reports("Completed", succeeded=1)
    await life.has("Complete")


async def _fails(life: Life, _random: Random) -> None:
    await life.create(trainer={"numNodes": 2})
    await life.jobset()
    await life.reports("Failed", failed=1)
    await life.has("Failed")


async def _is_suspended_and_resumed(life: Life, random: Random) -> None:
    await life.create()
    await life.jobset()
    for _ in range(random.randint(1, 2)):
        await life.patch(suspend=True)
        await life.jobset(lambda jobset: jobset["spec"]["suspend"])
        await life.reports("Suspended", suspended=1)
        await life.has("Suspended")
        await life.patch(suspend=False)
        await life.jobset(lambda jobset: not jobset["spec"]["suspend"])
        await life.reports("Suspended", "False", active=1)
        await life.has("Suspended", "False")
    await life.reports("Completed", succeeded=1)
    await life.has("Complete")


async def _is_changed_while_suspended(life: Life, random: Random) -> None:
    """As Kueue does: it puts a node selector in, takes it out again after an eviction, and puts another one in."""
    await life.create(suspend=True)
    await life.jobset(lambda jobset: jobset["spec"]["suspend"])
    pool = ""
    for _ in range(random.randint(1, 3)):
        pool = "" if pool else random.choice(["a", "b"])
        await life.patch(runtimePatches=[_into_pool(pool)] if pool else [])
        await life.jobset(functools.partial(_is_in_pool, pool))
    await life.patch(suspend=False)
    await life.jobset(lambda jobset: not jobset["spec"]["suspend"] and _is_in_pool(pool, jobset))
    await life.reports("Completed", succeeded=1)
    await life.has("Complete")


async def _is_deleted_early(life: Life, random: Random) -> None:
    await life.create()
    await asyncio.sleep(random.uniform(0, 0.3))
    await life.delete()


async def _is_replaced(life: Life, random: Random) -> None:
    """Deleted, and created again under its name before garbage collection has come."""
    await life.create()
    if random.random() < 0.5:
        await life.jobset()
    await life.delete_and_go_on()
    await life.create(trainer={"numNodes": 3})
    await life.jobset()
    await life.reports("Completed", succeeded=3)
    await life.has("Complete")


async def _exceeds_its_deadline(life: Life, random: Random) -> None:
    await life.create(activeDeadlineSeconds=random.randint(1, 4))
    assert (await life.has("Failed"))["reason"] == "DeadlineExceeded"
    await life.has_no_jobset()


async def _just_runs(life: Life, _random: Random) -> None:
    await life.create()
    await life.jobset()
    await life.reports("StartupPolicyCompleted", active=1, ready=1)


KINDS: dict[str, Callable[[Life, Random], Awaitable[None]]] = {
    "completes": _completes,
    "fails": _fails,
    "suspended and resumed": _is_suspended_and_resumed,
    "changed while suspended": _is_changed_while_suspended,
    "deleted early": _is_deleted_early,
    "replaced": _is_replaced,
    "exceeds its deadline": _exceeds_its_deadline,
    "just runs": _just_runs,
}
"""What lives there are."""


class Crowd:
    """Many lives at once, one after the other in each of a number of places."""

    def __init__(self, world: World, *, seed: int, rest: float) -> None:
        self._world = world
        self._random = Random(seed)
        self._rest = rest
        """How many seconds an ended TrainJob stays at most before it is deleted."""

        self._closing = False
        self.lived: Counter[str] = Counter()
        """How many lives of each kind have ended as they should."""

        self.created: Counter[str] = Counter()
        """How many TrainJobs there were of each name."""

        self.staying: list[Life] = []
        """Those that were left as they are because the crowd was closing."""

    def close(self) -> None:
        """Begin no more lives, and leave the TrainJobs of the last ones."""
        self._closing = True

    async def run(self, places: int) -> None:
        """Let lives begin in so many places until `close`; returns when all have ended."""
        async with asyncio.TaskGroup() as group:
            for place in range(places):
                group.create_task(self._fill(place))

    async def _fill(self, place: int) -> None:
        random = Random(self._random.random())
        number = 0
        while not self._closing:
            kind = random.choice(sorted(KINDS))
            life = Life(self._world, f"soak-{place}-{number}")
            self.created[life.name] = 2 if kind == "replaced" else 1
            number += 1
            await KINDS[kind](life, random)
            self.lived[kind] += 1
            await asyncio.sleep(random.uniform(0, self._rest))
            if self._closing and kind != "deleted early":
                self.staying.append(life)
            else:
                await life.delete()


def _into_pool(pool: str) -> JsonObject:
    pod = {"nodeSelector": {"pool": pool}}
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"manager": "soak.test/queue", "time": "2026-01-01T00:00:00Z", "trainingRuntimeSpec": spec}


def _is_in_pool(pool: str, jobset: JsonObject) -> bool:
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return bool((pod.get("nodeSelector") or {}).get("pool", "") == pool)
