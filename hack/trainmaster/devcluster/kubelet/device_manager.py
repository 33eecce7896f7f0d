"""The device manager: GPUs of the host, counted for the Node and allocated so that no two containers share one."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

GPU_RESOURCE = "nvidia.com/gpu"

_DEVICE_FILE = re.compile(r"nvidia([0-9]+)")


def detect_gpus(devices: Path = Path("/dev")) -> list[int]:
    """List the NVIDIA GPUs by their device files, which needs no driver library and no subprocess."""
    found = (_DEVICE_FILE.fullmatch(path.name) for path in devices.glob("nvidia*"))
    return sorted(int(match[1]) for match in found if match)


class DeviceManager:
    """Which container holds which GPUs."""

    def __init__(self, gpus: list[int]) -> None:
        self.gpus = gpus
        self._holders: dict[int, str] = {}

    def allocate(self, identity: str, container: JsonObject) -> dict[str, str]:
        """Allocate the GPUs that a container asks for; gives the variables that name them. Without any it sees none."""
        wanted = _requested(container)
        if not self.gpus:
            if wanted:
                raise _shortage(container, wanted, free=0)
            return {}
        free = [gpu for gpu in self.gpus if gpu not in self._holders]
        if wanted > len(free):
            raise _shortage(container, wanted, free=len(free))
        chosen = free[:wanted]
        for gpu in chosen:
            self._holders[gpu] = identity
        listed = ",".join(map(str, chosen))
        return {"CUDA_VISIBLE_DEVICES": listed, "NVIDIA_VISIBLE_DEVICES": listed or "void"}

    def release(self, identity: str) -> None:
        """Take back what a container held."""
        self._holders = {gpu: holder for gpu, holder in self._holders.items() if holder != identity}


def _requested(container: JsonObject) -> int:
    amount = ((container.get("resources") or {}).get("limits") or {}).get(GPU_RESOURCE)
    try:
        return Quantity.parse(amount).ceil() if amount else 0
    except QuantityError:
        return 0


def _shortage(container: JsonObject, wanted: int, *, free: int) -> PodRejectedError:
    return PodRejectedError(
        "UnexpectedAdmissionError",
        f"container {container['name']!r} asks for {wanted} {GPU_RESOURCE}, and {free} are free on this node",
    )
