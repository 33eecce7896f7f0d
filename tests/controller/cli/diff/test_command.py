"""`trainmaster diff`: what applying files would change, against an API server with a manager on it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import Finished, trainmaster
from support.devcluster.faults import Refuse
from support.objects import runtime_object, trainjob_object
from support.samples import configmap, owner_reference
from support.stack import Stack, api_server

from trainmaster.controller.cli.diff.command import unified_diff
from trainmaster.controller.cli.diff.dry_run import DryRun, ObjectDiff
from trainmaster.controller.cli.files.manifests import load_manifests
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """An API server without any controller: tests play its part, so that what exists is what they say."""
    async with api_server(tmp_path) as stack:
        await stack.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await stack.client.create(TRAINING_RUNTIMES, runtime_object(policy={"torch": {}}))
        yield stack


def job(**spec: Any) -> JsonObject:
    obj = trainjob_object(**spec)
    obj["metadata"] = {"name": "demo", "namespace": "team"}
    return obj


async def planned(stack: Stack, tmp_path: Path, *objects: JsonObject) -> list[ObjectDiff]:
    """What applying objects would change."""
    file = tmp_path / "files.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    dry_run = DryRun(stack.client, Framework(load_plugins()), namespace=None, field_manager="kubectl")
    return await dry_run.run(load_manifests([str(file)]))


async def changes(stack: Stack, tmp_path: Path, *objects: JsonObject) -> dict[str, str]:
    """The texts of all objects that would change, by the first line."""
    texts = [unified_diff(change.live, change.merged) for change in await planned(stack, tmp_path, *objects)]
    return {text.partition("\n")[0].removeprefix("--- live/"): text for text in texts if text}


async def settle(stack: Stack, tmp_path: Path, obj: JsonObject) -> None:
    """Write a TrainJob and everything that the controller would, as the dry_run says."""
    await stack.client.apply(TRAINJOBS, obj, field_manager="kubectl")
    for change in (await planned(stack, tmp_path, obj))[1:]:
        assert change.merged is not None
        resource = {"ConfigMap": CONFIGMAPS, "JobSet": JOBSETS}[change.merged["kind"]]
        fields = change.merged["metadata"].keys() & {"name", "namespace", "ownerReferences"}
        metadata = {field: change.merged["metadata"][field] for field in fields}
        written = {**change.merged, "metadata": metadata}
        await stack.client.apply(resource, written, field_manager=FIELD_MANAGER)


async def test_a_new_trainjob_is_all_new_and_nothing_is_written(stack: Stack, tmp_path: Path) -> None:
    # A new trainjob is all new.
    texts = await changes(stack, tmp_path, job(trainer={"numNodes": 2}))
    assert list(texts) == [
        "TrainJob.trainer.kubeflow.org/team/demo",
        "ConfigMap/team/demo-runtime-snapshot",
        "JobSet.jobset.x-k8s.io/team/demo",
    ]
    assert "+        parallelism: 2\n" in texts["JobSet.jobset.x-k8s.io/team/demo"]
    assert all(line.startswith(("+", "---", "@@")) for text in texts.values() for line in text.splitlines())
    # Nothing is written.
    for resource in (TRAINJOBS, JOBSETS):
        assert (await stack.client.list(resource))["items"] == []
    # A runtime in the files counts for new trainjobs.
    runtime = runtime_object(policy={"torch": {}, "numNodes": 5})
    texts = await changes(stack, tmp_path, job(), runtime)
    assert "+    numNodes: 5\n" in texts["TrainingRuntime.trainer.kubeflow.org/team/rt"]
    assert "+        parallelism: 5\n" in texts["JobSet.jobset.x-k8s.io/team/demo"]


async def test_a_new_runtime_and_its_trainjob_can_be_tried_together(stack: Stack, tmp_path: Path) -> None:
    """Even though admission webhooks refuse the TrainJob as long as there is no runtime."""
    assert stack.cluster is not None
    stack.cluster.faults.add(Refuse(403, message="no runtime"), verb="create,patch", resource="trainjobs")
    runtime = runtime_object(policy={"torch": {}, "numNodes": 5})
    runtime["metadata"]["name"] = "new"
    obj = job(runtimeRef={"kind": "TrainingRuntime", "name": "new"})
    texts = await changes(stack, tmp_path, obj, runtime)
    assert "+  suspend: false\n" in texts["TrainJob.trainer.kubeflow.org/team/demo"]
    assert "+        parallelism: 5\n" in texts["JobSet.jobset.x-k8s.io/team/demo"]
    obj["spec"]["trainer"] = {"numNode": 1}
    with pytest.raises(Rejected, match=r"files.yaml:1: TrainJob demo: spec.trainer.numNode: unknown field"):
        await changes(stack, tmp_path, obj, runtime)


async def test_a_settled_trainjob_differs_by_what_changes_and_not_by_its_runtime(stack: Stack, tmp_path: Path) -> None:
    # A settled trainjob does not differ whatever becomes of its runtime. Its snapshot counts, not the runtime.
    await settle(stack, tmp_path, job())
    assert await changes(stack, tmp_path, job()) == {}
    runtime = runtime_object(policy={"torch": {}, "numNodes": 5})
    assert list(await changes(stack, tmp_path, job(), runtime)) == ["TrainingRuntime.trainer.kubeflow.org/team/rt"]
    # Suspending changes the jobset.
    texts = await changes(stack, tmp_path, job(suspend=True))
    assert list(texts) == ["TrainJob.trainer.kubeflow.org/team/demo", "JobSet.jobset.x-k8s.io/team/demo"]
    for text in texts.values():
        assert "-  suspend: false\n+  suspend: true\n" in text


async def test_secrets_show_that_they_change_and_not_what_they_hold() -> None:
    def secret(value: str) -> JsonObject:
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": value, "b": "same"}}

    text = unified_diff(secret("before1"), secret("after2"))
    assert "-  a: '*** (before)'\n+  a: '*** (after)'\n" in text
    assert "   b: '***'\n" in text
    assert not any(value in text for value in ("before1", "after2", "same"))


@pytest.fixture
def diff(tmp_path: Path) -> Callable[..., Any]:
    async def run(obj: JsonObject, *arguments: str, **environment: str) -> Finished:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(obj))
        return await trainmaster("diff", "-f", "job.yaml", *arguments, cwd=tmp_path, HOME=str(tmp_path), **environment)

    return run


@pytest.mark.nightly
async def test_exit_codes(stack: Stack, tmp_path: Path, diff: Callable[..., Any]) -> None:
    kubeconfig = str(tmp_path / "cluster/kubeconfig")
    different = await diff(job(), KUBECONFIG=kubeconfig)
    assert (different.code, different.err) == (1, "")
    assert different.out.startswith("--- live/TrainJob.trainer.kubeflow.org/team/demo\n+++ merged/TrainJob")
    await settle(stack, tmp_path, job())
    assert await diff(job(), "--kubeconfig", kubeconfig) == Finished(0, "", "")


@pytest.mark.nightly
async def test_feature_gates_count_and_the_authority_that_only_the_controller_has_does_not_differ(
    stack: Stack, tmp_path: Path, diff: Callable[..., Any]
) -> None:
    gates = ("--kubeconfig", str(tmp_path / "cluster/kubeconfig"), "--feature-gates", "TrainJobStatus=true")
    new = await diff(job(), *gates)
    assert (new.code, new.err) == (1, "")
    assert "+++ merged/ConfigMap/team/demo-tls-config" in new.out
    await settle(stack, tmp_path, job())
    trainer = await stack.client.get(TRAINJOBS, "team", "demo")
    owner = owner_reference(trainer, controller=True, blockOwnerDeletion=True)
    data = {"ca.crt": "that of the controller"}
    written = configmap("demo-tls-config", data, namespace="team", ownerReferences=[owner])
    await stack.client.apply(CONFIGMAPS, written, field_manager=FIELD_MANAGER)
    assert await diff(job(), *gates) == Finished(0, "", "")


@pytest.mark.nightly
async def test_objections_of_the_cluster_are_told_and_exit_with_2(stack: Stack, tmp_path: Path, diff: Any) -> None:
    # Objections of the cluster are told and exit with 2.
    kubeconfig = str(tmp_path / "cluster/kubeconfig")
    wrong = await diff(job(trainer={"numNode": 1}), KUBECONFIG=kubeconfig)
    assert wrong.code == 2
    assert "trainmaster: job.yaml:1: TrainJob demo: " in wrong.err
    assert ".spec.trainer.numNode: field not declared in schema" in wrong.err
    missing = await diff(job(runtimeRef={"name": "nowhere"}), KUBECONFIG=kubeconfig)
    assert missing.code == 2
    assert "RuntimeNotFound: not found ClusterTrainingRuntime" in missing.err
    # A missing permission is told.
    assert stack.cluster is not None
    refusal = Refuse(403, message='jobsets "demo" is forbidden: User "eve" cannot patch resource "jobsets"')
    stack.cluster.faults.add(refusal, verb="patch", resource="jobsets")
    forbidden = await diff(job(), KUBECONFIG=str(tmp_path / "cluster/kubeconfig"))
    assert (forbidden.code, forbidden.out) == (2, "")
    assert 'TrainJob demo: jobsets "demo" is forbidden: User "eve" cannot patch' in forbidden.err
    assert "diff makes dry runs, which take those of the writes themselves" in forbidden.err
    # Without a cluster it says what to do.
    alone = await diff(job())
    assert (alone.code, alone.out) == (2, "")
    assert "no cluster is configured" in alone.err
    assert "pass --kubeconfig or set KUBECONFIG" in alone.err
