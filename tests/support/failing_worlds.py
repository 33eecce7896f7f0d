"""A TrainJob whose pods fail, in a world without a cluster."""

from __future__ import annotations

from typing import Any

from support.failing_pods import BACKING_OFF, container_status, pod, terminated
from support.objects import runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.reconciling.outcomes import DONE, Outcome
from trainmaster.runtime.jsontree import JsonObject

NAN = "Traceback (most recent call last):\nValueError: my loss is NaN\n"
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "FailedJobs",
    "message": "jobset failed due to one or more job failures (first failed job: demo-node-0)",
    "lastTransitionTime": "2026-01-01T00:00:06Z",
}
COMPLETED = {**FAILED, "type": "Completed", "reason": "AllJobsCompleted", "message": "jobset completed successfully"}

TOLD = (
    "attempt 0: rank 1 (pod demo-node-0-1-abcde, container node) failed at 2026-01-01T00:00:05Z with exit code 1: "
    "ValueError: my loss is NaN"
)


class FailingWorld(World):
    """A world with a running TrainJob of two nodes."""

    @classmethod
    async def starting(cls, *jobs: JsonObject) -> FailingWorld:
        world = cls()
        world.put(trainjob_object(), runtime_object(*jobs))
        await world.reconcile()
        return world

    @classmethod
    async def running(cls) -> FailingWorld:
        world = await cls.starting()
        world.show_pods(pod(0), pod(1))
        await world.report(active=1)
        await world.report(active=1, ready=1)
        await world.clock.advance(2)
        await world.reconcile()
        assert await world.reconcile() == DONE
        assert world.reads == 0
        return world

    @classmethod
    async def failed(cls) -> FailingWorld:
        """One of its containers has failed and waits for its restart."""
        world = await cls.running()
        world.show_pods(pod(0), failing())
        await world.report(active=1)
        return world

    async def report(self, *conditions: JsonObject, restarts: int = 0, **counts: int) -> Outcome:
        """Have JobSet report, and reconcile."""
        jobs = [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}]
        status = {"replicatedJobsStatus": jobs, "restarts": restarts, "conditions": list(conditions)}
        self.change("JobSet", status=status)
        return await self.reconcile()

    def show_pods(self, *pods: JsonObject) -> None:
        """Have the server show these pods of the JobSet."""
        for each in pods:
            each["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] = self.find("JobSet")["metadata"]["uid"]
        self.pods = list(pods)

    @property
    def reads(self) -> int:
        return sum(request.startswith("list Pod") for request in self.requests)

    @property
    def told(self) -> list[str]:
        """The lines of the condition."""
        return str(self.conditions.get("ContainerFailed", {}).get("message", "")).splitlines()


def failing(rank: int = 1, *, at: int = 5, run: int = 0, message: str = NAN, **fields: Any) -> JsonObject:
    """A pod whose container has failed and waits for its restart."""
    container = container_status(BACKING_OFF, last=terminated(1, at=at, message=message), restarts=run)
    return pod(rank, containers=[container], **fields)
