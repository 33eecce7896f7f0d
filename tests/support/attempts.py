"""Attempts of a TrainJob with a resilience policy: a test plays the JobSet controller and the kubelets."""

from typing import Any

from support.failing_pods import pod, terminated
from support.objects import runtime_object, trainjob_object
from support.world import World

from trainmaster.runtime.jsontree import JsonObject

GLOO = "RuntimeError: [gloo] Connection closed by peer"
NAN = "ValueError: my loss is NaN"
ACTIVE = {"name": "node", "ready": 2, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
    "lastTransitionTime": "2026-01-01T00:00:05Z",
}
REACHED = {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": "too often"}
TOLD = {"type": "Failed", "status": "True", "reason": "FailJobSetFailurePolicyAction", "message": "it was told to"}


class Cluster:
    """A world whose JobSet controller and kubelets the test plays."""

    def __init__(self, policy: JsonObject, **template: Any) -> None:
        self.world = World()
        self.status: dict[str, Any] = {}
        self.world.put(trainjob_object(resiliencePolicy=policy), runtime_object(policy={"torch": {}}, **template))

    async def start(self) -> None:
        """Have the JobSet made, and all pods run."""
        await self.world.reconcile()
        self.status = {"replicatedJobsStatus": [ACTIVE], "restarts": 0}
        self.world.change("JobSet", status=self.status)
        await self.world.reconcile()

    @property
    def uid(self) -> str:
        return str(self.world.find("JobSet")["metadata"]["uid"])

    @property
    def labels(self) -> JsonObject:
        [job] = self.world.find("JobSet")["spec"]["replicatedJobs"]
        labels: JsonObject = job["template"]["spec"]["template"]["metadata"]["labels"]
        return labels

    def pod(self, rank: int = 0, state: JsonObject | None = None, *, node: str = "", **fields: Any) -> JsonObject:
        """A pod of the present attempt."""
        made = pod(rank, state, attempt=self.status["restarts"], jobset_uid=self.uid, **fields)
        made["metadata"]["labels"] |= self.labels
        made["spec"]["nodeName"] = node or f"node-{rank}"
        return made

    def crash(self, rank: int = 0, *, message: str = NAN, code: int = 1, at: int = 6, node: str = "") -> None:
        """Have a pod fail."""
        self.world.pods = [self.pod(rank, terminated(code, message=message, at=at), node=node, phase="Failed")]
        self.world.show_pod(self.world.pods[0])

    def evict(self, rank: int = 0) -> None:
        """Have the eviction API take a pod."""
        self.world.show_pod(self.pod(rank, conditions=[EVICTED]))

    async def restart(self, *, counts: bool = True, after: float = 1.0) -> None:
        """Have the JobSet start all pods anew."""
        self.status["restarts"] += 1
        if counts:  # what is zero is absent
            self.status["restartsCountTowardsMax"] = self.status.get("restartsCountTowardsMax", 0) + 1
        self.world.change("JobSet", status=self.status)
        await self.world.reconcile_after(after)

    async def fail(self, condition: JsonObject = REACHED) -> None:
        """Have the JobSet give up."""
        ended = {**ACTIVE, "ready": 0, "active": 0, "failed": 1}
        self.world.change("JobSet", status={**self.status, "replicatedJobsStatus": [ended], "conditions": [condition]})
        await self.world.reconcile_after(1)

    async def renew(self) -> None:
        """Have the JobSet that is replaced go, with all that it owns."""
        assert self.world.find("JobSet")["metadata"]["deletionTimestamp"]
        assert self.job_status["resilience"]["replacedJobSet"] == self.uid
        await self.world.reconcile_after(5)
        assert self.world.find("JobSet")["metadata"]["deletionTimestamp"], "it waits for the pods"
        self.world.remove("JobSet")
        await self.start()

    @property
    def is_replaced(self) -> bool:
        return "deletionTimestamp" in self.world.find("JobSet")["metadata"]

    @property
    def job_status(self) -> JsonObject:
        status: JsonObject = self.world.find("TrainJob")["status"]
        return status

    @property
    def ledger(self) -> list[tuple[int, str, bool]]:
        """Number, reason and charge of each attempt."""
        attempts = self.job_status.get("resilience", {}).get("attempts", [])
        return [(each["number"], each["reason"], each["charged"]) for each in attempts]

    @property
    def last(self) -> JsonObject:
        attempt: JsonObject = self.job_status["resilience"]["attempts"][-1]
        return attempt


async def started(**policy: Any) -> Cluster:
    cluster = Cluster(policy)
    await cluster.start()
    return cluster
