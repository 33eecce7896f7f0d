"""What is rendered, applied by kubectl: all of it is accepted; the original's objects are replaced, and restored."""

import copy
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.kubectl import Kubectl
from support.manifests import (
    DEPLOY,
    MANAGER,
    NEEDS_HELM,
    NEEDS_KUBECTL,
    OVERLAYS,
    by_identity,
    kustomize,
    one,
    overlay,
    template,
)
from support.stack import api_server

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import SECRETS, Resource
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

pytestmark = [*NEEDS_KUBECTL, pytest.mark.asyncio(loop_scope="module")]

HERE = Path(__file__).parent
GUIDE = (DEPLOY.parent / "docs/install.md").read_text()
DEFINITIONS = HERE / "foreign_definitions.yaml"
NAMESPACE = "kubeflow-system"
CERTIFICATE = "kubeflow-trainer-webhook-cert"


NAMED: list[JsonObject] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("team-a", "team-b")
]
"""The namespaces of the overlay `namespaced`."""


class Server(Kubectl):
    """An API server, and kubectl."""

    def __init__(self, directory: Path, client: KubeClient) -> None:
        super().__init__(directory / "cluster/kubeconfig", directory)
        self.client = client

    async def of_manager(self, kind: str, name: str = MANAGER) -> JsonObject:
        """Return an object of the manager's namespace."""
        return await self.get(kind, name, "-n", NAMESPACE)

    async def names(self, kinds: Iterable[tuple[str, str]]) -> set[str]:
        """Return the names of all objects of some kinds, with their kinds."""
        wanted = ",".join(f"{kind}.{version.partition('/')[0]}" if "/" in version else kind for version, kind in kinds)
        printed = await self("get", wanted, "--all-namespaces", "--ignore-not-found", "-o", "name")
        return {re.sub(r"\.[^/]*/", "/", line) for line in printed.splitlines()}

    async def forget(self) -> None:
        """Delete what a manager is deployed by."""
        kinds = "deployments,services,serviceaccounts,configmaps,secrets,poddisruptionbudgets"
        await self("delete", kinds, "--all", "-n", NAMESPACE, "--wait")


@asynccontextmanager
async def an_api_server(directory: Path, *, definitions: bool = True) -> AsyncIterator[Server]:
    async with api_server(directory, definitions=definitions) as stack:
        if stack.cluster is None:
            pytest.skip("a shared cluster is no place for another manager")
        yield Server(directory, stack.client)


def original(version: str) -> Path:
    """The original's manager, which is applied as its guide says."""
    return HERE / f"original/manager-{version}.yaml"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with an_api_server(tmp_path_factory.mktemp("apply")) as running:
        await running.apply(document for _, document in load_yaml_documents(DEFINITIONS.read_bytes()))
        await running.apply(NAMED)
        yield running


@pytest.mark.parametrize("name", OVERLAYS)
async def test_every_object_of_an_overlay_is_accepted(name: str, server: Server) -> None:
    objects = overlay(name)
    assert len(await server.apply(objects.values())) == len(objects)


@NEEDS_HELM[0]
async def test_every_object_of_the_chart_is_accepted(server: Server) -> None:
    everything = {"enabled": True}
    objects = template(
        ha=everything,
        certManager=everything,
        monitoring=everything,
        networkPolicy=everything,
        userRoles=everything,
        dataCache={**everything, "runtimes": {"torchDistributedWithCache": everything}},
        runtimes={"defaultEnabled": True},
    )
    assert {"Job", "NetworkPolicy", "ServiceMonitor", "Issuer"} <= {kind for kind, *_ in objects}
    # Its selector is another one than that of the overlays.
    await server("delete", "deployment", MANAGER, "-n", "kubeflow", "--ignore-not-found")
    assert len(await server.apply(objects.values())) == len(objects)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template", "spec", "containers", 0)),
        ("NetworkPolicy", ("spec",)),
        ("PodDisruptionBudget", ("spec",)),
        ("Certificate", ("spec", "issuerRef")),
        ("ServiceMonitor", ("spec", "endpoints", 0, "tlsConfig")),
    ],
)
async def test_a_field_that_is_misspelt_would_be_refused(kind: str, path: tuple[Any, ...], server: Server) -> None:
    """Without that the tests above would say little."""
    name = {"NetworkPolicy": "network-policy", "Certificate": "cert-manager", "ServiceMonitor": "monitoring"}
    objects = overlay(name.get(kind, "standalone"))
    obj = next(copy.deepcopy(obj) for (each, *_), obj in objects.items() if each == kind)
    place: Any = obj
    for step in path:
        place = place[step]
    place["misspelt"] = "x"
    command = ("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-")
    assert "misspelt" in await server(*command, stdin=json.dumps(obj), code=1)


async def test_one_apply_is_all_that_the_standalone_overlay_needs(tmp_path: Path) -> None:
    """Also on a cluster that serves none of the kinds yet."""
    async with an_api_server(tmp_path, definitions=False) as server:
        for name, objects in (("standalone", len(overlay("standalone"))), ("runtimes", 8)):
            printed = await server("apply", "--server-side", "-k", str(DEPLOY / "overlays" / name))
            assert len(printed.splitlines()) == objects, printed


async def test_what_the_guide_removes_leaves_nothing_over(tmp_path: Path) -> None:
    """First all but the definitions and their objects, then these."""
    keeping, deleting = re.findall(r"```sh\n(.*?)\n```", GUIDE.partition("## Removing it")[2], re.DOTALL)
    names = ["standalone", "network-policy", "monitoring", "namespaced"]
    kinds = {(obj["apiVersion"], kind) for name in names for (kind, *_), obj in overlay(name).items()}
    async with an_api_server(tmp_path, definitions=False) as server:
        await server.apply(document for _, document in load_yaml_documents(DEFINITIONS.read_bytes()))
        await server.apply(NAMED)
        before = await server.names(kinds)
        for name in names:
            await server.apply(overlay(name).values())
        await server.apply(overlay("runtimes").values())
        assert len(await server.names(kinds) - before) > 20
        for command in keeping.splitlines():
            await server(*command.split()[1:])
        left = await server.names(kinds) - before
        definitions = {f"customresourcedefinition/{each['metadata']['name']}" for each in kustomize(DEPLOY / "crds")}
        foreign = {f"{kind}/{MANAGER}" for kind in ("servicemonitor", "prometheusrule")}
        assert left == definitions | foreign
        (command,) = deleting.splitlines()
        await server(*command.replace("deploy/", f"{DEPLOY}/").split()[1:])
        assert await server.names(kinds) - before == foreign


def ours() -> list[JsonObject]:
    """What replaces the original's manager, in its namespace; definitions are none of that."""
    kinds = {"Deployment", "Service", "ServiceAccount", "ConfigMap", "Secret", "PodDisruptionBudget"}
    return [obj for obj in kustomize(DEPLOY / "base") if obj["kind"] in kinds]


@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_ours_replaces_the_original_by_one_apply(version: str, server: Server) -> None:
    await server.forget()
    await server.apply(ours())
    fresh = {kind: await server.of_manager(kind) for kind in ("deployment", "service")}
    await server.forget()

    await server("apply", "-f", str(original(version)))
    certificate = {"data": {"tls.crt": "YQ==", "ca.crt": "Yg=="}}
    await server.client.patch(SECRETS, NAMESPACE, CERTIFICATE, certificate, field_manager="manager")
    uid = (await server.of_manager("deployment"))["metadata"]["uid"]
    await server.apply(ours())

    deployment = await server.of_manager("deployment")
    assert deployment["metadata"]["uid"] == uid
    assert deployment["spec"] == fresh["deployment"]["spec"], "nothing of the original is left"
    service = await server.of_manager("service")
    assert service["spec"]["selector"] == fresh["service"]["spec"]["selector"]
    assert service["spec"]["ports"] == fresh["service"]["spec"]["ports"]
    configuration = (await server.of_manager("configmap", "kubeflow-trainer-config"))["data"]
    assert configuration == one(by_identity(ours()), "ConfigMap", "kubeflow-trainer-config")["data"]
    assert (await server.of_manager("secret", CERTIFICATE))["data"] == certificate["data"]


@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_what_another_tool_applied_is_replaced_as_well(version: str, server: Server) -> None:
    """A manager of fields other than kubectl's leaves what ours does not name: it must do no harm."""
    await server.forget()
    for document in yaml.safe_load_all(original(version).read_text()):
        resource = {"Deployment": ("apps/v1", "deployments")}.get(
            document["kind"], ("v1", f"{document['kind'].lower()}s")
        )
        group, _, api = resource[0].rpartition("/")
        kind = Resource(group, api, document["kind"], resource[1], namespaced=True)
        await server.client.create(kind, document, field_manager="tool")
    await server.apply(ours())
    check_that_ours_works(await server.of_manager("deployment"))
    ports = {port["name"]: port["targetPort"] for port in (await server.of_manager("service"))["spec"]["ports"]}
    assert (
        ports.items() >= {"webhook-server": "webhook", "metrics": "metrics", "status-server": "status-server"}.items()
    )


def check_that_ours_works(deployment: JsonObject) -> None:
    """Check what the manager needs, whatever else is there."""
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (expected,) = one(by_identity(ours()), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == expected["image"]
    assert container["args"] == expected["args"]
    assert "command" not in container
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    serving = mounts["/tmp/k8s-webhook-server/serving-certs"]
    assert not serving.get("readOnly"), "the manager writes its certificate there"
    assert volumes[serving["name"]]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}
    assert all(len(volume) == 2 for volume in volumes.values()), "a volume is of one type"
    for name in ("startup", "liveness", "readiness"):
        probe = {**container[f"{name}Probe"]}
        assert probe["httpGet"].items() >= expected[f"{name}Probe"]["httpGet"].items()
    assert pod["automountServiceAccountToken"] is True


@pytest.mark.parametrize("options", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"])
@pytest.mark.parametrize("version", ["2.1", "2.3"])
@pytest.mark.parametrize("before", [True, False], ids=["after-the-original", "from-scratch"])
async def test_the_original_comes_back(*, before: bool, version: str, options: tuple[str, ...], server: Server) -> None:
    await server.forget()
    if before:
        await server("apply", "-f", str(original(version)))
    await server.apply(ours())
    await server("apply", *options, "-f", str(original(version)))
    theirs = {document["kind"]: document for document in yaml.safe_load_all(original(version).read_text())}
    pod = (await server.of_manager("deployment"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (expected,) = theirs["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == expected["image"]
    assert container["args"] == expected["args"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in expected["volumeMounts"]:
        assert mounts[mount["mountPath"]] == mount
    assert volumes["cert"]["secret"]["secretName"] == CERTIFICATE
    for name in ("liveness", "readiness"):
        probe = container[f"{name}Probe"]
        assert {key: probe[key] for key in ("initialDelaySeconds", "periodSeconds", "timeoutSeconds")} == {
            key: each for key, each in expected[f"{name}Probe"].items() if key != "httpGet"
        }
        assert probe["httpGet"].items() >= expected[f"{name}Probe"]["httpGet"].items()
    # Its manager needs the token that only our pods ask for by themselves.
    account = await server.of_manager("serviceaccount")
    assert pod.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    service = (await server.of_manager("service"))["spec"]
    ports = {port["port"]: port["targetPort"] for port in service["ports"]}
    assert ports.items() >= {port["port"]: port["targetPort"] for port in theirs["Service"]["spec"]["ports"]}.items()
    assert (await server.of_manager("configmap", "kubeflow-trainer-config"))["data"] == theirs["ConfigMap"]["data"]
