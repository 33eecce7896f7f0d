"""The Jobs of the chart that install and remove runtimes, run by the kubelet with their own account."""

import json
from pathlib import Path

import pytest
from support.deployed import Deployed, deployed, rendered
from support.manifests import NEEDS_HELM, overlay, template

from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [*NEEDS_HELM, pytest.mark.kubectl, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

INSTALLER = "kubeflow-trainer-runtimes-installer"


async def done(cluster: Deployed, job: JsonObject) -> None:
    """Run a Job to its end."""
    await cluster.apply(json.dumps(job))
    name = job["metadata"]["name"]
    await cluster.kubectl("wait", "-n", "kubeflow", f"job/{name}", "--for=condition=Complete", "--timeout=90s")


async def test_runtimes_are_installed_and_removed(tmp_path: Path) -> None:
    objects = {key: obj for key, obj in template(runtimes={"defaultEnabled": True}).items() if INSTALLER in key[2]}
    jobs = {name: objects.pop((kind, namespace, name)) for kind, namespace, name in list(objects) if kind == "Job"}
    async with deployed(tmp_path, rendered("standalone")) as cluster:
        await cluster.apply("\n".join(json.dumps(obj) for obj in objects.values()))
        await done(cluster, jobs[INSTALLER])
        installed = {each["metadata"]["name"] for each in await cluster.items(CLUSTER_TRAINING_RUNTIMES)}
        assert installed == {name for *_, name in overlay("runtimes")}
        await done(cluster, jobs[f"{INSTALLER}-cleanup"])
        assert await cluster.items(CLUSTER_TRAINING_RUNTIMES) == []
