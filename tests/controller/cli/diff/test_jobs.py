"""`trainmaster diff` of jobs of `kubeflow.org/v1`: what a manager that reads the files then would write and delete."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.commands import eventually
from support.job_kinds import job_object
from support.stack import QUIET, Stack, api_server, manager

from trainmaster.controller.cli.diff.command import unified_diff
from trainmaster.controller.cli.diff.dry_run import DryRun
from trainmaster.controller.cli.files.manifests import load_manifests
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS
from trainmaster.controller.resources import job_resource
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.podgroup import Volcano
from trainmaster.runtime.jsontree import JsonObject

KINDS = {kind.kind: kind for kind in load_job_kinds()}
JOBS = {name: job_resource(kind) for name, kind in KINDS.items()}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with api_server(tmp_path_factory.mktemp("stack")) as stack:
        if stack.cluster is not None:
            await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        yield stack


async def namespace(stack: Stack, name: str) -> str:
    await stack.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def job(kind: str, namespace: str, replicas: dict[str, int], **spec: Any) -> JsonObject:
    obj = job_object(KINDS[kind], replicas, name="demo", namespace=namespace, **spec)
    del obj["metadata"]["uid"]
    return obj


async def changes(stack: Stack, tmp_path: Path, obj: JsonObject, *, gang: Volcano | None = None) -> dict[str, str]:
    """The texts of all objects that would change, by kind and name, each with a sign: `+` new, `-` gone, `~` other."""
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(obj))
    dry_run = DryRun(
        stack.client, Framework([]), namespace=None, field_manager="kubectl", job_kinds=list(KINDS.values()), gang=gang
    )
    found = {}
    for change in await dry_run.run(load_manifests([str(file)])):
        text = unified_diff(change.live, change.merged)
        sign = "+" if change.live is None else "-" if change.merged is None else "~"
        of = change.merged or change.live or {}
        if text:
            found[f"{sign}{of['kind']} {of['metadata']['name']}"] = text
    return found


async def settled(stack: Stack, obj: JsonObject, pods: int) -> None:
    """Write a job, and have a manager do what there is to do for it."""
    resource, namespace = JOBS[obj["kind"]], obj["metadata"]["namespace"]
    await stack.client.apply(resource, obj, field_manager="kubectl")

    async def has_pods() -> bool:
        return len((await stack.client.list(PODS, namespace))["items"]) == pods

    async def has_started() -> Any:
        stored = await stack.client.get(resource, namespace, obj["metadata"]["name"])
        return stored.get("status", {}).get("startTime")

    async with manager(stack.access, configuration=QUIET):
        await eventually(has_pods)
        await eventually(has_started)


async def test_a_new_job_is_all_new_and_a_gang_waits_for_its_group(stack: Stack, tmp_path: Path) -> None:
    # A new job is all new.
    new = job("PyTorchJob", await namespace(stack, "new"), {"Master": 1, "Worker": 1})
    assert list(await changes(stack, tmp_path, new)) == [
        "+PyTorchJob demo",
        "+Pod demo-master-0",
        "+Service demo-master-0",
        "+Pod demo-worker-0",
        "+Service demo-worker-0",
    ]
    assert (await stack.client.list(PODS, "new"))["items"] == []
    # A gang waits for its group.
    new = job("JAXJob", await namespace(stack, "gang"), {"Worker": 2})
    texts = await changes(stack, tmp_path, new, gang=Volcano())
    assert list(texts) == ["+JAXJob demo", "+PodGroup demo"]
    assert "+  minMember: 2" in texts["+PodGroup demo"]
    # A job of another controller is left alone.
    policy = {"managedBy": "kueue.x-k8s.io/multikueue"}
    obj = job("JAXJob", await namespace(stack, "managed"), {"Worker": 1}, runPolicy=policy)
    assert list(await changes(stack, tmp_path, obj)) == ["+JAXJob demo"]


@pytest.mark.parametrize("kind", ["JAXJob", "MPIJob"])
async def test_a_settled_job_changes_nothing_until_its_file_does(kind: str, stack: Stack, tmp_path: Path) -> None:
    where = await namespace(stack, f"settled-{kind.lower()}")
    replicas = {"Launcher": 1, "Worker": 2} if kind == "MPIJob" else {"Worker": 2}
    obj = job(kind, where, replicas)
    await settled(stack, obj, pods=sum(replicas.values()))
    assert await changes(stack, tmp_path, obj) == {}
    texts = await changes(stack, tmp_path, job(kind, where, {**replicas, "Worker": 1}))
    assert "-Pod demo-worker-1" in texts
    assert f"~{kind} demo" in texts
    assert ("~ConfigMap demo-config" in texts) == (kind == "MPIJob")
    suspended = job(kind, where, replicas, runPolicy={"suspend": True})
    assert {"-Pod demo-worker-0", "-Pod demo-worker-1"} <= set(await changes(stack, tmp_path, suspended))


async def test_what_cannot_be_worked_on_is_refused_as_the_condition_would_tell(stack: Stack, tmp_path: Path) -> None:
    obj = job("XGBoostJob", await namespace(stack, "wrong"), {"Worker": 1})
    with pytest.raises(
        Rejected, match=r"XGBoostJob demo: XGBoostJobFailedValidation: spec\.xgbReplicaSpecs\[Master\]: "
    ):
        await changes(stack, tmp_path, obj)
