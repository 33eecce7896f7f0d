"""Several nodes of one kubelet, and one of them that fails, with real processes."""

from pathlib import Path

import pytest
from support.commands import eventually
from support.node import Node, alive, sh

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.registry.generic import PatchType
from trainmaster.devcluster.apiserver.resources import NODES, PODS
from trainmaster.devcluster.kubelet.node_status import host_capacity
from trainmaster.devcluster.settings import FAILED_ANNOTATION, KubeletSettings
from trainmaster.runtime.quantity import Quantity


def test_the_nodes_share_what_the_machine_has() -> None:
    [whole], shares = host_capacity(Path(), gpus=4), host_capacity(Path(), gpus=4, nodes=3)
    assert [each["nvidia.com/gpu"] for each in shares] == ["2", "1", "1"]
    for resource in ("cpu", "memory", "ephemeral-storage"):
        total = sum(Quantity.parse(each[resource]).nano for each in shares)
        assert 0.99 < total / Quantity.parse(whole[resource]).nano <= 1
    assert "nvidia.com/gpu" not in host_capacity(Path(), gpus=1, nodes=2)[1]


@pytest.mark.nightly
async def test_of_a_node_that_fails_nobody_hears_until_it_is_back(tmp_path: Path) -> None:
    node = Node(tmp_path / "state")
    node.settings = KubeletSettings(nodes=2)
    await create_system_namespaces(node.api)
    pids = {name: tmp_path / name for name in ("lost", "other")}

    async def annotate(value: str | None) -> None:
        await eventually(lambda: len(node.api.list(NODES)[0]) == 2)
        change = {"metadata": {"annotations": {FAILED_ANNOTATION: value}}}
        await node.api.patch(NODES, None, "laptop-2", change, patch_type=PatchType.MERGE)

    async with node.running():
        for name, path in pids.items():
            host = "laptop-2" if name == "lost" else "laptop"
            await node.create(sh(f"echo $$$$ > {path}; sleep 600"), name=name, nodeName=host)
        await eventually(lambda: all(path.exists() and path.read_text() for path in pids.values()))
        lost, other = (int(path.read_text()) for path in pids.values())
        for name in pids:
            await node.phase("Running", name=name)
        await annotate("")
        await eventually(lambda: not alive(lost))
        await node.api.delete(PODS, "default", "lost")
        await node.create(sh("true"))
        await node.phase("Succeeded")  # the others go on
        assert alive(other)
        assert node.api.get(PODS, "default", "lost")["status"]["phase"] == "Running"
        await annotate(None)
        await node.gone("lost")
    node.settings = KubeletSettings()
    async with node.running():
        await eventually(lambda: [each.object["metadata"]["name"] for each in node.api.list(NODES)[0]] == ["laptop"])
