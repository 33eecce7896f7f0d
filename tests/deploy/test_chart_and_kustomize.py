"""The chart and the overlays make the same, and an upgrade of the chart keeps what it should."""

import asyncio
import copy
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from support.manifests import (
    NEEDS_HELM,
    NEEDS_KUBECTL,
    complete_chart,
    configuration_of,
    helm,
    identity,
    installed_runtimes,
    one,
    overlay,
    template,
)
from support.processes import DEFINITIONS
from support.stack import Stack, api_server

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import SECRETS, Resource
from trainmaster.runtime.jsontree import JsonObject

pytestmark = NEEDS_HELM

HELMS_LABELS = {
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
}
HELMS_ANNOTATIONS = {"helm.sh/resource-policy", "checksum/config"}
OURS = {"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/component"}

_VALUES: dict[str, JsonObject] = {
    "standalone": {},
    "ha": {"ha": {"enabled": True}},
    "cert-manager": {"certManager": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
    "network-policy": {"networkPolicy": {"enabled": True}},
    "history": {"manager": {"config": {"history": {"enabled": True}}}},
    "namespaced": {"manager": {"config": {"watchNamespaces": ["team-a", "team-b"]}}},
    "kubeflow-platform": {
        "manager": {"podAnnotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "8443,9443,10443"}}
    },
}

SAME = {name: {"userRoles": {"enabled": True}, **values} for name, values in _VALUES.items()}
"""Overlays, and the values with which the chart makes the same."""


def without_helm(tree: Any) -> Any:
    """Return an object as it is without what Helm's conventions add, in itself and in selectors and templates."""
    if isinstance(tree, list):
        return [without_helm(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    kept = {key: without_helm(each) for key, each in tree.items() if key not in HELMS_LABELS | HELMS_ANNOTATIONS}
    if kept.get("app.kubernetes.io/name") == "kubeflow-trainer":
        kept["app.kubernetes.io/name"] = "trainer"  # its name in the selectors of the original's chart
    if kept.get("annotations") == {}:
        del kept["annotations"]
    return kept


def normalised(obj: JsonObject, labels: set[str]) -> JsonObject:
    """Return an object of either for comparison: only those of our labels that `labels` has."""
    made: JsonObject = without_helm(copy.deepcopy(obj))
    mine = made["metadata"].pop("labels", {})
    made["metadata"]["labels"] = {key: value for key, value in mine.items() if key in labels or key not in OURS}
    if obj["kind"] == "Deployment":  # their order means nothing
        pod = made["spec"]["template"]["spec"]
        for mounting in (pod["volumes"], pod["containers"][0]["volumeMounts"]):
            mounting.sort(key=itemgetter("name"))
    if obj["kind"] == "ConfigMap" and "controller_manager_config.yaml" in obj["data"]:
        made["data"] = configuration_of({identity(obj): obj})
    return made


@NEEDS_KUBECTL[0]
@NEEDS_KUBECTL[1]
@pytest.mark.parametrize("name", SAME)
def test_the_chart_and_kustomize_make_the_same_objects(name: str) -> None:
    theirs, ours = overlay(name), template(**SAME[name])
    theirs.pop(("Namespace", "", "kubeflow"), None)  # helm has --create-namespace
    assert ours.keys() == theirs.keys()
    for key, obj in theirs.items():
        labels = set(obj["metadata"].get("labels", {}))
        assert normalised(ours[key], labels) == normalised(obj, labels)


@NEEDS_KUBECTL[0]
@NEEDS_KUBECTL[1]
def test_the_chart_and_kustomize_install_the_same_runtimes() -> None:
    assert installed_runtimes(template(runtimes={"defaultEnabled": True})) == overlay("runtimes")
    cache = {"enabled": True, "runtimes": {"torchDistributedWithCache": {"enabled": True}}}
    with_cache = template(runtimes={"defaultEnabled": True}, dataCache=cache)
    theirs = overlay("data-cache")
    role = theirs.pop(("ClusterRole", "", "kubeflow-trainer-cache-initializer"))
    assert installed_runtimes(with_cache) == theirs
    assert one(with_cache, "ClusterRole", "kubeflow-trainer-cache-initializer")["rules"] == role["rules"]


ORIGINAL = Path(__file__).parent / "original/chart"
RELEASE, NAMESPACE, NAME = "kubeflow-trainer", "kubeflow-system", "kubeflow-trainer-controller-manager"
CERTIFICATE = "kubeflow-trainer-webhook-cert"
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", namespaced=True)
SERVICES = Resource("", "v1", "Service", "services", namespaced=True)


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
        pod = (await spec(stack, DEPLOYMENTS))["template"]["spec"]
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
        left = {item["metadata"]["name"] for item in (await stack.client.list(DEFINITIONS))["items"]}
        assert "trainjobs.trainer.kubeflow.org" in left
