"""Random lives of jobs, and crashes between any two writes: the end state is what the job wants."""

import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.jobworld import JobWorld, job_object, pytorchjob, replicas, with_policy

from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, ServerError, TooManyRequests, TransportError
from trainmaster.runtime.jsontree import JsonObject

STEPS = 60
SEEDS = 15

PHASES = ("Pending", "Running", "Running", "Running", "Succeeded", "Failed")
POLICIES = ("Never", "OnFailure", "Always", "ExitCode")
REFUSALS: tuple[KubeError, ...] = (
    ServerError(status=500, reason="InternalError", message="broken"),
    Forbidden(status=403, reason="Forbidden", message="exceeded quota"),
    TooManyRequests(status=429, reason="TooManyRequests", message="later"),
    TransportError("reset"),
)


class RandomWorld(JobWorld):
    """A world in which anything happens."""

    def __init__(self, job: JsonObject, *, gang: str, chance: random.Random) -> None:
        self.chance = chance
        self.trouble = 0.0
        super().__init__(job, gang=gang)

    def _ask(self, request: str) -> None:
        super()._ask(request)
        if self.chance.random() < self.trouble:
            raise self.chance.choice(REFUSALS)

    async def try_reconcile(self) -> None:
        with contextlib.suppress(KubeError):
            await self.reconcile()

    async def step(self) -> None:
        """Have one of them do something."""
        self.chance.choice([self._pods_change, self._author_acts, self._world_changes])()
        self.collect()
        for _ in range(self.chance.randrange(3)):
            await self.try_reconcile()

    def _pods_change(self) -> None:
        chance, pods = self.chance, self.names("Pod")
        if pods and chance.random() < 0.8:
            code, restarts = chance.choice([0, 1, 137]), chance.randrange(3)
            self.set_phase(chance.choice(pods), chance.choice(PHASES), exit_code=code, restarts=restarts)
        elif pods:
            self.set_phase(chance.choice(pods), "Failed", exit_code=143, deleting=True)
        if ("PodGroup", "demo") in self.server and chance.random() < 0.5:
            self.put({**self.server["PodGroup", "demo"], "status": {"phase": "Inqueue"}})

    def _author_acts(self) -> None:
        chance, field = self.chance, self.kind.replica_specs_field
        if chance.random() < 0.5:
            policy = {**self.job["spec"]["runPolicy"], "suspend": chance.random() < 0.5}
            self.patch_spec(runPolicy=policy)
        else:
            types = {**self.job["spec"][field]}
            types["Worker"] = {**types["Worker"], "replicas": chance.randrange(4) + 1}
            self.patch_spec(**{field: types})

    def _world_changes(self) -> None:
        chance = self.chance
        others = [(kind, name) for kind, name in self.server if kind not in (self.kind.kind, "Pod")]
        match chance.randrange(5):
            case 0 if others and not self.lagging:
                self.remove(*chance.choice(others))
            case 1:
                self.trouble = chance.choice([0.0, 0.0, 0.3])
            case 2 if self.lagging:
                self.catch_up_with_deletions()
            case 2:
                self.lagging = True
            case 3:
                self.restart()
            case _:
                self.clock.step(chance.choice([0.1, 2.0, 40.0]))

    def collect(self) -> None:
        """Have pods that are on their way out be gone, now and then."""
        for name in self.names("Pod"):
            gone = self.pod(name)["metadata"].get("deletionTimestamp")
            if gone and not self.lagging and self.chance.random() < 0.5:
                self.remove("Pod", name)

    def catch_up_with_deletions(self) -> None:
        """Have the caches show what the server has, and nothing else."""
        for kind, store in self._by_kind.items():
            for key in store.keys():  # noqa: SIM118 - a store is no mapping
                if (kind, key.partition("/")[2]) not in self.server:
                    store.delete(key)
            store.update_resource_version(str(self._version))
        self.catch_up()

    async def calm(self) -> None:
        """Have everything be as it should, until nothing changes."""
        self.trouble, self.refusals = 0.0, {}
        self.catch_up_with_deletions()
        for _ in range(6):
            self.clock.step(400.0)
            for name in self.names("Pod"):
                if self.pod(name)["metadata"].get("deletionTimestamp"):
                    self.remove("Pod", name)
                elif (self.pod(name).get("status") or {}).get("phase") in (None, "Pending"):
                    self.set_phase(name, "Running")
            if ("PodGroup", "demo") in self.server:
                self.put({**self.server["PodGroup", "demo"], "status": {"phase": "Running"}})
            await self.settle()


def job_of(kind: str, chance: random.Random) -> JsonObject:
    lead, worker = chance.choice(POLICIES), chance.choice(POLICIES)
    policy: dict[str, Any] = {"cleanPodPolicy": chance.choice(["None", "Running", "All"])}
    if chance.random() < 0.3:
        policy["backoffLimit"] = chance.randrange(6)
    job = _job_of(kind, lead, worker, policy)
    return with_policy(job, maxRestarts=chance.randrange(9), disruptions="Ignore") if chance.random() < 0.3 else job


def _job_of(kind: str, lead: str, worker: str, policy: JsonObject) -> JsonObject:
    if kind == "MPIJob":
        types = {"Launcher": replicas(1, lead, container="mpi"), "Worker": replicas(2, worker, container="mpi")}
        return job_object("MPIJob", types, policy=policy)
    return pytorchjob(master=replicas(1, lead), worker=replicas(2, worker), policy=policy)


@pytest.mark.parametrize("gang", ["", "volcano"])
@pytest.mark.parametrize("kind", ["PyTorchJob", "MPIJob"])
async def test_after_any_life_a_job_has_what_it_wants_and_nothing_else(kind: str, gang: str) -> None:
    ends: set[str] = set()
    for seed in range(SEEDS):
        chance = random.Random(f"{kind} {gang} {seed}")
        world = RandomWorld(job_of(kind, chance), gang=gang, chance=chance)
        for _ in range(STEPS):
            await world.step()
        await world.calm()
        conditions = {each["type"] for each in world.status["conditions"] if each["status"] == "True"}
        assert "Blocked" not in conditions, seed
        specs = world.job["spec"][world.kind.replica_specs_field]
        wanted = [
            f"demo-{each.lower()}" if each == "Launcher" else f"demo-{each.lower()}-{index}"
            for each, spec in specs.items()
            for index in range(spec["replicas"])
        ]
        if conditions & {"Succeeded", "Failed"}:
            assert world.status["completionTime"], seed
            assert len(conditions & {"Succeeded", "Failed"}) == 1, seed
            if world.job["spec"]["runPolicy"]["cleanPodPolicy"] == "All":
                assert (world.names("Pod"), world.names("Service")) == ([], []), seed
            assert world.names("PodGroup") == [], seed
            ends.add("finished")
        elif world.job["spec"]["runPolicy"].get("suspend"):
            assert (world.names("Pod"), world.names("Service"), world.names("PodGroup")) == ([], [], []), seed
            assert "Suspended" in conditions, seed
            ends.add("suspended")
        else:
            assert world.names("Pod") == sorted(wanted), seed
            assert world.names("Service") == (sorted(wanted) if kind == "PyTorchJob" else []), seed
            assert "Running" in conditions, seed
            ends.add("runs")
    assert ends == {"finished", "suspended", "runs"}


Step = Callable[[JobWorld], Any]


class Crash(BaseException):
    """The process ends."""


class CrashingWorld(JobWorld):
    """A world whose reconciler's process ends at one of its requests, and is started again."""

    def __init__(self, job: JsonObject, *, gang: str) -> None:
        super().__init__(job, gang=gang)
        self.left: int | None = None
        """Requests until it does."""

        self.answered = False
        """Whether the server performs that request."""

    def _ask(self, request: str) -> None:
        super()._ask(request)
        if self.left is not None:
            self.left -= 1
            if self.left == 0 and not self.answered:
                raise Crash

    def store(self, obj: JsonObject) -> JsonObject:
        stored = super().store(obj)
        if hasattr(self, "left"):
            self._end()
        return stored

    def remove(self, kind: str, *names: str) -> None:
        super().remove(kind, *names)
        self._end()

    def _end(self) -> None:
        if self.left == 0:
            raise Crash

    async def rest(self) -> None:
        """Reconcile until nothing is requested any more, whatever happens to the process."""
        try:
            await self.settle()
        except Crash:
            self.left = None
            self.restart()
            await self.settle()

    def end_state(self) -> JsonObject:
        """Everything but what differs from run to run."""
        return {
            f"{kind} {name}": {
                **{field: value for field, value in obj.items() if field != "metadata"},
                **{field: obj["metadata"].get(field) for field in ("labels", "annotations")},
            }
            for (kind, name), obj in self.server.items()
        }


def change(**spec: Any) -> Step:
    return lambda world: world.patch_spec(**spec)


def phase(name: str, phase: str, **more: Any) -> Step:
    return lambda world: world.set_phase(name, phase, **more)


RUN: Step = lambda world: world.run()  # noqa: E731 - a table of steps
GO: Step = lambda world: world.put({**world.server["PodGroup", "demo"], "status": {"phase": "Inqueue"}})  # noqa: E731
LATER: Step = lambda world: world.clock.step(100)  # noqa: E731

LIMITED = {"backoffLimit": 3, "cleanPodPolicy": "Running", "ttlSecondsAfterFinished": 50}
PYTORCH = pytorchjob(master=replicas(1), worker=replicas(2), policy=LIMITED)
SMALLER = {"Master": replicas(1), "Worker": replicas(1)}
MPI = job_object(
    "MPIJob", {"Launcher": replicas(container="mpi"), "Worker": replicas(2, container="mpi")}, policy=LIMITED
)
LIVES: dict[str, tuple[JsonObject, str, list[Step]]] = {
    "restarts": (PYTORCH, "", [RUN, phase("demo-worker-0", "Failed", restarts=1), RUN]),
    "restarts together": (
        with_policy(PYTORCH, maxRestarts=1),
        "",
        [
            *(RUN, phase("demo-worker-1", "Failed", exit_code=1), RUN, change(runPolicy={**LIMITED, "suspend": True})),
            *(change(runPolicy=LIMITED), RUN, phase("demo-worker-0", "Failed", exit_code=1)),
        ],
    ),
    "scaled down": (PYTORCH, "", [RUN, change(pytorchReplicaSpecs=SMALLER)]),
    "suspended": (PYTORCH, "", [RUN, change(runPolicy={**LIMITED, "suspend": True}), change(runPolicy=LIMITED), RUN]),
    "succeeds": (PYTORCH, "", [RUN, phase("demo-master-0", "Succeeded")]),
    "fails": (PYTORCH, "", [RUN, phase("demo-worker-1", "Failed", restarts=4)]),
    "outlives its time": (PYTORCH, "", [RUN, phase("demo-master-0", "Succeeded"), LATER]),
    "gang": (PYTORCH, "volcano", [GO, RUN, phase("demo-master-0", "Succeeded")]),
    "launcher": (
        MPI,
        "",
        [
            RUN,
            change(mpiReplicaSpecs=MPI["spec"]["mpiReplicaSpecs"] | {"Worker": replicas(1, container="mpi")}),
            phase("demo-launcher", "Succeeded"),
        ],
    ),
}


async def live(job: JsonObject, gang: str, steps: Iterable[Step], *, last: int | None, answered: bool) -> CrashingWorld:
    world = CrashingWorld(job, gang=gang)
    world.left, world.answered = last, answered
    await world.rest()
    for step in steps:
        left, world.left = world.left, None
        step(world)
        world.left = left
        await world.rest()
    return world


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("name", LIVES)
async def test_a_crash_at_any_request_changes_nothing_in_the_end(name: str, *, answered: bool) -> None:
    undisturbed = await live(*LIVES[name], last=None, answered=False)
    assert len(undisturbed.requests) > 5
    for last in range(1, len(undisturbed.requests) + 1):
        world = await live(*LIVES[name], last=last, answered=answered)
        assert world.end_state() == undisturbed.end_state(), undisturbed.requests[last - 1]
