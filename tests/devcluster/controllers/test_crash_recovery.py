"""All controllers together, with writes that fail at random and restarts in between: the end is always the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from support.devcluster.stepper import Stepper
from support.disk import BrittleStore
from support.workloads import add_node

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, CRDS, JOBS, JOBSETS, PODS, SECRETS, SERVICES
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject, copy_tree


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of failures are logged, and all of them are meant."""
    with capture_logs():
        yield


def manifest() -> JsonObject:
    pod: JsonObject = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 1, "template": {"spec": pod}}
    node = {"name": "node", "replicas": 2, "template": {"spec": copy_tree(job)}}
    node["dependsOn"] = [{"name": "init", "status": "Complete"}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {
            "replicatedJobs": [{"name": "init", "replicas": 1, "template": {"spec": copy_tree(job)}}, node],
            "failurePolicy": {"maxRestarts": 2},
        },
    }


def start(cluster: Stepper) -> None:
    for controller in (GarbageCollector, JobController, JobSetController, Scheduler):
        cluster.start(controller(cluster.api))


async def unsteady(cluster: Stepper, store: BrittleStore) -> None:
    """Let a minute pass in which much goes wrong, then one in which nothing does."""
    store.failure_rate = 0.3
    for _ in range(3):
        await cluster.advance(20)
        cluster.stop()
        start(cluster)
    store.failure_rate = 0.0
    for pod in cluster.objects(PODS):
        if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
            await cluster.end_pod(pod)
    await cluster.advance(60)


async def end_pods(cluster: Stepper, store: BrittleStore, job: str, phase: str, *, limit: int | None = None) -> None:
    pods = [
        pod
        for pod in cluster.objects(PODS)
        if pod["metadata"]["labels"]["job-name"] == job and pod["status"]["phase"] == "Pending"
    ]
    assert pods, f"{job} has no pods"
    for pod in pods[:limit]:
        cluster.stop()  # so that the change is not dealt with before things begin to fail
        await cluster.set_pod(pod, phase)
        start(cluster)
        await unsteady(cluster, store)


@pytest.mark.parametrize("seed", range(5))
async def test_the_end_is_the_same_whatever_fails_on_the_way(seed: int, jobset_definition: JsonObject) -> None:
    store = BrittleStore(random.Random(seed))
    cluster = Stepper(store=store)
    await cluster.namespace("default")
    await cluster.api.create(CRDS, jobset_definition)
    await add_node(cluster, "n", {"cpu": "64"})
    start(cluster)
    await cluster.api.create(JOBSETS, manifest(), namespace="default")
    await unsteady(cluster, store)

    await end_pods(cluster, store, "js-init-0", "Failed", limit=1)
    init = cluster.api.get(JOBS, "default", "js-init-0")
    assert init["status"]["failed"] == 1
    await end_pods(cluster, store, "js-init-0", "Succeeded")
    assert [job["metadata"]["name"] for job in cluster.objects(JOBS)] == ["js-init-0", "js-node-0", "js-node-1"]

    await end_pods(cluster, store, "js-node-1", "Failed")
    jobset = cluster.api.get(JOBSETS, "default", "js")
    assert (jobset["status"]["restarts"], jobset["status"]["restartsCountTowardsMax"]) == (1, 1)

    for job in ("js-init-0", "js-node-0", "js-node-1"):
        await end_pods(cluster, store, job, "Succeeded")
    jobset = cluster.api.get(JOBSETS, "default", "js")
    assert jobset["status"]["terminalState"] == "Completed"
    assert jobset["status"]["restarts"] == 1
    assert [job["status"].get("failed", 0) for job in cluster.objects(JOBS)] == [0, 0, 0]

    cluster.stop()
    await cluster.delete(JOBSETS, "js", propagation="Foreground")
    start(cluster)
    await unsteady(cluster, store)
    assert (cluster.objects(JOBS), cluster.objects(PODS), cluster.objects(SERVICES)) == ([], [], [])


async def test_a_collector_finds_what_was_deleted_before_it_started(cluster: Stepper) -> None:
    root = await cluster.api.create(CONFIGMAPS, {"metadata": {"name": "root"}}, namespace="default")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
    child = {"metadata": {"name": "child", "ownerReferences": [owner]}}
    await cluster.api.create(SECRETS, child, namespace="default")
    await cluster.api.delete(CONFIGMAPS, "default", "root")
    cluster.start(GarbageCollector(cluster.api))
    await cluster.settle()
    assert cluster.objects(SECRETS) == []
