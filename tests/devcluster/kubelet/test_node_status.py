"""The Node object and the devices of the host."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.device_manager import DeviceManager, detect_gpus
from trainmaster.devcluster.kubelet.node_status import host_capacity, is_ready, node_object, with_readiness
from trainmaster.runtime.jsontree import JsonObject

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)


def test_gpus_are_listed_only_where_they_are(tmp_path: Path) -> None:
    assert "nvidia.com/gpu" not in host_capacity(gpus=0)
    assert host_capacity(gpus=2)["nvidia.com/gpu"] == "2"
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


def test_readiness_keeps_what_others_wrote_and_its_own_time() -> None:
    wanted = node_object("n", capacity={"cpu": "2"})
    theirs = {"type": "Custom", "status": "True"}
    node = with_readiness({"metadata": {}, "status": {"conditions": [theirs]}}, wanted=wanted, now=NOW)
    assert is_ready(node, wanted=wanted)
    again = with_readiness(node, wanted=wanted, now=LATER)
    custom, ready = again["status"]["conditions"]
    assert custom == theirs
    assert (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == ("2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z")
    assert not is_ready(again, wanted=node_object("n", capacity={"cpu": "4"}))
