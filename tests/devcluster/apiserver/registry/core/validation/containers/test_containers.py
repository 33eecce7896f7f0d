"""Containers: images, ports, restart rules, variables, probes and hooks."""

from __future__ import annotations

from typing import Any

import pytest
from support.podlifecycle import container, wrong, wrong_in_container, wrong_in_template

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


def _of(**source: Any) -> list[str]:
    found = wrong_in_container(env=[{"name": "A", "valueFrom": source}])
    return [each.removeprefix("env[0].valueFrom").removeprefix(".") for each in found]


def _field(path: str) -> list[str]:
    return _of(fieldRef={"fieldPath": path})


@pytest.mark.parametrize(
    "path",
    [
        *("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['app']"),
        *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
    ],
)
def test_a_variable_can_show_a_field_of_the_pod(path: str) -> None:
    assert _field(path) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", "fieldRef.fieldPath Required"),
        ("metadata.annotations", "fieldRef.fieldPath NotSupported"),
        ("spec.restartPolicy", "fieldRef.fieldPath NotSupported"),
        ("spec.schedulerName", "fieldRef.fieldPath NotSupported"),
        ("metadata.name['x']", "fieldRef.fieldPath Invalid"),
        ("metadata.labels['a b']", "fieldRef Invalid"),
        ("metadata.labels['']", "fieldRef Invalid"),
        ("metadata.annotations['a/b/c']", "fieldRef Invalid"),
    ],
)
def test_no_other_field_can_be_shown(path: str, found: str) -> None:
    assert _field(path) == [found]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"resource": "limits.cpu", "divisor": "1m"}, []),
        ({"resource": "requests.memory", "divisor": "1Mi"}, []),
        ({"resource": "requests.ephemeral-storage", "divisor": "1G"}, []),
        ({"resource": "requests.hugepages-1Gi", "divisor": "1Gi"}, []),
        ({"resource": "limits.hugepages-2Mi", "divisor": "2Mi"}, ["resourceFieldRef.divisor Invalid"]),
        ({"resource": "requests.ephemeral-storage", "divisor": "1m"}, ["resourceFieldRef.divisor Invalid"]),
        ({}, ["resourceFieldRef.resource Required"]),
        ({"resource": "limits.nvidia.com/gpu", "divisor": "7"}, ["resourceFieldRef.resource NotSupported"]),
    ],
)
def test_a_variable_can_show_a_resource_in_the_units_of_that_resource(selector: Any, found: list[str]) -> None:
    assert _of(resourceFieldRef=selector) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({}, ["key Required", "path Required", "volumeName Required"]),
        ({"volumeName": "V", "path": "../b", "key": "K="}, ["key Invalid", "path Invalid", "volumeName Invalid"]),
    ],
)
def test_a_variable_of_a_file_names_the_volume_the_file_and_the_key(selector: Any, found: list[str]) -> None:
    assert _of(fileKeyRef=selector) == [f"fileKeyRef.{each}" for each in found]


def test_a_variable_has_one_source() -> None:
    two: Any = {"configMapKeyRef": {"name": "a", "key": "k"}, "secretKeyRef": {"name": "a", "key": "k"}}
    sources: list[Any] = [{}, two]
    for source in sources:
        assert wrong_in_container(env=[{"name": "A", "valueFrom": source}]) == ["env[0].valueFrom Invalid"]


@pytest.mark.parametrize("name", ["a.b", "1A", "a b", "-", "/"])
def test_names_of_variables_are_almost_free(name: str) -> None:
    assert wrong_in_container(env=[{"name": name}], envFrom=[{"prefix": name, "secretRef": {"name": "s"}}]) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [({}, ["envFrom Invalid"]), ({"configMapRef": {"name": "A B"}}, ["envFrom[0].configMapRef.name Invalid"])],
)
def test_all_variables_of_an_object(source: Any, found: list[str]) -> None:
    assert wrong_in_container(envFrom=[source]) == found


EXEC: Any = {"exec": {"command": ["true"]}}


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"sleep": {"seconds": 1}}, [" Required"]),
        ({**EXEC, "grpc": {"port": 0}}, [".grpc Forbidden"]),
        ({"tcpSocket": {"port": "a--b"}}, [".tcpSocket.port Invalid"]),
        ({"tcpSocket": {"port": ""}}, [".tcpSocket.port Invalid"]),
        ({"httpGet": {"port": 80, "httpHeaders": [{"name": "a b"}]}}, [".httpGet.httpHeaders Invalid"]),
    ],
)
def test_a_probe_has_one_handler(probe: str, given: Any, found: list[str]) -> None:
    assert wrong_in_container(**{probe: given}) == [f"{probe}{each}" for each in found]


@pytest.mark.parametrize(
    ("probe", "fields", "found"),
    [
        ("livenessProbe", {"terminationGracePeriodSeconds": 5}, []),
        ("startupProbe", {"terminationGracePeriodSeconds": -1}, ["terminationGracePeriodSeconds Invalid"]),
        ("readinessProbe", {"successThreshold": 3}, []),
        ("startupProbe", {"successThreshold": 3}, ["successThreshold Invalid"]),
    ],
)
def test_only_readiness_is_counted_and_only_the_others_end_something(probe: str, fields: Any, found: list[str]) -> None:
    assert wrong_in_container(**{probe: EXEC | fields}) == [f"{probe}.{each}" for each in found]


@pytest.mark.parametrize("hook", ["postStart", "preStop"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"sleep": {"seconds": 30}}, []),
        ({"sleep": {"seconds": 31}}, [".sleep Invalid"]),
        ({"sleep": {"seconds": -1}}, [".sleep Invalid"]),
        ({"sleep": {"seconds": 1}, **EXEC}, [".sleep Forbidden"]),
    ],
)
def test_a_hook_has_one_handler_and_sleeps_within_the_grace_period(hook: str, given: Any, found: list[str]) -> None:
    assert wrong_in_container(lifecycle={hook: given}) == [f"lifecycle.{hook}{each}" for each in found]


def test_what_runs_before_the_others_has_neither_unless_it_goes_on() -> None:
    fields: Any = {"lifecycle": {"preStop": EXEC}, "readinessProbe": EXEC}
    before = {**container(**fields), "name": "i"}
    assert wrong(initContainers=[before]) == [
        "initContainers[0].lifecycle Forbidden",
        "initContainers[0].readinessProbe Forbidden",
    ]
    assert wrong(initContainers=[before | {"restartPolicy": "Always"}]) == []
