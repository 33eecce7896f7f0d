"""GPUs of the host: how they are found, and what the shell that starts a cluster says of them.

The driver's library is played here; docs/guides/gpus.md has the commands for a machine that has GPUs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.kubelet.gpus import Gpus, find_gpus


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
def test_the_device_for_memory_is_there_before_pods_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
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
