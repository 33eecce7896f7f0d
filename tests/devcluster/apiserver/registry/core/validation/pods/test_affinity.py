"""Affinity, tolerations, spreading, gates."""

from __future__ import annotations

from typing import Any

import pytest
from support.podlifecycle import wrong

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _node(**term: Any) -> list[str]:
    found = wrong(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}})
    return [each.removeprefix(f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].") for each in found]


def _pod(kind: str = "podAffinity", **term: Any) -> list[str]:
    found = wrong(affinity={kind: {REQUIRED: [{"topologyKey": "rack", **term}]}})
    return [each.removeprefix(f"affinity.{kind}.{REQUIRED}[0]") for each in found]


@pytest.mark.parametrize(
    ("requirement", "found"),
    [
        ({"key": "a", "operator": "In", "values": ["b", ""]}, []),
        ({"key": "a", "operator": "NotIn"}, [".values Required"]),
        ({"key": "a", "operator": "Lt", "values": ["1"]}, []),
        ({"key": "a", "operator": "Lt"}, [".values Required"]),
        ({"key": "a", "operator": "In", "values": ["ok", "a b"]}, [".values[1] Invalid"]),
    ],
)
def test_labels_of_a_node(requirement: Any, found: list[str]) -> None:
    assert _node(matchExpressions=[requirement]) == [f"matchExpressions[0]{each}" for each in found]


@pytest.mark.parametrize(
    ("requirement", "found"),
    [
        ({"key": "metadata.name", "operator": "In", "values": ["node-1"]}, []),
        ({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}, [".values Required"]),
        ({"key": "metadata.name", "operator": "Exists"}, [".operator Invalid"]),
        ({"key": "metadata.name", "operator": "NotIn", "values": ["A_B"]}, [".values[0] Invalid"]),
        ({"key": "metadata.uid", "operator": "In", "values": ["a"]}, [".key Invalid"]),
    ],
)
def test_the_name_of_a_node(requirement: Any, found: list[str]) -> None:
    assert _node(matchFields=[requirement]) == [f"matchFields[0]{each}" for each in found]


@pytest.mark.parametrize(
    ("weight", "found"), [(1, []), (100, []), (0, ["weight"]), (101, ["weight"]), (-1, ["weight"])]
)
def test_weights_are_from_1_to_100(weight: int, found: list[str]) -> None:
    term = {"topologyKey": "rack", "labelSelector": {}}
    path = f"affinity.%s.{PREFERRED}[0].%s Invalid"
    assert wrong(affinity={"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": {}}]}}) == [
        path % ("nodeAffinity", each) for each in found
    ]
    assert wrong(affinity={"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}) == [
        path % ("podAntiAffinity", each) for each in found
    ]


def test_a_preference_may_name_values_that_no_label_has() -> None:
    expression = {"key": "a", "operator": "In", "values": ["a b"]}
    preferred = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    assert wrong(affinity={"nodeAffinity": {PREFERRED: [preferred]}}) == []


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("term", "found"),
    [
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            [".labelSelector.matchExpressions[0].values Forbidden"],
        ),
        (
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}},
            [".labelSelector.matchExpressions[0].values[0] Invalid"],
        ),
        ({"namespaceSelector": {"matchLabels": {"a": "-"}}}, [".namespaceSelector.matchLabels Invalid"]),
        ({"namespaces": ["a.b"]}, [".namespace Invalid"]),
        ({"matchLabelKeys": ["a"]}, [".matchLabelKeys Forbidden"]),
        ({"mismatchLabelKeys": ["a"]}, [".mismatchLabelKeys Forbidden"]),
        ({"labelSelector": {}, "matchLabelKeys": ["a b"]}, [".matchLabelKeys[0] Invalid"]),
        (
            {
                "labelSelector": {
                    "matchLabels": {"a": "x"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}],
                },
                "matchLabelKeys": ["a"],
            },
            ["[0] Invalid"],
        ),
    ],
)
def test_pods_that_are_near_or_far(kind: str, term: Any, found: list[str]) -> None:
    assert _pod(kind, **term) == found


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
