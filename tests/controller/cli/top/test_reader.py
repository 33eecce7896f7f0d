"""What is read of a cluster."""

from __future__ import annotations

import pytest
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.running_jobs import jobs
from support.team import Team
from support.top import node_object

from trainmaster.controller.cli.jobs.rows import JobRow
from trainmaster.controller.cli.probes import NODES
from trainmaster.controller.cli.top.reader import read_snapshot
from trainmaster.controller.cli.top.snapshot import Snapshot
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import JsonObject


def names(snapshot: Snapshot) -> set[str]:
    return {f"{each.kind} {each.namespace}/{each.name}" for each in snapshot.jobs}


def troubled(snapshot: Snapshot) -> JobRow:
    """The only job that something stands in the way of."""
    (row,) = [each for each in snapshot.jobs if each.trouble]
    return row


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist-node-0", "uid": "1"}


def pod(name: str, labels: dict[str, str], *, node: str = "", cpu: str = "1", owner: JsonObject = OWNER) -> JsonObject:
    container = {"name": "node", "image": "train:1", "resources": {"requests": {"cpu": cpu}}}
    spec: JsonObject = {"restartPolicy": "Never", "containers": [container]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "research", "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def rank(of: str, index: int) -> dict[str, str]:
    return {
        "jobset.sigs.k8s.io/jobset-name": of,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-completion-index": str(index),
    }


async def test_jobs_pods_and_nodes_are_read(both: tuple[Team, FaultyCluster]) -> None:
    team, _ = both
    client = team.client
    await team.submit("mnist", "true", nodes=2)
    await team.submit("rests", "true")
    await team.submit_v1("PyTorchJob", "mnist", {"Worker": (2, ["true"])})
    await client.create(NODES, node_object("gpu-1", cpu="8", memory="32Gi"))
    await client.create(PODS, pod("mnist-0", rank("mnist", 0), node="gpu-1", cpu="3"))
    await client.create(PODS, pod("log-shipper", rank("mnist", 2), owner={**OWNER, "kind": "ReplicaSet"}))
    await client.create(PODS, pod("mnist-1", rank("mnist", 1)))
    for name, message in (("log-shipper", "not ours"), ("mnist-1", "0/1 nodes")):
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status = {"phase": "Pending", "conditions": [waits]}
        await client.patch(PODS, team.name, name, {"status": status}, subresource="status")
    found = await read_snapshot(client, None)
    assert names(found) == {"TrainJob research/mnist", "TrainJob research/rests", "PyTorchJob research/mnist"}
    assert found.unread == []
    assert (troubled(found).kind, troubled(found).name) == ("TrainJob", "mnist")
    assert "0/1 nodes" in str(troubled(found).trouble)
    assert found.nodes is not None
    (node,) = found.nodes
    assert (node.name, {name: str(amount) for name, amount in node.requested.items()}) == ("gpu-1", {"cpu": "3"})
    # Pods that have ended ask for nothing.
    await client.patch(PODS, team.name, "mnist-0", {"status": {"phase": "Succeeded"}}, subresource="status")
    (node,) = (await read_snapshot(client, None)).nodes or ()
    assert node.requested == {}


async def test_a_worker_of_a_job_of_the_training_operator_that_waits_is_told(both: tuple[Team, FaultyCluster]) -> None:
    team, _ = both
    await team.submit_v1("PyTorchJob", "older", {"Worker": (1, ["true"])})
    await team.submit("older", "true")
    older = await team.client.get(jobs("PyTorchJob"), team.name, "older")
    owner = {**OWNER, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": older["metadata"]["uid"]}
    labels = {
        "training.kubeflow.org/job-name": "older",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    await team.client.create(PODS, pod("older-worker-0", labels, owner=owner))
    waiting = {"name": "node", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
               "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}  # fmt: skip
    status = {"phase": "Pending", "containerStatuses": [waiting]}
    await team.client.patch(PODS, team.name, "older-worker-0", {"status": status}, subresource="status")
    assert troubled(await read_snapshot(team.client, team.name)).kind == "PyTorchJob"


async def test_what_may_not_be_read_is_told(both: tuple[Team, FaultyCluster]) -> None:
    team, cluster = both
    await team.submit("mnist", "true")
    refusal = Refuse(403, message="eve cannot list it")
    with (
        cluster.faults.add(refusal, resource="nodes"),
        cluster.faults.add(refusal, resource="pods"),
        cluster.faults.add(refusal, resource="leases"),
    ):
        snapshot = await read_snapshot(team.client, team.name)
    assert names(snapshot) == {"TrainJob research/mnist"}
    assert (snapshot.nodes, snapshot.managers) == (None, None)
    pods = ("pods of TrainJobs", "pods of jobs of kubeflow.org/v1", "pods on nodes", "pods of managers")
    assert {line.partition(":")[0] for line in snapshot.unread} == {*pods, "nodes", "leases"}
    assert all("eve cannot list it" in line for line in snapshot.unread)
    with cluster.faults.add(refusal, resource="trainjobs"), pytest.raises(Forbidden):
        await read_snapshot(team.client, team.name)
