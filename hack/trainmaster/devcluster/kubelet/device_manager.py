"""The device manager: which container holds which GPUs, so that no two share one.

The scheduler binds no more pods than there are GPUs for, but it knows nothing of processes: those of a pod that was
deleted at once, without a grace period, end a moment later than it. Who gets their GPUs waits for that.
"""

from __future__ import annotations

from trainmaster.devcluster.kubelet.container import CreateContainerError, PodRejectedError
from trainmaster.devcluster.kubelet.gpus import Gpus
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

GPU_RESOURCE = "nvidia.com/gpu"


class DeviceManager:
    """Which container holds which GPUs."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._holders: dict[str, str] = {}

    def allocate(self, identity: str, container: JsonObject) -> dict[str, str]:
        """Allocate the GPUs that a container asks for; gives the variables that name them. Without any it sees none.

        Raises:
            CreateContainerError: Some of them are still held.
            PodRejectedError: There are not so many.
        """
        wanted = _requested(container)
        free = [gpu for gpu in self._gpus.ids if gpu not in self._holders]
        asks = f"container {container['name']!r} asks for {wanted} {GPU_RESOURCE}"
        if wanted > len(self._gpus.ids):
            raise PodRejectedError("UnexpectedAdmissionError", f"{asks}, and this node has {len(self._gpus.ids)}")
        if wanted > len(free):
            raise CreateContainerError(
                "CreateContainerError", f"{asks}, and {len(free)} are free until others have ended"
            )
        if not self._gpus.total:
            return {}
        chosen = free[:wanted]
        for gpu in chosen:
            self._holders[gpu] = identity
        listed = ",".join(chosen)
        return {
            "CUDA_DEVICE_ORDER": self._gpus.order,
            "CUDA_VISIBLE_DEVICES": listed,
            "NVIDIA_VISIBLE_DEVICES": listed or "void",
        }

    def release(self, identity: str) -> None:
        """Take back what a container held."""
        self._holders = {gpu: holder for gpu, holder in self._holders.items() if holder != identity}


def _requested(container: JsonObject) -> int:
    amount = ((container.get("resources") or {}).get("limits") or {}).get(GPU_RESOURCE)
    try:
        return Quantity.parse(amount).ceil() if amount else 0
    except QuantityError:
        return 0
