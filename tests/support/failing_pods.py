"""Pods whose containers have failed, on an API server and in a world without a cluster."""

from typing import Any

from support.objects import runtime_object, trainjob_object
from support.world import World

from trainmaster.controller.container_failures import ContainerFailure
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.reconciling.outcomes import DONE, Outcome
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.jsontree import JsonObject

SECOND = "2026-01-01T00:00:{:02}Z"

FAILURE = ContainerFailure(
    pod="demo-node-0-1-abcde",
    pod_uid="one",
    container="node",
    rank=1,
    attempt=0,
    run=0,
    exit_code=1,
    reason="Error",
    message="",
    at=SECOND.format(5),
    replicated_job="node",
    ranks=range(1, 2),
)
"""Of rank 1 of the TrainJob `demo`."""


def terminated(code: int = 1, *, at: int = 5, message: str = "", reason: str = "Error") -> JsonObject:
    """The end of a container, `at` seconds of the first minute of the year."""
    ended = {"exitCode": code, "reason": reason, "finishedAt": SECOND.format(at)}
    return {"terminated": ended | ({"message": message} if message else {})}


BACKING_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
RUNNING = {"running": {"startedAt": SECOND.format(1)}}


def container_status(
    state: JsonObject, *, last: JsonObject | None = None, restarts: int = 0, name: str = "node"
) -> Any:
    """The status of a container."""
    return {"name": name, "restartCount": restarts, "state": state, "lastState": last or {}}


def pod(
    rank: int = 0,
    state: JsonObject | None = None,
    *,
    suffix: str = "abcde",
    attempt: int = 0,
    jobset_uid: str = "JobSet-of-uid-1",
    job: str = "node",
    created: int = 0,
    containers: list[JsonObject] | None = None,
    deleted: JsonObject | None = None,
    **status: Any,
) -> JsonObject:
    """A pod of the TrainJob `demo`; its container runs if nothing else is said."""
    name = f"demo-{job}-0-{rank}-{suffix}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-of-{name}-{attempt}",
            "creationTimestamp": SECOND.format(created),
            "ownerReferences": [{"kind": "Job", "name": f"demo-{job}-0"}],
            "labels": {
                "jobset.sigs.k8s.io/jobset-name": "demo",
                "jobset.sigs.k8s.io/jobset-uid": jobset_uid,
                "jobset.sigs.k8s.io/replicatedjob-name": job,
                "jobset.sigs.k8s.io/job-index": "0",
                "jobset.sigs.k8s.io/restart-attempt": str(attempt),
                "batch.kubernetes.io/job-completion-index": str(rank),
            },
            **(deleted or {}),
        },
        "spec": {"containers": [{"name": "node"}]},
        "status": {"containerStatuses": containers or [container_status(state or RUNNING)], **status},
    }


async def show_failure(client: KubeClient, namespace: str, name: str, *, message: str, attempt: int = 0) -> None:
    """Bring the pod and the JobSet of a TrainJob into the state in which kubelet and controllers leave them."""
    jobset = await client.get(JOBSETS, namespace, name)
    failed = pod(1, terminated(1, message=message, at=5 + attempt), attempt=attempt)
    own = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/jobset-uid": jobset["metadata"]["uid"]}
    labels = failed["metadata"]["labels"] | own
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": f"{name}-node-0", "uid": "1", "controller": True}]
    pod_name = f"{name}-node-0-1-{attempt}"
    metadata = {"name": pod_name, "namespace": namespace, "labels": labels, "ownerReferences": owners}
    spec = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "train:1"}]}
    await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    (status,) = failed["status"]["containerStatuses"]
    status |= {"image": "train:1", "imageID": "", "ready": False}
    state = {"status": {"phase": "Failed", "containerStatuses": [status]}}
    await client.patch(PODS, namespace, pod_name, state, subresource="status")
    await show_counts(client, namespace, name, restarts=attempt, active=1)
    await show_counts(client, namespace, name, restarts=attempt, failed=1)


async def show_counts(client: KubeClient, namespace: str, name: str, *, restarts: int = 0, **counts: int) -> None:
    """Have the JobSet of a TrainJob count so many Jobs."""
    jobs = [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}]
    status = {"status": {"replicatedJobsStatus": jobs, "restarts": restarts}}
    await client.patch(JOBSETS, namespace, name, status, subresource="status")


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
    async def starting(cls, *jobs: JsonObject) -> "FailingWorld":
        world = cls()
        world.put(trainjob_object(), runtime_object(*jobs))
        await world.reconcile()
        return world

    @classmethod
    async def running(cls) -> "FailingWorld":
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
    async def failed(cls) -> "FailingWorld":
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
