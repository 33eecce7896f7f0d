"""Resource arithmetic on pod specifications.

Everything here works on JSON trees and never changes them. Counts follow Kubeflow Trainer where it counts: a resource
is a GPU when its name contains "gpu" (`nvidia.com/gpu`, `amd.com/gpu`, `gpu.intel.com/i915`); requests win over limits.
A slice of a GPU (`nvidia.com/mig-1g.5gb`) is one too, since a process sees it as its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import Quantity

_MIG_PREFIX: Final = "nvidia.com/mig-"

_ACCELERATORS: Final = (
    "google.com/tpu",
    "habana.ai/gaudi",
    "huawei.com/Ascend910",
    "aws.amazon.com/neuroncore",  # before the devices: each has several cores, and each core runs a process
    "aws.amazon.com/neurondevice",
    "aws.amazon.com/neuron",
)

Resources = dict[str, Quantity]
"""Quantities by resource name."""


def merge_resources(base: JsonObject, override: JsonObject) -> JsonObject:
    """Lay ResourceRequirements over others: limits and requests by resource name, claims by claim name."""
    merged: JsonObject = copy_tree(base)
    for part in ("limits", "requests"):
        if override.get(part):
            merged[part] = {**(merged.get(part) or {}), **override[part]}
    if override.get("claims"):
        both = [*(merged.get("claims") or []), *copy_tree(override["claims"])]
        claims = {claim["name"]: claim for claim in both}
        merged["claims"] = list(claims.values())
    return merged


def gpu_count(resources: JsonObject) -> int:
    """Count the GPUs that ResourceRequirements ask for; 0 when they ask for none.

    Of several kinds the first by name counts: `gpu.intel.com/i915` rather than `gpu.intel.com/memory.max`. Slices of
    GPUs count all together.

    Raises:
        QuantityError: One of the amounts is no quantity.
    """
    for part in ("requests", "limits"):
        amounts = resources.get(part)
        if not amounts:
            continue
        gpus = sorted([name for name in amounts if "gpu" in name.lower()])
        slices = [name for name in amounts if name.startswith(_MIG_PREFIX)]
        count = _first(amounts, gpus) or sum([Quantity.parse(amounts[name]).ceil() for name in slices])
        if count:
            return count
    return 0


def accelerator_count(resources: JsonObject) -> int:
    """Count the accelerators, other than GPUs, that run one process each (TPU, Gaudi, Ascend, Neuron); 0 without any.

    Raises:
        QuantityError: One of the amounts is no quantity.
    """
    return _of_requests_or_limits(resources, _ACCELERATORS)


def accelerators_of(resources: JsonObject) -> dict[str, int]:
    """Return the accelerators that ResourceRequirements ask for by the names of their resources; none that are 0.

    Those that `gpu_count` and `accelerator_count` count, and slices of GPUs each for itself.

    Raises:
        QuantityError: One of the amounts is no quantity.
    """
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    gpus = sorted(name for name in amounts if "gpu" in name.lower())
    others = [name for name in _ACCELERATORS if name in amounts]
    slices = [name for name in amounts if name.startswith(_MIG_PREFIX)]
    counts = {name: Quantity.parse(amounts[name]).ceil() for name in (*gpus[:1], *others[:1], *slices)}
    return {name: count for name, count in counts.items() if count}


def cpu_count(resources: JsonObject) -> int:
    """Count whole CPUs, rounded up; 0 when neither requests nor limits name any.

    Raises:
        QuantityError: One of the amounts is no quantity.
    """
    return _of_requests_or_limits(resources, ("cpu",))


def pod_requests(pod_spec: Mapping[str, Any]) -> Resources:
    """Compute what the scheduler reserves for one pod, by the rules of the Kubernetes API.

    Init containers run one after the other, so only the largest counts; restartable ones (sidecars) keep running beside
    everything that starts after them. Pod-level requests replace the sum where they are given, and overhead is added.

    Args:
        pod_spec: A PodSpec, as JSON.

    Returns:
        Quantities by resource name; memory in bytes, CPUs in cores.

    Raises:
        QuantityError: One of the amounts is no quantity.
    """
    running: Resources = {}
    peak: Resources = {}
    for container in pod_spec.get("initContainers") or ():
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            running = _add(running, requests)
            peak = _largest(peak, running)
        else:
            peak = _largest(peak, _add(running, requests))
    total = _largest(peak, sum_resources([running, *(_requests(c) for c in pod_spec.get("containers") or ())]))
    total.update(_requests(pod_spec))
    overhead = {name: Quantity.parse(value) for name, value in (pod_spec.get("overhead") or {}).items()}
    return _add(total, overhead)


def sum_resources(parts: Iterable[Resources]) -> Resources:
    """Add up amounts by resource name."""
    total: Resources = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def times(resources: Resources, count: int) -> Resources:
    """Return so many times the same."""
    return {name: amount * count for name, amount in resources.items()}


def _of_requests_or_limits(resources: JsonObject, names: Iterable[str]) -> int:
    return _first(resources.get("requests") or {}, names) or _first(resources.get("limits") or {}, names)


def _first(amounts: Mapping[str, Any], names: Iterable[str]) -> int:
    """Give the first amount that is not 0, rounded up."""
    for name in names:
        if name in amounts:
            count = Quantity.parse(amounts[name]).ceil()
            if count:
                return count
    return 0


def _requests(holder: Mapping[str, Any]) -> Resources:
    requests = (holder.get("resources") or {}).get("requests") or {}
    return {name: Quantity.parse(value) for name, value in requests.items()}


def _add(left: Resources, right: Resources) -> Resources:
    return sum_resources([left, right])


def _largest(left: Resources, right: Resources) -> Resources:
    merged = dict(left)
    for name, value in right.items():
        if name not in merged or merged[name] < value:
            merged[name] = value
    return merged
