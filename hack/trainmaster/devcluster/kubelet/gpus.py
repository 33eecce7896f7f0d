"""NVIDIA GPUs of the host: how many there are, and which of them the shell lets the cluster have, and
which container holds which.

- The driver's own library says how many there are, which needs nothing installed but the driver, and in a container or
  in WSL counts what is there; without it the device files are counted.
- They are named by the numbers that CUDA gives them, from 0, in the order of nvidia-smi: device files have numbers of
  their own, which differ in a container that has some of the host's GPUs.
- `CUDA_VISIBLE_DEVICES` of the shell that starts the cluster holds for all its pods, in the order in which that shell
  counts. The numbers end, as for CUDA, at the first that is none of a GPU.
- MIG and MPS are unknown here: parts of GPUs are nothing that the node offers.
- No two containers share one. The scheduler binds no more pods than there are GPUs for, but it knows nothing of
  processes: those of a pod that was deleted at once, without a grace period, end a moment later than it. Who gets their
  GPUs waits for that, and for pods of other clusters on this machine that have the same GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainmaster.devcluster.kubelet.container import CreateContainerError, PodRejectedError
from trainmaster.devcluster.state import claim
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

_DEVICE_FILE: Final = re.compile(r"nvidia[0-9]+")
_LIBRARY: Final = "libnvidia-ml.so.1"
_SUCCESS: Final = 0
_LONGEST_NAME: Final = 96
"""NVML_DEVICE_NAME_V2_BUFFER_SIZE."""

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_ORDER: Final = "CUDA_DEVICE_ORDER"
_AS_NVIDIA_SMI: Final = "PCI_BUS_ID"
_DEFAULT_OF_CUDA: Final = "FASTEST_FIRST"

_MODPROBE_TIMEOUT: Final = 10.0

GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of a node."""

    ids: tuple[str, ...] = ()
    """Those that pods may have, each as CUDA_VISIBLE_DEVICES names it."""

    total: int = 0
    """How many the machine has."""

    order: str = _AS_NVIDIA_SMI
    """How CUDA is to count."""

    product: str = ""
    """What they are, if that is known."""

    limited_by: str | None = None
    """What CUDA_VISIBLE_DEVICES of the shell was, if it was set."""

    fake: bool = False

    def __str__(self) -> str:
        """Say what there is, as `cluster status` does; empty where there is no GPU at all."""
        if not self.total:
            return ""
        what = "not real, by --fake-gpus" if self.fake else self.product
        text = str(self.total) + (f" ({what})" if what else "")
        if self.limited_by is None:
            return text
        return f"{len(self.ids)} of {text}, since {_VISIBLE}={self.limited_by} where the cluster was started"


def find_gpus(
    fake: int = 0,
    *,
    environment: Mapping[str, str] = os.environ,
    devices: Path = Path("/dev"),
    load: Callable[[str], Any] = ctypes.CDLL,
) -> Gpus:
    """Find the GPUs of this machine.

    Args:
        fake: How many to claim in place of real ones.
        environment: That of the shell.
        devices: Where device files are.
        load: Loads a shared library; raises OSError if there is none.
    """
    if fake:
        total, product = fake, ""
    else:
        total, product = _ask_driver(load) or (_count_device_files(devices), "")
        if total:
            _provide_memory_device(devices)
    if not total:
        return Gpus()
    visible, order = environment.get(_VISIBLE), environment.get(_ORDER)
    numbers = tuple(map(str, range(total)))
    return Gpus(
        ids=numbers if visible is None else _chosen(visible, numbers),
        total=total,
        order=order or (_AS_NVIDIA_SMI if visible is None else _DEFAULT_OF_CUDA),
        product=product,
        limited_by=visible,
        fake=bool(fake),
    )


def _chosen(visible: str, numbers: tuple[str, ...]) -> tuple[str, ...]:
    """Return which GPUs a value of CUDA_VISIBLE_DEVICES stands for."""
    chosen: dict[str, None] = {}
    for entry in map(str.strip, visible.split(",")):
        if entry not in numbers and not entry.startswith("GPU-"):
            break
        chosen[entry] = None
    return tuple(chosen)[: len(numbers)]


def _ask_driver(load: Callable[[str], Any]) -> tuple[int, str] | None:
    """Ask the driver's library for the number of GPUs and what the first one is; None if it cannot say."""
    try:
        nvml = load(_LIBRARY)
        if nvml.nvmlInit_v2() != _SUCCESS:
            return None
    except (OSError, AttributeError):
        return None
    try:
        count, handle = ctypes.c_uint(), ctypes.c_void_p()
        name = ctypes.create_string_buffer(_LONGEST_NAME)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
            return None
        known = (
            count.value
            and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == _SUCCESS
            and nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(_LONGEST_NAME)) == _SUCCESS
        )
        return count.value, name.value.decode("utf-8", "replace") if known else ""
    except AttributeError:  # a library of another time
        return None
    finally:
        nvml.nvmlShutdown()


def _count_device_files(devices: Path) -> int:
    return sum(1 for path in devices.glob("nvidia*") if _DEVICE_FILE.fullmatch(path.name))


def _provide_memory_device(devices: Path) -> None:
    """Have the driver make its device for memory, if nobody has used CUDA since the machine started.

    Pods get the devices that are there when they start, and cannot make this one in a namespace of their own.
    """
    modprobe = shutil.which("nvidia-modprobe")
    if modprobe is None or (devices / "nvidia-uvm").exists():
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run([modprobe, "-u", "-c=0"], timeout=_MODPROBE_TIMEOUT, check=False, capture_output=True)  # noqa: S603


class DeviceManager:
    """Which container holds which GPUs, in the cluster of a state directory."""

    def __init__(self, gpus: Gpus, *, cluster: Path) -> None:
        self._gpus = gpus
        self._cluster = cluster
        self._holders: dict[str, tuple[str, int]] = {}
        """By GPU: the container, and the open file by which no other cluster gives it away."""

    def allocate(self, identity: str, container: JsonObject) -> dict[str, str]:
        """Allocate the GPUs that a container asks for; gives the variables that name them. Without any it sees none.

        Raises:
            CreateContainerError: Some of them are still held.
            PodRejectedError: There are not so many.
        """
        wanted = _requested(container)
        asks = f"container {container['name']!r} asks for {wanted} {GPU_RESOURCE}"
        if wanted > len(self._gpus.ids):
            raise PodRejectedError("UnexpectedAdmissionError", f"{asks}, and this node has {len(self._gpus.ids)}")
        if not self._gpus.total:
            return {}
        chosen: dict[str, int] = {}
        elsewhere = ""
        for gpu in self._gpus.ids:
            if len(chosen) == wanted:
                break
            if gpu in self._holders:
                continue
            claimed = claim(f"{'fake-' if self._gpus.fake else ''}gpu-{gpu}", self._cluster)
            if isinstance(claimed, int):
                chosen[gpu] = claimed
            else:
                elsewhere += f"; GPU {gpu} has been given to a pod of another cluster, that in {claimed}"
        if len(chosen) < wanted:
            for claimed in chosen.values():
                os.close(claimed)
            raise CreateContainerError(
                "CreateContainerError", f"{asks}, and {len(chosen)} are free until others have ended{elsewhere}"
            )
        self._holders |= {gpu: (identity, claimed) for gpu, claimed in chosen.items()}
        listed = ",".join(chosen)
        return {
            "CUDA_DEVICE_ORDER": self._gpus.order,
            "CUDA_VISIBLE_DEVICES": listed,
            "NVIDIA_VISIBLE_DEVICES": listed or "void",
        }

    def release(self, identity: str) -> None:
        """Take back what a container held."""
        for gpu in [gpu for gpu, (holder, _) in self._holders.items() if holder == identity]:
            os.close(self._holders.pop(gpu)[1])


def _requested(container: JsonObject) -> int:
    amount = ((container.get("resources") or {}).get("limits") or {}).get(GPU_RESOURCE)
    try:
        return Quantity.parse(amount).ceil() if amount else 0
    except QuantityError:
        return 0
