"""Upserts into pod specifications: what they replace, and that they cost what is there."""

from __future__ import annotations

from typing import Any

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import upsert_env, upsert_ports, upsert_volume_mounts, upsert_volumes


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


def test_mounts_match_by_path_and_volumes_by_name() -> None:
    container: JsonObject = {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}
    upsert_volume_mounts(container, [{"name": "b", "mountPath": "/a"}])
    assert container["volumeMounts"] == [{"name": "b", "mountPath": "/a"}]
    pods: JsonObject = {"volumes": [{"name": "a", "emptyDir": {}}]}
    upsert_volumes(pods, [{"name": "a", "secret": {}}])
    assert pods["volumes"] == [{"name": "a", "secret": {}}]


def test_ports_match_by_name_or_by_number_and_protocol() -> None:
    container: JsonObject = {"ports": [{"name": "x", "containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}]}
    upsert_ports(container, [{"name": "x", "containerPort": 9}, {"containerPort": 2}, {"containerPort": 9}])
    assert container["ports"] == [
        {"containerPort": 9},
        {"containerPort": 2, "protocol": "UDP"},
        {"containerPort": 2},
    ]


def test_what_has_an_odd_name_or_none_is_left_alone() -> None:
    container: JsonObject = {"env": [{"name": []}, {}, {"name": {}}]}
    upsert_env(container, [{"name": "A"}])
    upsert_ports(container, [])
    assert container == {"env": [{"name": []}, {}, {"name": {}}, {"name": "A"}]}, "nothing is added for nothing"
