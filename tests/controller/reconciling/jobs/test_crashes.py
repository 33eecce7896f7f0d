"""A crash between any two writes changes nothing in the end state: each request in turn is the last of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.jobworld import JobWorld, job_object, pytorchjob, replicas

from trainmaster.runtime.jsontree import JsonObject

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

    def _store(self, obj: JsonObject) -> JsonObject:
        stored = super()._store(obj)
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
                "labels": obj["metadata"].get("labels"),
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
