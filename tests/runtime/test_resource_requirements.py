"""Counts of what ResourceRequirements ask for."""

from __future__ import annotations

import pytest

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resource_requirements import accelerator_count, gpu_count


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ({}, 0),
        ({"limits": None}, 0),
        ({"limits": {"amd.com/GPU": "2"}}, 2),
        ({"limits": {"example.com/gpu": "500m"}}, 1),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}, 1),
        ({"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 2}}, 2),
        ({"requests": {"nvidia.com/gpu": 0}, "limits": {"nvidia.com/gpu": 2}}, 2),
    ],
)
def test_gpus(resources: JsonObject, count: int) -> None:
    assert gpu_count(resources) == count


@pytest.mark.defect("U11")
@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"gpu.intel.com/memory.max": 16, "gpu.intel.com/i915": 1}, 1),
        ({"gpu.intel.com/i915": 1, "gpu.intel.com/memory.max": 16}, 1),
        ({"amd.com/gpu": 0, "nvidia.com/gpu": 2}, 2),
    ],
)
def test_of_several_kinds_of_gpu_always_the_same_counts(limits: JsonObject, count: int) -> None:
    """Which one it was used to be chance."""
    assert gpu_count({"limits": limits}) == count


@pytest.mark.defect("U11")
def test_slices_of_gpus_count() -> None:
    """They did not, although a process trains on each."""
    slices = {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1}
    assert gpu_count({"limits": slices}) == 3
    assert gpu_count({"limits": {**slices, "nvidia.com/gpu": 1}}) == 1
    assert accelerator_count({"limits": slices}) == 0


@pytest.mark.defect("U11")
@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"cpu": 8, "nvidia.com/gpu": 1}, 0),
        ({"google.com/tpu": "4"}, 4),
        ({"habana.ai/gaudi": 8}, 8),
        ({"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}, 2),
        ({"aws.amazon.com/neurondevice": 16}, 16),
    ],
)
def test_accelerators_that_are_no_gpus_count(limits: JsonObject, count: int) -> None:
    assert accelerator_count({"limits": limits}) == accelerator_count({"requests": limits}) == count
    assert gpu_count({"limits": {name: n for name, n in limits.items() if "gpu" not in name}}) == 0
