"""GPUs of the host: found and allocated."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.device_manager import DeviceManager, detect_gpus
from trainmaster.runtime.jsontree import JsonObject


def test_gpus_are_found_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert detect_gpus(tmp_path) == [0, 11]


def gpu_container(count: str | int) -> JsonObject:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": count}}}


def test_no_two_containers_share_a_gpu() -> None:
    table = DeviceManager([0, 1, 2])
    assert table.allocate("a", gpu_container("2"))["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert table.allocate("b", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "2"
    with pytest.raises(PodRejectedError, match=r"asks for 1 nvidia\.com/gpu, and 0 are free"):
        table.allocate("c", gpu_container(1))
    table.release("a")
    assert table.allocate("c", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_container_without_a_request_sees_no_gpu() -> None:
    assert DeviceManager([0]).allocate("a", {"name": "c"})["CUDA_VISIBLE_DEVICES"] == ""
    assert DeviceManager([]).allocate("a", {"name": "c"}) == {}
