"""What is rendered, applied by kubectl: all of it is accepted; the original's objects are replaced, and restored."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.charts import NEEDS_HELM, template
from support.manifests import DEPLOY, MANAGER, NEEDS_KUBECTL, OVERLAYS, by_identity, kustomize, one, overlay
from support.stack import api_server

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import SECRETS, Resource
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

pytestmark = [
    *NEEDS_KUBECTL,
    pytest.mark.asyncio(loop_scope="module"),
]

HERE = Path(__file__).parent
GUIDE = (DEPLOY.parent / "docs/install.md").read_text()
DEFINITIONS = HERE / "foreign_definitions.yaml"
NAMESPACE = "kubeflow-system"
CERTIFICATE = "kubeflow-trainer-webhook-cert"


NAMED: list[JsonObject] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("team-a", "team-b")
]
"""The namespaces of the overlay `namespaced`."""


class Server:
    """An API server, and kubectl."""

    def __init__(self, kubeconfig: Path, client: KubeClient) -> None:
        self._kubeconfig = kubeconfig
        self.client = client

    async def kubectl(self, *arguments: str | Path, objects: Iterable[JsonObject] = ()) -> tuple[int, str, str]:
        """Run it; returns its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *map(str, arguments)),
            env={"HOME": str(self._kubeconfig.parent), "PATH": os.environ["PATH"], "KUBECONFIG": str(self._kubeconfig)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        content = "\n".join(map(json.dumps, objects)).encode()
        out, err = await process.communicate(content)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def apply(self, objects: Iterable[JsonObject], *options: str) -> list[str]:
        """Apply objects on the server, strictly; returns a line for each."""
        command = ("apply", "--server-side", "--force-conflicts", "--validate=strict", *options, "-f", "-")
        code, out, err = await self.kubectl(*command, objects=objects)
        assert code == 0, err
        assert err == ""
        return out.splitlines()

    async def apply_original(self, version: str) -> None:
        """Apply the original's manager as its guide says."""
        code, _, err = await self.kubectl("apply", "-f", HERE / f"original/manager-{version}.yaml")
        assert code == 0, err

    async def get(self, kind: str, name: str = MANAGER) -> JsonObject:
        """Return an object."""
        code, out, err = await self.kubectl("get", kind, name, "-n", NAMESPACE, "-o", "json")
        assert code == 0, err
        found: JsonObject = json.loads(out)
        return found

    async def names(self, kinds: Iterable[tuple[str, str]]) -> set[str]:
        """Return the names of all objects of some kinds, with their kinds."""
        wanted = ",".join(f"{kind}.{version.partition('/')[0]}" if "/" in version else kind for version, kind in kinds)
        code, out, err = await self.kubectl("get", wanted, "--all-namespaces", "--ignore-not-found", "-o", "name")
        assert code == 0, err
        return {re.sub(r"\.[^/]*/", "/", line) for line in out.splitlines()}

    async def forget(self) -> None:
        """Delete what a manager is deployed by."""
        kinds = "deployments,services,serviceaccounts,configmaps,secrets,poddisruptionbudgets"
        code, _, err = await self.kubectl("delete", kinds, "--all", "-n", NAMESPACE, "--wait")
        assert code == 0, err


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("apply")
    async with api_server(directory) as stack:
        if stack.cluster is None:
            pytest.skip("a shared cluster is no place for another manager")
        running = Server(directory / "cluster/kubeconfig", stack.client)
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
    await server.kubectl("delete", "deployment", MANAGER, "-n", "kubeflow", "--ignore-not-found")
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
    code, _, err = await server.kubectl(*command, objects=[obj])
    assert code == 1
    assert "misspelt" in err


async def test_one_apply_is_all_that_the_standalone_overlay_needs(tmp_path: Path) -> None:
    """Also on a cluster that serves none of the kinds yet."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a shared cluster is no place for another manager")
        server = Server(tmp_path / "cluster/kubeconfig", stack.client)
        directory = DEPLOY / "overlays/standalone"
        code, out, err = await server.kubectl("apply", "--server-side", "-k", directory)
        assert code == 0, err
        assert err == ""
        assert len(out.splitlines()) == len(overlay("standalone"))
        code, out, err = await server.kubectl("apply", "--server-side", "-k", DEPLOY / "overlays/runtimes")
        assert code == 0, err
        assert err == ""
        assert len(out.splitlines()) == 8


async def test_what_the_guide_removes_leaves_nothing_over(tmp_path: Path) -> None:
    """First all but the definitions and their objects, then these."""
    keeping, deleting = re.findall(r"```sh\n(.*?)\n```", GUIDE.partition("## Removing it")[2], re.DOTALL)
    names = ["standalone", "network-policy", "monitoring", "namespaced"]
    kinds = {(obj["apiVersion"], kind) for name in names for (kind, *_), obj in overlay(name).items()}
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("a shared cluster is no place for another manager")
        server = Server(tmp_path / "cluster/kubeconfig", stack.client)
        await server.apply(document for _, document in load_yaml_documents(DEFINITIONS.read_bytes()))
        await server.apply(NAMED)
        before = await server.names(kinds)
        for name in names:
            await server.apply(overlay(name).values())
        await server.apply(overlay("runtimes").values())
        after = await server.names(kinds)
        assert len(after - before) > 20
        for command in keeping.splitlines():
            code, _, err = await server.kubectl(*command.split()[1:])
            assert code == 0, err
        left = await server.names(kinds) - before
        definitions = {f"customresourcedefinition/{each['metadata']['name']}" for each in kustomize(DEPLOY / "crds")}
        foreign = {f"{kind}/{MANAGER}" for kind in ("servicemonitor", "prometheusrule")}
        assert left == definitions | foreign
        (command,) = deleting.splitlines()
        code, _, err = await server.kubectl(*command.replace("deploy/", f"{DEPLOY}/").split()[1:])
        assert code == 0, err
        assert await server.names(kinds) - before == foreign


def ours() -> list[JsonObject]:
    """What replaces the original's manager, in its namespace; definitions are none of that."""
    kinds = {"Deployment", "Service", "ServiceAccount", "ConfigMap", "Secret", "PodDisruptionBudget"}
    return [obj for obj in kustomize(DEPLOY / "base") if obj["kind"] in kinds]


@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_ours_replaces_the_original_by_one_apply(version: str, server: Server) -> None:
    await server.forget()
    await server.apply(ours())
    fresh = {kind: await server.get(kind) for kind in ("deployment", "service")}
    await server.forget()

    await server.apply_original(version)
    certificate = {"data": {"tls.crt": "YQ==", "ca.crt": "Yg=="}}
    await server.client.patch(SECRETS, NAMESPACE, CERTIFICATE, certificate, field_manager="manager")
    uid = (await server.get("deployment"))["metadata"]["uid"]
    await server.apply(ours())

    deployment = await server.get("deployment")
    assert deployment["metadata"]["uid"] == uid
    assert deployment["spec"] == fresh["deployment"]["spec"], "nothing of the original is left"
    service = await server.get("service")
    assert service["spec"]["selector"] == fresh["service"]["spec"]["selector"]
    assert service["spec"]["ports"] == fresh["service"]["spec"]["ports"]
    configuration = (await server.get("configmap", "kubeflow-trainer-config"))["data"]
    assert configuration == one(by_identity(ours()), "ConfigMap", "kubeflow-trainer-config")["data"]
    assert (await server.get("secret", CERTIFICATE))["data"] == certificate["data"]


@pytest.mark.parametrize("version", ["2.1", "2.3"])
async def test_what_another_tool_applied_is_replaced_as_well(version: str, server: Server) -> None:
    """A manager of fields other than kubectl's leaves what ours does not name: it must do no harm."""
    await server.forget()
    for document in yaml.safe_load_all((HERE / f"original/manager-{version}.yaml").read_text()):
        resource = {"Deployment": ("apps/v1", "deployments")}.get(
            document["kind"], ("v1", f"{document['kind'].lower()}s")
        )
        group, _, api = resource[0].rpartition("/")
        kind = Resource(group, api, document["kind"], resource[1], namespaced=True)
        await server.client.create(kind, document, field_manager="tool")
    await server.apply(ours())
    check_that_ours_works(await server.get("deployment"))
    ports = {port["name"]: port["targetPort"] for port in (await server.get("service"))["spec"]["ports"]}
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
async def test_the_original_can_be_restored(
    *, before: bool, version: str, options: tuple[str, ...], server: Server
) -> None:
    await server.forget()
    if before:
        await server.apply_original(version)
    await server.apply(ours())
    code, _, err = await server.kubectl("apply", *options, "-f", HERE / f"original/manager-{version}.yaml")
    assert code == 0, err
    original = {
        document["kind"]: document
        for document in yaml.safe_load_all((HERE / f"original/manager-{version}.yaml").read_text())
    }
    pod = (await server.get("deployment"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (expected,) = original["Deployment"]["spec"]["template"]["spec"]["containers"]
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
    account = await server.get("serviceaccount")
    assert pod.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    service = (await server.get("service"))["spec"]
    ports = {port["port"]: port["targetPort"] for port in service["ports"]}
    assert ports.items() >= {port["port"]: port["targetPort"] for port in original["Service"]["spec"]["ports"]}.items()
    assert (await server.get("configmap", "kubeflow-trainer-config"))["data"] == original["ConfigMap"]["data"]
