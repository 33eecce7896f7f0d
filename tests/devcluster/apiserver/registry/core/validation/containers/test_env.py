"""Variables of containers: each kind of source, and what it may refer to."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import wrong_in_container


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
    [
        ({}, ["envFrom Invalid"]),
        ({"configMapRef": {"name": "A B"}}, ["envFrom[0].configMapRef.name Invalid"]),
    ],
)
def test_all_variables_of_an_object(source: Any, found: list[str]) -> None:
    assert wrong_in_container(envFrom=[source]) == found
