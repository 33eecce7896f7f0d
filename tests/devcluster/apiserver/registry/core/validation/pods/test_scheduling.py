"""Tolerations, spreading, gates."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import wrong

SPREAD: Any = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


@pytest.mark.parametrize(
    ("toleration", "found"),
    [
        ({"operator": "Exists"}, []),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}, []),
        ({"key": "a", "operator": "Lt", "value": "5"}, ["operator NotSupported"]),
    ],
)
def test_a_toleration(toleration: Any, found: list[str]) -> None:
    assert wrong(tolerations=[toleration]) == [f"tolerations[0].{each}" for each in found]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"maxSkew": -1}, [".maxSkew Invalid"]),
        ({"topologyKey": ""}, [".topologyKey Required"]),
        ({"minDomains": -1, "whenUnsatisfiable": "ScheduleAnyway"}, [".minDomains Invalid"]),
        ({"matchLabelKeys": ["a"]}, []),
        ({"matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {"a": "b"}}}, [".matchLabelKeys[0] Invalid"]),
        ({"matchLabelKeys": ["a"], "labelSelector": None}, [".matchLabelKeys Forbidden"]),
    ],
)
def test_a_constraint_on_spreading(change: Any, found: list[str]) -> None:
    constraint = {key: value for key, value in (SPREAD | change).items() if value is not None}
    assert wrong(topologySpreadConstraints=[constraint]) == [f"topologySpreadConstraints[0]{each}" for each in found]


def test_no_two_constraints_are_about_the_same() -> None:
    assert wrong(topologySpreadConstraints=[SPREAD, {**SPREAD, "maxSkew": 2}]) == [
        "topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable} Duplicate"
    ]
    assert wrong(topologySpreadConstraints=[SPREAD, {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"readinessGates": [{"conditionType": "example.com/ready"}] * 2}, []),
        ({"readinessGates": [{}]}, ["readinessGates[0].conditionType Invalid"]),
        ({"overhead": {"cpu": 1}}, []),
    ],
)
def test_single_fields(fields: Any, found: list[str]) -> None:
    assert wrong(**fields) == found
