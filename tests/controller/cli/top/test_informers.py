"""What is known of a cluster, and how it is kept current."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.proxy import FaultProxy
from support.running_jobs import jobs
from support.team import Team
from support.top import node_object
from support.training import until

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import JobRow, job_row
from trainmaster.controller.cli.probes import NODES
from trainmaster.controller.cli.top import job_table
from trainmaster.controller.cli.top.informers import ClusterInformers
from trainmaster.controller.cli.top.snapshot import Snapshot
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

KINDS = (TRAINJOBS, jobs("PyTorchJob"))


@asynccontextmanager
async def informers(team: Team, namespace: str | None = None) -> AsyncIterator[ClusterInformers]:
    async with ClusterInformers(team.client, namespace=namespace, kinds=KINDS) as made:
        await made.complete_snapshot()
        yield made


async def seen(of: ClusterInformers, holds: Callable[[Snapshot], Any]) -> Snapshot:
    """Wait until a snapshot is so; returns it."""

    async def look() -> Snapshot | None:
        snapshot = await of.snapshot()
        return snapshot if holds(snapshot) else None

    found: Snapshot = await until(look)
    return found


def requested(snapshot: Snapshot) -> Mapping[str, Quantity]:
    """What is asked of the only node."""
    assert snapshot.nodes is not None
    (node,) = snapshot.nodes
    return node.requested


def names(snapshot: Snapshot) -> set[str]:
    return {f"{each.kind} {each.namespace}/{each.name}" for each in snapshot.jobs}


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


async def test_jobs_pods_and_nodes_are_followed(
    both: tuple[Team, FaultyCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    team, _ = both
    client = team.client
    await team.submit("mnist", "true", nodes=2)
    await team.submit("rests", "true")
    await team.submit_v1("PyTorchJob", "mnist", {"Worker": (2, ["true"])})
    await client.create(NODES, node_object("gpu-1", cpu="8", memory="32Gi"))
    async with informers(team) as found:
        first = await found.snapshot()
        assert names(first) == {"TrainJob research/mnist", "TrainJob research/rests", "PyTorchJob research/mnist"}
        assert first.nodes is not None
        assert [each.name for each in first.nodes] == ["gpu-1"]
        assert first.is_complete
        assert first.unread == []

        looked_at: list[str] = []
        row = job_row

        def look(job: Job, *rest: Any) -> JobRow:
            looked_at.append(job.title)
            return row(job, *rest)

        monkeypatch.setattr(job_table, "job_row", look)
        await client.create(PODS, pod("mnist-0", rank("mnist", 0), node="gpu-1", cpu="3"))
        busy = await seen(found, requested)
        assert {name: str(amount) for name, amount in requested(busy).items()} == {"cpu": "3"}
        has_no_node = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        status = {"phase": "Pending", "conditions": [has_no_node]}
        others = pod("log-shipper", rank("mnist", 2), owner={**OWNER, "kind": "ReplicaSet"})
        await client.create(PODS, others)
        waits = {"conditions": [{**has_no_node, "message": "not ours"}], "phase": "Pending"}
        await client.patch(PODS, team.name, "log-shipper", {"status": waits}, subresource="status")
        await client.create(PODS, pod("mnist-1", rank("mnist", 1)))
        await client.patch(PODS, team.name, "mnist-1", {"status": status}, subresource="status")
        stuck = await seen(found, lambda each: any(job.trouble for job in each.jobs))
        (troubled,) = [each for each in stuck.jobs if each.trouble]
        assert (troubled.kind, troubled.name) == ("TrainJob", "mnist")
        assert troubled.trouble is not None
        assert "0/1 nodes" in troubled.trouble.text
        assert "not ours" not in troubled.trouble.text
        assert set(looked_at) == {"TrainJob research/mnist"}

        await client.patch(PODS, team.name, "mnist-0", {"status": {"phase": "Succeeded"}}, subresource="status")
        await seen(found, lambda each: not requested(each))
        await client.delete(TRAINJOBS, team.name, "mnist")
        await seen(found, lambda each: names(each) == {"TrainJob research/rests", "PyTorchJob research/mnist"})
        await client.delete(jobs("PyTorchJob"), team.name, "mnist")
        await seen(found, lambda each: names(each) == {"TrainJob research/rests"})
        assert len(looked_at) < 10


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
    async with informers(team, team.name) as found:
        snapshot = await seen(found, lambda each: any(job.trouble for job in each.jobs))
    assert [each.kind for each in snapshot.jobs if each.trouble] == ["PyTorchJob"]


async def test_what_may_not_be_read_is_told_with_the_right_that_is_missing(both: tuple[Team, FaultyCluster]) -> None:
    team, cluster = both
    await team.submit("mnist", "true")
    refusal = Refuse(403, message="eve cannot list it")
    with (
        cluster.faults.add(refusal, resource="nodes"),
        cluster.faults.add(refusal, resource="pods"),
        cluster.faults.add(refusal, resource="leases"),
    ):
        async with informers(team, team.name) as found:
            snapshot = await found.snapshot()
    assert names(snapshot) == {"TrainJob research/mnist"}
    assert snapshot.nodes is None
    assert snapshot.managers is None
    told = {line.partition(":")[0]: line for line in snapshot.unread}
    assert set(told) == {
        "leases.coordination.k8s.io",
        "nodes",
        "pods of TrainJobs, pods of jobs of kubeflow.org/v1",
        "pods of managers, pods on nodes",
    }
    granted = 'grant the verbs list and watch on the resource "nodes" of the API group "" by a ClusterRole'
    assert granted in told["nodes"]
    assert 'by a Role in namespace "research"' in told["pods of TrainJobs, pods of jobs of kubeflow.org/v1"]
    assert "a ClusterRole" in told["pods of managers, pods on nodes"]


async def test_a_right_that_is_given_later_is_noticed(both: tuple[Team, FaultyCluster]) -> None:
    team, cluster = both
    await team.client.create(NODES, node_object("gpu-1", cpu="8"))
    refusal = cluster.faults.add(Refuse(403), resource="nodes")
    async with informers(team) as found:
        assert (await found.snapshot()).nodes is None
        refusal.remove()
        snapshot = await seen(found, lambda each: each.nodes)
        assert snapshot.unread == []


async def test_a_cluster_that_is_away_is_told_and_what_was_known_stays(both: tuple[Team, FaultyCluster]) -> None:
    team, _ = both
    await team.submit("mnist", "true")
    address = urlsplit(team.client.config.server)
    async with await FaultProxy.start(str(address.hostname), address.port or 0) as network:
        config = replace(team.client.config, server=f"https://127.0.0.1:{network.port}")
        async with (
            KubeClient(config, user_agent="test", tries=1) as client,
            ClusterInformers(client, namespace=None, kinds=KINDS) as found,
        ):
            await found.complete_snapshot()
            network.cut(True)
            away = await seen(found, lambda each: each.outage)
            assert names(away) == {"TrainJob research/mnist"}
            network.cut(False)
            back = await seen(found, lambda each: not each.outage)
            assert names(back) == {"TrainJob research/mnist"}
            await team.submit("later", "true")
            await seen(found, lambda each: "TrainJob research/later" in names(each))
