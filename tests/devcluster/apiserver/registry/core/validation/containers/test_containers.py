"""Containers: what all have, what only some may have, and how they restart."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import container, wrong, wrong_in_container, wrong_in_template

RULE: Any = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"ports": [{"containerPort": 0}]}, ["ports[0].containerPort Required"]),
        ({"ports": [{"containerPort": 1, "name": "-a"}]}, ["ports[0].name Invalid"]),
        ({"ports": [{"containerPort": 1, "name": "a--b"}]}, ["ports[0].name Invalid"]),
        (
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2},
            ["resizePolicy[1] Duplicate"],
        ),
        ({"resizePolicy": [{}]}, ["resizePolicy Required"]),
        ({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Never"}]}, ["resizePolicy NotSupported"]),
    ],
)
def test_what_containers_of_all_kinds_have(fields: Any, found: list[str]) -> None:
    assert wrong_in_container(**fields) == found


def test_the_image_of_a_template_may_be_padded() -> None:
    """Some systems replace it before there is a pod."""
    assert wrong_in_template(containers=[container(image=" ")]) == []
    assert wrong_in_template(containers=[{"name": "c"}]) == ["containers[0].image Required"]


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"restartPolicyRules": [RULE]}, ["restartPolicy Required"]),
        (
            {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]},
            ["restartPolicyRules[0].exitCodes Required"],
        ),
        ({"restartPolicy": "Never", "restartPolicyRules": [RULE] * 20}, []),
        ({"restartPolicy": "Never", "restartPolicyRules": [RULE] * 21}, ["restartPolicyRules TooMany"]),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{**RULE, "exitCodes": {"operator": "NotIn", "values": [0] * 256}}],
            },
            ["restartPolicyRules[0].exitCodes.values TooMany"],
        ),
    ],
)
def test_a_container_may_restart_by_rules_of_its_own(field: str, fields: Any, found: list[str]) -> None:
    others = {} if field == "containers" else {"containers": [container(name="main")]}
    assert wrong(**(others | {field: [container(**fields)]})) == [f"{field}[0].{each}" for each in found]


def test_names_differ_over_all_kinds() -> None:
    assert wrong(
        initContainers=[container(), container(name="i"), container(name="i")],
        ephemeralContainers=[container(name="i"), container(name="e"), container(name="e")],
    ) == [
        "ephemeralContainers[0].name Duplicate",
        "ephemeralContainers[2].name Duplicate",
        "initContainers[0].name Duplicate",
        "initContainers[2].name Duplicate",
    ]


def test_what_runs_one_after_the_other_may_have_the_same_port_of_the_host() -> None:
    port = [{"containerPort": 80, "hostPort": 80}]
    one, two = container(name="a", ports=port), container(name="b", ports=port)
    assert wrong(initContainers=[one, two]) == []
    assert wrong(containers=[one, two]) == ["containers[1].ports[0].hostPort Duplicate"]
    other = container(name="b", ports=[{**port[0], "protocol": "UDP"}])
    assert wrong(containers=[one, other]) == []


def test_a_container_for_debugging_has_little() -> None:
    debugging = container(
        name="e",
        targetContainerName="c",
        ports=[{"containerPort": 1}],
        resources={"limits": {"cpu": 1}},
        livenessProbe={"exec": {"command": ["a"]}},
        lifecycle={},
        restartPolicy="Always",
        volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "a"}],
    )
    del debugging["lifecycle"]
    found = wrong(ephemeralContainers=[debugging], volumes=[{"name": "v", "emptyDir": {}}])
    assert found == [
        f"ephemeralContainers[0].{field} Forbidden"
        for field in ("livenessProbe", "ports", "resources", "restartPolicy", "volumeMounts[0].subPath")
    ]
    assert wrong(ephemeralContainers=[container(name="e", targetContainerName="e")]) == [
        "ephemeralContainers[0].targetContainerName NotFound"
    ]
