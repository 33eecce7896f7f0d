"""TrainJobs whose pods start together, on a whole cluster with both gang schedulers and real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import client_of
from support.golden import POD_GROUPS, VOLCANO_POD_GROUPS
from support.objects import replicated_job
from support.training import RENDEZVOUS, apply_runtime, ended, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

SCHEDULERS = pytest.mark.parametrize(
    ("scheduler", "resource", "name"),
    [("coscheduling", POD_GROUPS, "scheduler-plugins-scheduler"), ("volcano", VOLCANO_POD_GROUPS, "volcano")],
    ids=["coscheduling", "volcano"],
)


@pytest.fixture
async def client(cluster_home: Path) -> AsyncIterator[KubeClient]:
    async with client_of(cluster_home / ".trainmaster" / "kubeconfig") as client:
        yield client


def runtime(
    name: str, scheduler: str, *jobs: JsonObject, policy: JsonObject | None = None, pod_scheduler: str | None = None
) -> JsonObject:
    """A ClusterTrainingRuntime for a gang scheduler."""
    for job in jobs:
        job["template"]["spec"]["backoffLimit"] = 0
        pod = job["template"]["spec"]["template"]["spec"]
        pod |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        if pod_scheduler:
            pod["schedulerName"] = pod_scheduler
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": policy or {"numNodes": 1, "torch": {}},
            "podGroupPolicy": {scheduler: {}},
            "template": {"spec": {"replicatedJobs": list(jobs)}},
        },
    }


def step(name: str, command: list[str], *, ancestor: str | None, container: str = "node", **fields: Any) -> JsonObject:
    containers = [{"name": container, "image": "none", "command": command}]
    return replicated_job(name, ancestor=ancestor, containers=containers, **fields)


def initializer(kind: str, command: list[str]) -> JsonObject:
    job = step(f"{kind}-initializer", command, ancestor=f"{kind}-initializer", container=f"{kind}-initializer")
    pod = job["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "initializer", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "initializer", "mountPath": f"/workspace/{kind}"}]
    return job


@pytest.mark.defect("B10")
@SCHEDULERS
async def test_a_gang_with_initializers_runs_to_its_end(
    client: KubeClient, tmp_path: Path, scheduler: str, resource: Resource, name: str
) -> None:
    """B10: the quorum counted the initializers, so that they waited for the trainer, and it for them, for ever."""
    kinds = ("dataset", "model")
    initializers = [initializer(kind, ["touch", str(tmp_path / kind)]) for kind in kinds]
    complete = [{"name": each["name"], "status": "Complete"} for each in initializers]
    node = step("node", ["true"], ancestor="trainer", dependsOn=complete)
    await apply_runtime(client, runtime(f"staged-{scheduler}", scheduler, *initializers, node, pod_scheduler=name))
    job = f"staged-on-{scheduler}"
    initialized = f"import os\nassert {{'dataset', 'model'}} <= set(os.listdir({str(tmp_path)!r}))\n"
    trainer = {"numNodes": 3, "command": python(initialized + RENDEZVOUS), "env": [{"name": "JOB", "value": job}]}
    sources = {kind: {"storageUri": f"hf://acme/{kind}"} for kind in kinds}
    asked = trainjob(job, on=f"staged-{scheduler}", trainer=trainer, initializer=sources)
    await client.create(TRAINJOBS, asked)
    assert (await ended(client, job))["type"] == "Complete"
    assert (await client.get(resource, "default", job))["spec"]["minMember"] == 3
    done = {"coscheduling": "Finished", "volcano": "Completed"}[scheduler]

    async def is_done() -> bool:
        return bool((await client.get(resource, "default", job)).get("status", {}).get("phase") == done)

    await until(is_done)
