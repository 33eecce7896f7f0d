"""TrainJobs whose pods start together, on a whole cluster with both gang schedulers and real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import client_of
from support.golden import POD_GROUPS, VOLCANO_POD_GROUPS
from support.objects import replicated_job
from support.stack import api_server, manager
from support.training import RENDEZVOUS, apply_runtime, conditions, ended, pods, python, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    install_definitions,
)
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


@pytest.mark.defect("B10")
@SCHEDULERS
async def test_a_launcher_follows_its_gang_of_nodes(
    client: KubeClient, scheduler: str, resource: Resource, name: str
) -> None:
    node = step("node", ["true"], ancestor=None)
    launcher = step("launcher", ["true"], ancestor="trainer", dependsOn=[{"name": "node", "status": "Ready"}])
    policy = {"mpi": {"runLauncherAsNode": True}}
    on = f"launched-{scheduler}"
    await apply_runtime(client, runtime(on, scheduler, node, launcher, policy=policy, pod_scheduler=name))
    await client.create(TRAINJOBS, trainjob(on, on=on, trainer={"numNodes": 3}))
    assert (await ended(client, on))["type"] == "Complete"
    assert (await client.get(resource, "default", on))["spec"]["minMember"] == 2


@SCHEDULERS
async def test_a_gang_that_does_not_fit_as_a_whole_starts_none_of_its_pods(
    client: KubeClient, scheduler: str, resource: Resource, name: str
) -> None:
    on = f"wide-{scheduler}"
    await apply_runtime(client, runtime(on, scheduler, step("node", ["true"], ancestor="trainer"), pod_scheduler=name))
    # Each pod would fit, all together do not.
    share = {"numNodes": 3, "resourcesPerNode": {"requests": {"memory": f"{await _memory(client) * 2 // 5}"}}}
    await client.create(TRAINJOBS, trainjob(on, on=on, trainer=share))

    async def told() -> list[JsonObject]:
        found = await pods(client, on)
        reasons = [c.get("reason") for pod in found for c in pod.get("status", {}).get("conditions", [])]
        return found if reasons.count("Unschedulable") == 3 else []

    assert not [pod for pod in await until(told) if pod["spec"].get("nodeName")]
    await client.delete(TRAINJOBS, "default", on)


async def _memory(client: KubeClient) -> int:
    nodes = await client.list(Resource("", "v1", "Node", "nodes", namespaced=False))
    amount: str = nodes["items"][0]["status"]["allocatable"]["memory"]
    return int(amount.removesuffix("Ki")) * (1024 if amount.endswith("Ki") else 1)


@pytest.mark.defect("U17")
async def test_a_scheduler_that_is_installed_later_is_used(tmp_path: Path) -> None:
    """U17: the original had to be restarted."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        await install_definitions(stack.cluster.api, (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS))
        async with manager(stack.access):
            on = runtime("late", "coscheduling", step("node", ["true"], ancestor="trainer"))
            await apply_runtime(stack.client, on)
            await stack.client.create(TRAINJOBS, trainjob("waits", on="late"))

            async def blocked() -> JsonObject | None:
                return (await conditions(stack.client, "waits")).get("Blocked")

            served = "the cluster does not serve PodGroup (scheduling.x-k8s.io/v1alpha1); install the CustomResource"
            assert served in (await until(blocked))["message"]
            with pytest.raises(NotFound):
                await stack.client.get(JOBSETS, "default", "waits")
            await install_definitions(stack.cluster.api, GANG_DEFINITIONS)

            async def built() -> bool:
                found = (await stack.client.list(JOBSETS, "default"))["items"]
                return bool(found) and not await blocked()

            await until(built)
            group = await stack.client.get(POD_GROUPS, "default", "waits")
            assert group["spec"]["minMember"] == 1
