"""The Node object, and GPUs: of the host, and as containers get them."""

import os
import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.kubelet.container import CreateContainerError, PodRejectedError
from trainmaster.devcluster.kubelet.gpus import DeviceManager, Gpus, find_gpus
from trainmaster.devcluster.kubelet.node_status import host_capacity, is_ready, node_object, with_readiness
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity


def no_library(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


class Nvml:
    """What of the driver's library is used; a function that returns another number than 0 has failed."""

    def __init__(self, count: int, *, failing: str = "") -> None:
        self.count = count
        self.failing = failing
        self.open = 0

    def _code(self, function: str) -> int:
        return 999 if function == self.failing else 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's names
        self.open += not self._code("init")
        return self._code("init")

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.count
        return self._code("count")

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 7 + index
        return self._code("handle")

    def nvmlDeviceGetName(self, handle: Any, name: Any, _size: Any) -> int:  # noqa: N802
        assert handle.value == 7
        name.value = b"NVIDIA RTX 6000 Ada Generation"
        return self._code("name")


def found(tmp_path: Path, *, nvml: Any = None, fake: int = 0, **environment: str) -> Gpus:
    load = no_library if nvml is None else lambda _name: nvml
    return find_gpus(fake, environment=environment, devices=tmp_path, load=load)


def test_the_driver_is_asked_first(tmp_path: Path) -> None:
    """It knows of GPUs whose device files nobody has needed yet, and of those of WSL, which have none."""
    nvml = Nvml(2)
    gpus = found(tmp_path, nvml=nvml)
    assert (gpus.ids, gpus.order, str(gpus)) == (("0", "1"), "PCI_BUS_ID", "2 (NVIDIA RTX 6000 Ada Generation)")
    assert nvml.open == 0


@pytest.mark.parametrize("failing", ["init", "count"])
def test_without_the_driver_device_files_are_counted(tmp_path: Path, failing: str) -> None:
    """In a container that has two of the host's GPUs their files keep the host's numbers, but CUDA counts from 0."""
    for name in ("nvidia3", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    for nvml in (None, object(), Nvml(7, failing=failing)):
        gpus = found(tmp_path, nvml=nvml)
        assert (gpus.ids, str(gpus)) == (("0", "1"), "2")


@pytest.mark.parametrize("failing", ["handle", "name"])
def test_a_gpu_whose_name_is_unknown_is_one_all_the_same(tmp_path: Path, failing: str) -> None:
    assert str(found(tmp_path, nvml=Nvml(1, failing=failing))) == "1"


def test_where_there_is_none_nothing_is_said(tmp_path: Path) -> None:
    for nvml in (None, Nvml(0)):
        gpus = found(tmp_path, nvml=nvml, CUDA_VISIBLE_DEVICES="0,1")
        assert (gpus.ids, gpus.total, str(gpus)) == ((), 0, "")


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        ("1,3", ("1", "3")),
        ("3, 1", ("3", "1")),
        ("", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("0,9,1", ("0",)),
        ("1,1", ("1",)),
        ("GPU-2b1c,GPU-77aa", ("GPU-2b1c", "GPU-77aa")),
        ("MIG-2b1c", ()),
    ],
)
def test_the_shell_decides_which_ones_pods_may_have(tmp_path: Path, visible: str, ids: tuple[str, ...]) -> None:
    gpus = found(tmp_path, nvml=Nvml(4), CUDA_VISIBLE_DEVICES=visible)
    assert (gpus.ids, gpus.total) == (ids, 4)
    assert str(gpus) == (
        f"{len(ids)} of 4 (NVIDIA RTX 6000 Ada Generation), since CUDA_VISIBLE_DEVICES={visible} "
        "where the cluster was started"
    )


def test_numbers_of_the_shell_mean_in_pods_what_they_mean_there(tmp_path: Path) -> None:
    assert found(tmp_path, nvml=Nvml(2), CUDA_VISIBLE_DEVICES="1").order == "FASTEST_FIRST"
    gpus = found(tmp_path, nvml=Nvml(2), CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert gpus.order == "PCI_BUS_ID"


def test_fake_ones_take_the_place_of_real_ones(tmp_path: Path) -> None:
    gpus = found(tmp_path, nvml=Nvml(1), fake=3)
    assert (gpus.ids, str(gpus)) == (("0", "1", "2"), "3 (not real, by --fake-gpus)")


@pytest.mark.nightly
@pytest.mark.parametrize("there", [True, False])
def test_the_device_for_memory_precedes_all_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    """Pods get the devices that there are; on a machine where nobody has used CUDA yet this one is missing."""
    programs, devices = tmp_path / "bin", tmp_path / "dev"
    programs.mkdir()
    devices.mkdir()
    modprobe = programs / "nvidia-modprobe"
    modprobe.write_text(f'#!/bin/sh\necho "$@" > {devices}/called\n')
    modprobe.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    if there:
        (devices / "nvidia-uvm").touch()
    assert found(devices, nvml=Nvml(0)).total == 0
    assert found(devices, fake=1).total == 1
    assert not (devices / "called").exists()
    found(devices, nvml=Nvml(1))
    assert [path.read_text() for path in devices.glob("called")] == ([] if there else ["-u -c=0\n"])


def gpu_container(count: str | int) -> JsonObject:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": count}}}


@pytest.fixture(autouse=True)
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters that other tests run meanwhile have other GPUs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def manager(*ids: str, total: int | None = None, order: str = "PCI_BUS_ID", cluster: str = "mine") -> DeviceManager:
    return DeviceManager(Gpus(ids=ids, total=len(ids) if total is None else total, order=order), cluster=Path(cluster))


def test_no_two_clusters_of_a_machine_give_the_same_gpu_away() -> None:
    mine, theirs = manager("0", "1"), manager("0", "1", cluster="theirs")
    assert mine.allocate("a", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "0"
    taken = "1 are free until others have ended; GPU 0 has been given to a pod of another cluster, that in "
    with pytest.raises(CreateContainerError, match=re.escape(taken + str(Path("mine").absolute()))):
        theirs.allocate("b", gpu_container(2))
    assert theirs.allocate("b", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "1"
    mine.release("a")
    assert theirs.allocate("c", gpu_container(1))["CUDA_VISIBLE_DEVICES"] == "0"
    theirs.release("b")
    theirs.release("c")


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


NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)


def test_gpus_are_listed_only_where_they_are() -> None:
    assert "nvidia.com/gpu" not in host_capacity(Path(), gpus=0)[0]
    assert host_capacity(Path(), gpus=2)[0]["nvidia.com/gpu"] == "2"


def test_pods_may_ask_for_the_disk_that_their_files_are_on(tmp_path: Path) -> None:
    """As the launchers of MPIJobs do. The directory of the pods is made later than the node."""
    told = host_capacity(tmp_path / "not" / "there" / "yet", gpus=0)[0]["ephemeral-storage"]
    assert Quantity.parse(told) == Quantity.parse(shutil.disk_usage(tmp_path).total // 1024 * 1024)


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
