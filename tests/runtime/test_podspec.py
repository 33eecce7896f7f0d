"""Upserts into pod specifications, counts of resource requirements, and hosts dealt out to slices."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.multislice import SlicesInvalid, hosts_per_slice
from trainmaster.runtime.podspec import upsert_env, upsert_ports
from trainmaster.runtime.resource_requirements import accelerator_count, gpu_count
from trainmaster.runtime.validation.problems import Consequence, check_labels


class Counted(dict[str, Any]):
    """An item that counts how often any of them is looked at."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        Counted.looks += 1
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        Counted.looks += 1
        return super().__getitem__(key)


def test_thousands_of_variables_are_each_looked_at_a_few_times() -> None:
    """They were compared with each other: 40,000, as many as an object can have, took minutes."""
    Counted.looks = 0
    container: JsonObject = {"env": [Counted(name=f"OLD_{number}", value="") for number in range(2000)]}
    upsert_env(container, [Counted(name=f"NEW_{number}", value="") for number in range(2000)])
    assert len(container["env"]) == 4000
    assert Counted.looks <= 4 * 4000


def test_the_first_match_is_replaced_in_place_and_what_is_new_comes_last() -> None:
    container: JsonObject = {"env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]}
    upsert_env(container, [{"name": "A", "value": "3"}, {"name": "C"}, {"name": "C", "value": "4"}])
    assert container["env"] == [
        {"name": "A", "value": "3"},
        {"name": "B"},
        {"name": "A", "value": "2"},
        {"name": "C", "value": "4"},
    ]


def test_ports_match_by_name_or_by_number_and_protocol() -> None:
    container: JsonObject = {"ports": [{"name": "x", "containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}]}
    upsert_ports(container, [{"name": "x", "containerPort": 9}, {"containerPort": 2}, {"containerPort": 9}])
    assert container["ports"] == [{"containerPort": 9}, {"containerPort": 2, "protocol": "UDP"}, {"containerPort": 2}]


def test_what_has_an_odd_name_or_none_is_left_alone() -> None:
    container: JsonObject = {"env": [{"name": []}, {}, {"name": {}}]}
    upsert_env(container, [{"name": "A"}])
    upsert_ports(container, [])
    assert container == {"env": [{"name": []}, {}, {"name": {}}, {"name": "A"}]}, "nothing is added for nothing"


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
        ({"huawei.com/Ascend910": 8}, 8),
        ({"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}, 2),
        ({"aws.amazon.com/neurondevice": 16}, 16),
    ],
)
def test_accelerators_that_are_no_gpus_count(limits: JsonObject, count: int) -> None:
    assert accelerator_count({"limits": limits}) == accelerator_count({"requests": limits}) == count
    assert gpu_count({"limits": {name: n for name, n in limits.items() if "gpu" not in name}}) == 0


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_hosts_come_out_even_or_not_at_all(hosts: int, slices: int) -> None:
    if hosts % slices == 0:
        assert hosts_per_slice(hosts, slices, name="node") * slices == hosts
        return
    with pytest.raises(SlicesInvalid, match=rf"^{hosts} nodes .* {slices} slices"):
        hosts_per_slice(hosts, slices, name="node")


def test_null_among_labels_is_an_empty_text() -> None:
    """As the API server decodes it."""
    assert list(check_labels({"pool": None}, "spec.nodeSelector", Consequence.JOB_REFUSED)) == []
