"""GPUs of the host, as containers get them."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.kubelet.container import CreateContainerError, PodRejectedError
from trainmaster.devcluster.kubelet.device_manager import DeviceManager
from trainmaster.devcluster.kubelet.gpus import Gpus
from trainmaster.runtime.jsontree import JsonObject


def gpu_container(count: str | int) -> JsonObject:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": count}}}


def manager(*ids: str, total: int | None = None, order: str = "PCI_BUS_ID") -> DeviceManager:
    return DeviceManager(Gpus(ids=ids, total=len(ids) if total is None else total, order=order))


def test_no_two_containers_share_a_gpu() -> None:
    table = manager("0", "1", "GPU-2b1c", order="FASTEST_FIRST")
    assert table.allocate("a", gpu_container("2")) == {
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NVIDIA_VISIBLE_DEVICES": "0,1",
    }
    assert table.allocate("b", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "GPU-2b1c"
    # Whoever is bound to the node is to have its GPUs: what holds them is about to end.
    with pytest.raises(CreateContainerError, match=r"asks for 1 nvidia\.com/gpu, and 0 are free"):
        table.allocate("c", gpu_container(1))
    table.release("a")
    assert table.allocate("c", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_container_without_a_request_sees_no_gpu() -> None:
    """Nor does it see those that the shell hides from the whole cluster, whose variables pods do not have."""
    for table in (manager("0"), manager(total=2)):
        given = table.allocate("a", {"name": "c"})
        assert (given["CUDA_VISIBLE_DEVICES"], given["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert manager().allocate("a", {"name": "c"}) == {}
    with pytest.raises(PodRejectedError, match=r"asks for 1 nvidia\.com/gpu, and this node has 0"):
        manager(total=2).allocate("a", gpu_container(1))
