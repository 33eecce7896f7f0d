"""A release of the original's chart is upgraded to ours, rolled back, and uninstalled, on an API server."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
from support.charts import NEEDS_HELM, complete_chart, helm
from support.stack import Stack, api_server

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import SECRETS, Resource

pytestmark = NEEDS_HELM

ORIGINAL = Path(__file__).parent / "original/chart"
RELEASE, NAMESPACE, NAME = "kubeflow-trainer", "kubeflow-system", "kubeflow-trainer-controller-manager"
CERTIFICATE = "kubeflow-trainer-webhook-cert"
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", namespaced=True)
SERVICES = Resource("", "v1", "Service", "services", namespaced=True)
CRDS = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)


async def run(directory: Path, *arguments: str | Path) -> str:
    """Run helm against the cluster."""
    done = await asyncio.to_thread(
        helm, *arguments, "--namespace", NAMESPACE, KUBECONFIG=str(directory / "cluster/kubeconfig")
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def spec(stack: Stack, resource: Resource) -> dict[str, Any]:
    """The spec of an object of the manager."""
    found: dict[str, Any] = (await stack.client.get(resource, NAMESPACE, NAME))["spec"]
    return found


def without_checksum(deployment: dict[str, Any]) -> dict[str, Any]:
    """The spec of a Deployment, whatever it is annotated with."""
    made = copy.deepcopy(deployment)
    made["template"]["metadata"].pop("annotations", None)
    return made


async def test_an_upgrade_replaces_the_original_and_a_rollback_restores_it(tmp_path: Path) -> None:
    ours = complete_chart(tmp_path / "ours")
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a shared cluster is no place for another manager")
        await run(tmp_path, "install", RELEASE, ORIGINAL)
        before = {resource: await spec(stack, resource) for resource in (DEPLOYMENTS, SERVICES)}
        data = {"tls.crt": "YQ==", "ca.crt": "Yg=="}
        await stack.client.patch(SECRETS, NAMESPACE, CERTIFICATE, {"data": data}, field_manager="manager")

        notes = await run(tmp_path, "upgrade", RELEASE, ours, "--reset-values")
        assert "No built-in runtime is installed." in notes
        deployment = await spec(stack, DEPLOYMENTS)
        pod = deployment["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == "trainmaster:0.1.0"
        assert "command" not in container, "that of the original is none of our image's"
        assert {volume["name"] for volume in pod["volumes"]} == {"tmp", "serving-certs", "kubeflow-trainer-config"}
        assert {mount["name"] for mount in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        assert "initialDelaySeconds" not in container["livenessProbe"]
        assert (await stack.client.get(SECRETS, NAMESPACE, CERTIFICATE))["data"] == data
        names = {port["name"] for port in (await spec(stack, SERVICES))["ports"]}
        assert names == {"metrics", "webhook-server", "status-server"}

        await run(tmp_path, "rollback", RELEASE, "1")
        assert without_checksum(await spec(stack, DEPLOYMENTS)) == without_checksum(before[DEPLOYMENTS])
        assert (await spec(stack, SERVICES))["ports"] == before[SERVICES]["ports"]

        await run(tmp_path, "upgrade", RELEASE, ours, "--reset-values", "--set", "ha.enabled=true")
        assert (await spec(stack, DEPLOYMENTS))["replicas"] == 2
        await run(tmp_path, "uninstall", RELEASE)
        for resource in (DEPLOYMENTS, SERVICES):
            with pytest.raises(NotFound):
                await stack.client.get(resource, NAMESPACE, NAME)
        left = {item["metadata"]["name"] for item in (await stack.client.list(CRDS))["items"]}
        assert "trainjobs.trainer.kubeflow.org" in left
