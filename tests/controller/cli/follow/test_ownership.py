"""What belongs to a run of a TrainJob, and what to its predecessor of the same name."""

from __future__ import annotations

from typing import cast

import pytest
from support.failing_pods import pod
from support.followed_jobs import job_status

from trainmaster.controller.cli.follow.job_informers import Ownership, nodes_of
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

JOB = job_status("demo", namespace="team")


class Objects:
    """A client of a server with some objects."""

    def __init__(self, *objects: JsonObject, refusal: KubeError | None = None) -> None:
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in objects}
        self.refusal = refusal
        self.asked: list[str] = []

    async def get(self, resource: Resource, namespace: str, name: str) -> JsonObject:
        assert namespace == "team"
        self.asked.append(f"{resource.kind} {name}")
        if self.refusal is not None:
            raise self.refusal
        if (resource.kind, name) not in self.objects:
            raise NotFound(status=404)
        return self.objects[resource.kind, name]


def owned(kind: str, name: str, uid: str, *, by: tuple[str, str, str]) -> JsonObject:
    owner = dict(zip(("kind", "name", "uid"), by, strict=True)) | {"controller": True}
    metadata = {"name": name, "uid": uid, "creationTimestamp": "2024-01-01T00:00:00Z", "ownerReferences": [owner]}
    replicated = {"name": "node", "replicas": 2, "template": {"spec": {"completions": 3, "parallelism": 3}}}
    return {"kind": kind, "metadata": metadata, "spec": {"replicatedJobs": [replicated]}}


def event(kind: str, name: str, uid: str, *, created: str = "2024-01-01T00:00:00Z") -> JsonObject:
    return {"metadata": {"creationTimestamp": created}, "regarding": {"kind": kind, "name": name, "uid": uid}}


JOBSET = owned("JobSet", "demo", "JobSet-of-uid-1", by=("TrainJob", "demo", "uid-of-demo"))
CHILD = owned("Job", "demo-node-0", "job-1", by=("JobSet", "demo", "JobSet-of-uid-1"))


def ownership(server: Objects) -> Ownership:
    return Ownership(cast("KubeClient", server), {JOB.job.uid: JOB}.get)


async def test_pods_belong_to_the_job_that_owns_their_jobset() -> None:
    server = Objects(JOBSET)
    of = ownership(server)
    JOB.nodes = None
    assert await of.of_pod(pod(0), JOB) is JOB
    assert await of.of_pod(pod(1), JOB) is JOB
    assert server.asked == ["JobSet demo"]
    assert JOB.nodes == 6
    # Pods of another jobset of that name do not belong to it.
    assert await ownership(Objects(JOBSET)).of_pod(pod(0, jobset_uid="older"), JOB) is None
    assert await ownership(Objects()).of_pod(pod(0), JOB) is None
    foreign = owned("JobSet", "demo", "JobSet-of-uid-1", by=("TrainJob", "demo", "older"))
    server = Objects(foreign, owned("TrainJob", "demo", "uid-of-demo", by=("x", "x", "x")))
    assert await ownership(server).of_pod(pod(0), JOB) is None
    # A jobset without nodes tells nothing.
    assert nodes_of({"spec": {"replicatedJobs": []}}) is None


async def test_events_belong_to_the_job_that_owns_what_they_are_about() -> None:
    server = Objects(JOBSET, CHILD)
    of = ownership(server)
    assert await of.of_event(event("TrainJob", "demo", "uid-of-demo"), JOB) is JOB
    assert await of.of_event(event("Job", "demo-node-0", "job-1"), JOB) is JOB
    assert await of.of_event(event("Job", "demo-node-0", "job-0"), JOB) is None
    assert await of.of_event(event("TrainJob", "demo", "older"), JOB) is None
    asked = len(server.asked)
    assert await of.of_event(event("Job", "demo-node-0", "job-1"), JOB) is JOB
    assert len(server.asked) == asked


@pytest.mark.parametrize(("created", "belongs"), [("2023-12-31T23:59:59Z", False), ("2024-01-01T00:00:00Z", True)])
async def test_time_decides_where_owners_may_not_be_read(created: str, belongs: bool) -> None:
    of = ownership(Objects(refusal=Forbidden(status=403)))
    each = pod(0)
    each["metadata"]["creationTimestamp"] = created
    assert (await of.of_pod(each, JOB) is JOB) is belongs
    assert (await of.of_event(event("Job", "demo-node-0", "job-1", created=created), JOB) is JOB) is belongs
    assert (await of.of_event(event("PodGroup", "demo", "group", created=created), JOB) is JOB) is belongs
