"""The built-in runtimes: there from the start, and never again what somebody did not want."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import client_of, trainmaster
from support.stack import api_server

from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES as RUNTIMES
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS, NAMESPACES
from trainmaster.devcluster.manager.built_in_runtimes import NAMESPACE, NOTES, built_in_runtimes, install_runtimes
from trainmaster.runtime.jsontree import JsonObject, copy_tree

TORCH = "torch-distributed"
NAMES = {
    *("deepspeed-distributed", "jax-distributed", "mlx-distributed", TORCH, "xgboost-distributed"),
    *("torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b"),
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with api_server(tmp_path) as stack:
        if stack.cluster is None:
            pytest.skip("installs runtimes of its own")
        yield stack.cluster.api


def live(api: Api, name: str = TORCH) -> JsonObject:
    return api.get(CLUSTER_TRAINING_RUNTIMES, None, name)


def image_of(runtime: JsonObject) -> str:
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    image: str = job["template"]["spec"]["template"]["spec"]["containers"][0]["image"]
    return image


def later() -> list[JsonObject]:
    """What a later version brings: other images."""
    runtimes: list[JsonObject] = copy_tree(built_in_runtimes())
    for runtime in runtimes:
        for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/later:2"
    return runtimes


async def change(api: Api, patch: JsonObject, name: str = TORCH) -> None:
    options = WriteOptions(field_manager="kubectl-edit")
    await api.patch(CLUSTER_TRAINING_RUNTIMES, None, name, patch, patch_type=PatchType.MERGE, options=options)


def own(name: str) -> JsonObject:
    """What somebody else makes under the name of one of ours."""
    made: JsonObject = next(copy_tree(each) for each in built_in_runtimes() if each["metadata"]["name"] == name)
    made["spec"]["mlPolicy"]["numNodes"] = 3
    return made


async def test_all_are_installed_as_they_are_deployed_and_not_written_again(api: Api) -> None:
    await install_runtimes(api, built_in_runtimes())
    found = {record.object["metadata"]["name"]: record.object for record in api.list(CLUSTER_TRAINING_RUNTIMES)[0]}
    assert set(found) == NAMES
    for runtime in built_in_runtimes():
        installed = found[runtime["metadata"]["name"]]
        assert installed["metadata"]["labels"] == runtime["metadata"]["labels"]
        assert image_of(installed) == image_of(runtime)
        assert {entry["manager"] for entry in installed["metadata"]["managedFields"]} == {"trainmaster-cluster"}
    before = api.revision
    await install_runtimes(api, built_in_runtimes())
    assert api.revision == before


async def test_what_somebody_did_is_kept_and_the_rest_updated(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """One was there before any of ours, in a cluster of an earlier version; one was deleted and made anew, so that it
    has the name and the generation of ours; a label of ours that was changed is a change, a label of others is none."""
    framework = "trainer.kubeflow.org/framework"
    await api.create(CLUSTER_TRAINING_RUNTIMES, own("mlx-distributed"))
    await install_runtimes(api, built_in_runtimes())
    await api.delete(CLUSTER_TRAINING_RUNTIMES, None, TORCH)
    await api.delete(CLUSTER_TRAINING_RUNTIMES, None, "deepspeed-distributed")
    await api.create(CLUSTER_TRAINING_RUNTIMES, own("deepspeed-distributed"))
    await change(api, {"spec": {"mlPolicy": {"numNodes": 7}}}, "jax-distributed")
    await change(api, {"metadata": {"labels": {framework: "own"}}}, "xgboost-distributed")
    await change(api, {"metadata": {"labels": {"team": "blue"}}}, "torchtune-llama3.2-1b")
    names = ("mlx-distributed", "deepspeed-distributed", "jax-distributed", "xgboost-distributed")
    kept = [live(api, name) for name in names]
    for runtimes in (built_in_runtimes(), later()):
        await install_runtimes(api, runtimes)
        assert [live(api, name) for name in names] == kept
        with pytest.raises(StatusError, match="not found"):
            live(api)
    assert "a built-in runtime is not installed" in capsys.readouterr().out
    for name in ("torchtune-llama3.2-1b", "torchtune-llama3.2-3b"):
        assert image_of(live(api, name)) == "example.com/later:2"
    labels = live(api, "torchtune-llama3.2-1b")["metadata"]["labels"]
    assert labels == {"team": "blue", framework: own("torchtune-llama3.2-1b")["metadata"]["labels"][framework]}


async def test_a_start_that_ended_before_its_note_is_made_good(api: Api) -> None:
    await install_runtimes(api, built_in_runtimes())
    await api.delete(CONFIGMAPS, NAMESPACE, NOTES)
    await change(api, {"spec": {"mlPolicy": {"numNodes": 7}}}, "jax-distributed")
    await install_runtimes(api, built_in_runtimes())
    await install_runtimes(api, later())
    assert image_of(live(api)) == "example.com/later:2"


@pytest.mark.parametrize("damage", ["", "{", "[]", "1", '{"uid": 1}'])
async def test_without_its_note_a_deleted_runtime_comes_back(api: Api, damage: str) -> None:
    """That is how to get one back; what else stands in its place is no note either."""
    await install_runtimes(api, built_in_runtimes())
    await api.delete(CLUSTER_TRAINING_RUNTIMES, None, TORCH)
    await api.patch(CONFIGMAPS, NAMESPACE, NOTES, {"data": {TORCH: damage}}, patch_type=PatchType.MERGE)
    await install_runtimes(api, built_in_runtimes())
    assert live(api)


async def test_a_namespace_that_is_being_deleted_does_not_keep_a_cluster_from_starting(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    await api.delete(NAMESPACES, None, NAMESPACE)
    await install_runtimes(api, built_in_runtimes())
    assert live(api)
    assert "being terminated" in capsys.readouterr().out


@pytest.mark.nightly
async def test_a_new_cluster_has_them_and_a_restart_respects_its_user(home: Path) -> None:
    """Over HTTP: they are there when the cluster says that it is ready, and its webhooks judge what becomes of them."""
    up = ("cluster", "up", "--detach", "--without", "kubelet")
    kubeconfig = home / ".trainmaster" / "kubeconfig"

    async def names() -> set[str]:
        async with client_of(kubeconfig) as client:
            return {each["metadata"]["name"] for each in (await client.list(RUNTIMES))["items"]}

    started = await trainmaster(*up, cwd=home)
    assert (started.code, started.err) == (0, "")
    assert await names() == NAMES
    async with client_of(kubeconfig) as client:
        await client.delete(RUNTIMES, None, TORCH)
        changed = await client.patch(RUNTIMES, None, "jax-distributed", {"spec": {"mlPolicy": {"numNodes": 7}}})
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0

    assert (await trainmaster(*up, cwd=home)).code == 0
    assert await names() == NAMES - {TORCH}
    async with client_of(kubeconfig) as client:
        assert await client.get(RUNTIMES, None, "jax-distributed") == changed


async def test_a_cluster_without_a_manager_has_none(tmp_path: Path) -> None:
    """They are of a kind that comes with the manager."""
    async with api_server(tmp_path) as stack:
        assert (await stack.client.list(RUNTIMES))["items"] == []
