"""`trainmaster runtimes`, with the rights that the chart gives to the Job that runs it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import Finished, eventually, started, trainmaster
from support.installations import CLUSTER_ROLES, RBAC, bind
from support.kubeconfigs import kubeconfig_of
from support.manifests import DEPLOY, NEEDS_HELM, one, template
from support.processes import DEFINITIONS
from support.stack import Stack, api_server

from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES

pytestmark = [pytest.mark.nightly, *NEEDS_HELM]

DEFINITION = DEPLOY / "crds/trainer.kubeflow.org_clustertrainingruntimes.yaml"
TORCH, JAX = (DEPLOY / f"runtimes/{name}-distributed.yaml" for name in ("torch", "jax"))

LABEL = "trainer.kubeflow.org/managed-by"


@dataclass
class Installer:
    """Runs the command as the account of the Job does."""

    stack: Stack
    kubeconfig: Path

    def words(self, *arguments: str | Path) -> list[str]:
        """The command line."""
        return ["runtimes", *map(str, arguments), "--kubeconfig", str(self.kubeconfig)]

    async def run(self, *arguments: str | Path) -> Finished:
        """Run it to its end."""
        return await trainmaster(*self.words(*arguments), cwd=self.kubeconfig.parent)

    async def installed(self) -> dict[str, dict[str, Any]]:
        """Every runtime of the cluster, by name."""
        answer = await self.stack.client.list(CLUSTER_TRAINING_RUNTIMES)
        return {item["metadata"]["name"]: item for item in answer["items"]}


@pytest.fixture
async def installer(tmp_path: Path) -> AsyncIterator[Installer]:
    async with api_server(tmp_path, rbac=True) as stack:
        if stack.cluster is None:
            pytest.skip("nobody but the tests may have installed runtimes")
        role = one(template(runtimes={"defaultEnabled": True}), "ClusterRole", "kubeflow-trainer-runtimes-installer")
        await stack.client.create(CLUSTER_ROLES, role)
        kubeconfig = await kubeconfig_of(stack, tmp_path, "installer")
        await bind(stack.client, "installer", role["metadata"]["name"])
        yield Installer(stack, Path(kubeconfig))


async def test_what_was_installed_and_is_not_wanted_any_more_is_deleted(installer: Installer, tmp_path: Path) -> None:
    await installer.stack.client.create(
        CLUSTER_TRAINING_RUNTIMES, {**yaml.safe_load(JAX.read_text()), "metadata": {"name": "mine"}}
    )
    first = await installer.run("install", TORCH, JAX)
    assert (first.code, first.err) == (0, "")
    assert (
        first.out
        == "ClusterTrainingRuntime torch-distributed applied\nClusterTrainingRuntime jax-distributed applied\n"
    )
    assert set(await installer.installed()) == {"mine", "torch-distributed", "jax-distributed"}

    changed = yaml.safe_load(TORCH.read_text())
    changed["spec"]["mlPolicy"]["numNodes"] = 3
    (tmp_path / "changed.yaml").write_text(yaml.dump(changed))
    second = await installer.run("install", tmp_path / "changed.yaml")
    assert (second.code, second.err) == (0, "")
    assert (
        second.out
        == "ClusterTrainingRuntime torch-distributed applied\nClusterTrainingRuntime jax-distributed deleted\n"
    )
    installed = await installer.installed()
    assert set(installed) == {"mine", "torch-distributed"}
    assert installed["torch-distributed"]["spec"]["mlPolicy"]["numNodes"] == 3
    assert installed["torch-distributed"]["metadata"]["labels"] == {
        "trainer.kubeflow.org/framework": "torch",
        LABEL: "runtimes-installer",
    }

    third = await installer.run("uninstall")
    assert (third.code, third.out, third.err) == (0, "ClusterTrainingRuntime torch-distributed deleted\n", "")
    assert set(await installer.installed()) == {"mine"}


async def test_fields_that_kubectl_owns_are_taken_over(installer: Installer) -> None:
    """The original's Job applies with kubectl; a conflict would leave its runtimes as they are for ever."""
    theirs = yaml.safe_load(TORCH.read_text())
    container_of(theirs)["image"] = "old"
    theirs["metadata"]["labels"][LABEL] = "runtimes-installer"
    await installer.stack.client.apply(CLUSTER_TRAINING_RUNTIMES, theirs, field_manager="kubectl")
    assert (await installer.run("install", TORCH)).code == 0
    (found,) = (await installer.installed()).values()
    assert container_of(found)["image"] == container_of(yaml.safe_load(TORCH.read_text()))["image"] != "old"


def container_of(runtime: dict[str, Any]) -> dict[str, Any]:
    """The container of the runtime's only job."""
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


async def test_a_definition_that_comes_later_is_waited_for(installer: Installer) -> None:
    """Helm starts the Job as soon as the definition was accepted, which is before it is served."""
    client = installer.stack.client
    name = yaml.safe_load(DEFINITION.read_text())["metadata"]["name"]
    await client.delete(DEFINITIONS, None, name)

    async def is_gone() -> bool:
        return not [each for each in (await client.list(DEFINITIONS))["items"] if each["metadata"]["name"] == name]

    await eventually(is_gone)
    assert (await installer.run("uninstall")).code == 0
    async with started(*installer.words("install", TORCH), cwd=installer.kubeconfig.parent) as running:
        await eventually(lambda: bool(running.err))
        assert running.err[0].startswith("applying ClusterTrainingRuntime torch-distributed is tried again for ")
        assert "404" in running.err[0]
        await client.create(DEFINITIONS, yaml.safe_load(DEFINITION.read_text()))
        finished = await running.finish()
    assert (finished.code, finished.out) == (0, "ClusterTrainingRuntime torch-distributed applied\n")
    assert len(finished.err.splitlines()) == 1, "the same reason is told once"


async def test_what_cannot_pass_is_told_at_once(installer: Installer, tmp_path: Path) -> None:
    nowhere = await installer.run("install", tmp_path / "nowhere.yaml")
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "nowhere.yaml" in nowhere.err

    other = await installer.run("install", TORCH, DEFINITION)
    assert (other.code, other.out) == (2, "")
    assert other.err.endswith(
        "CustomResourceDefinition clustertrainingruntimes.trainer.kubeflow.org is no ClusterTrainingRuntime of "
        "trainer.kubeflow.org/v1alpha1, and nothing else is installed\n"
    )

    (tmp_path / "nameless.yaml").write_text(TORCH.read_text().replace("name: torch-distributed", "generateName: a"))
    nameless = await installer.run("install", tmp_path / "nameless.yaml")
    assert (nameless.code, nameless.out) == (2, "")
    assert "write metadata.name" in nameless.err

    wrong = yaml.safe_load(TORCH.read_text())
    wrong["spec"]["mlPolicy"]["numNodes"] = "many"
    (tmp_path / "wrong.yaml").write_text(yaml.dump(wrong))
    refused = await installer.run("install", JAX, tmp_path / "wrong.yaml")
    assert refused.code == 2
    assert "numNodes" in refused.err
    assert set(await installer.installed()) == {"jax-distributed"}

    await installer.stack.client.delete(RBAC["ClusterRoleBinding"], None, "kubeflow-trainer-runtimes-installer")
    denied = await installer.run("install", TORCH)
    assert (denied.code, denied.out) == (1, "")
    assert 'cannot patch resource "clustertrainingruntimes"' in denied.err
    assert all("Traceback" not in each.err for each in (nowhere, other, nameless, refused, denied))
