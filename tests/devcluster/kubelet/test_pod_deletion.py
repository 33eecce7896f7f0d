"""What becomes of pods that are deleted: their processes end, nothing of them is left. In both modes of networking."""

import threading

import pytest
from support.commands import TIMEOUT, eventually
from support.node import Node, alive, first_line, sh, terminated

from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.kubelet.directories import PodFiles, RootDirectory
from trainmaster.devcluster.kubelet.kubelet import Kubelet

pytestmark = pytest.mark.nightly


async def test_deletion_is_graceful_and_leaves_nothing(node: Node, kubelet: Kubelet) -> None:
    volumes = [{"name": "v", "configMap": {"name": "cm"}}]
    await node.create_data(key="value")
    await node.create(sh("trap 'exit 0' TERM; while :; do sleep 0.02; done"), volumes=volumes)
    pod = await node.phase("Running")
    files = node.directory / "pods" / pod["metadata"]["uid"]
    assert (files / "volumes/v/key").exists()
    await node.api.delete(PODS, "default", "p")
    await node.gone()
    await eventually(lambda: not files.exists())


async def test_a_pod_that_is_removed_has_told_how_it_ended(node: Node, kubelet: Kubelet) -> None:
    """It may have ended by itself in the instant in which it was deleted."""
    script = "trap 'echo own error; exit 3' TERM; while :; do sleep 0.02; done"
    await node.create(sh(script, terminationMessagePolicy="FallbackToLogsOnError"))
    pod = await node.phase("Running")
    async with node.api.watch(PODS, since=int(pod["metadata"]["resourceVersion"])) as changes:
        await node.api.delete(PODS, "default", "p")
        removed = await anext(change async for change in changes if change.type == "DELETED")
    assert removed.object is not None
    ended = terminated(removed.object)
    assert ended["exitCode"] == 3
    assert ended["message"].endswith("own error\n")  # a shell may tell of its sleep before


async def test_the_files_of_a_pod_that_is_deleted_as_it_ends_are_removed_once(
    node: Node, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropping, proceed = threading.Event(), threading.Event()
    drop = PodFiles.drop_virtual_environments

    def slow(files: PodFiles) -> None:
        dropping.set()
        assert proceed.wait(TIMEOUT)
        drop(files)

    monkeypatch.setattr(PodFiles, "drop_virtual_environments", slow)
    await node.create(sh("true"))
    pod = await node.phase("Succeeded")
    await eventually(dropping.is_set)
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    await node.create(sh("sleep 60"), name="next")
    await node.phase("Running", name="next")  # the kubelet knows of the deletion by now
    files = node.directory / "pods" / pod["metadata"]["uid"]
    assert files.exists()
    proceed.set()
    await eventually(lambda: not files.exists())


async def test_a_pod_whose_files_cannot_be_removed_stops_no_other(
    node: Node, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_root: RootDirectory, _uid: str) -> None:
        raise RecursionError("a tree without end")

    monkeypatch.setattr(RootDirectory, "remove_pod", fail)
    await node.create(sh("true"))
    await node.phase("Succeeded")
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    await eventually(lambda: "cannot remove what a pod left" in caplog.text)
    await node.create(sh("true"), name="next")
    await node.phase("Succeeded", name="next")


@pytest.mark.parametrize("grace", [0, 1])
async def test_the_grace_period_ends_with_a_kill(node: Node, kubelet: Kubelet, grace: int) -> None:
    await node.create(sh("trap '' TERM; echo $$$$; while :; do sleep 0.02; done"))
    await node.phase("Running")
    pid = int(await first_line(node, kubelet))
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=grace))
    await node.gone()
    await eventually(lambda: not alive(pid))


async def test_a_finalizer_sees_the_final_phase(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("sleep 60"))
    pod = await node.phase("Running")
    held = {**pod, "metadata": {**pod["metadata"], "finalizers": ["example.com/tracking"]}}
    held["metadata"].pop("resourceVersion")
    await node.api.update(PODS, held, namespace="default")
    await node.api.delete(PODS, "default", "p")
    pod = await node.phase("Failed")
    assert terminated(pod)["exitCode"] == 143
    assert pod["metadata"]["finalizers"]


async def test_what_was_deleted_while_the_kubelet_was_away_is_removed(node: Node) -> None:
    async with node.running():
        await node.create(sh("true"))
        pod = await node.phase("Succeeded")
    files = node.directory / "pods" / pod["metadata"]["uid"]
    assert files.exists()
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    async with node.running():
        await eventually(lambda: not files.exists())
