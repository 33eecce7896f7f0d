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
        *("metadata.annotations['example.com/A-b']", "spec.nodeName", "spec.host", "spec.serviceAccountName"),
        *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
    ],
)
def test_a_variable_can_show_a_field_of_the_pod(path: str) -> None:
    assert _field(path) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", "fieldRef.fieldPath Required"),
        ("metadata.labels", "fieldRef.fieldPath NotSupported"),
        ("metadata.annotations", "fieldRef.fieldPath NotSupported"),
        ("spec.restartPolicy", "fieldRef.fieldPath NotSupported"),
        ("spec.schedulerName", "fieldRef.fieldPath NotSupported"),
        ("status.phase", "fieldRef.fieldPath NotSupported"),
        ("spec.containers", "fieldRef.fieldPath Invalid"),
        ("metadata.name['x']", "fieldRef.fieldPath Invalid"),
        ("metadata.labels['a b']", "fieldRef Invalid"),
        ("metadata.labels['']", "fieldRef Invalid"),
        ("metadata.annotations['a/b/c']", "fieldRef Invalid"),
    ],
)
def test_no_other_field_can_be_shown(path: str, found: str) -> None:
    assert _field(path) == [found]


def test_the_version_of_a_field_is_that_of_pods() -> None:
    assert _of(fieldRef={"apiVersion": "v1beta1", "fieldPath": "metadata.name"}) == ["fieldRef.fieldPath Invalid"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"resource": "limits.cpu", "divisor": "1m"}, []),
        ({"resource": "requests.memory", "divisor": "1Mi"}, []),
        ({"resource": "requests.ephemeral-storage", "divisor": "1G"}, []),
        ({"resource": "requests.hugepages-1Gi", "divisor": "1Gi"}, []),
        ({"resource": "limits.cpu", "divisor": "2"}, ["resourceFieldRef.divisor Invalid"]),
        ({"resource": "limits.hugepages-2Mi", "divisor": "2Mi"}, ["resourceFieldRef.divisor Invalid"]),
        ({"resource": "requests.ephemeral-storage", "divisor": "1m"}, ["resourceFieldRef.divisor Invalid"]),
        ({}, ["resourceFieldRef.resource Required"]),
        ({"resource": "cpu"}, ["resourceFieldRef.resource NotSupported"]),
        ({"resource": "limits.nvidia.com/gpu", "divisor": "7"}, ["resourceFieldRef.resource NotSupported"]),
    ],
)
def test_a_variable_can_show_a_resource_in_the_units_of_that_resource(selector: Any, found: list[str]) -> None:
    assert _of(resourceFieldRef=selector) == found


@pytest.mark.parametrize("kind", ["configMapKeyRef", "secretKeyRef"])
@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"name": "a", "key": "k", "optional": True}, []),
        ({"key": "k"}, ["name Invalid"]),
        ({"name": "A_B", "key": "k"}, ["name Invalid"]),
        ({"name": "a"}, ["key Required"]),
        ({"name": "a", "key": ".."}, ["key Invalid"]),
        ({"name": "a", "key": "..b"}, ["key Invalid"]),
        ({"name": "a", "key": "b" * 254}, ["key Invalid"]),
    ],
)
def test_a_variable_names_the_object_and_the_key(kind: str, selector: Any, found: list[str]) -> None:
    assert _of(**{kind: selector}) == [f"{kind}.{each}" for each in found]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ({"volumeName": "v", "path": "a/b", "key": "K"}, []),
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


def test_a_variable_may_be_given_twice() -> None:
    assert wrong_in_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"secretRef": {"name": "s"}}, []),
        ({}, ["envFrom Invalid"]),
        ({"prefix": "Ä", "configMapRef": {"name": "a"}}, ["envFrom[0].prefix Invalid"]),
        ({"configMapRef": {"name": "A B"}}, ["envFrom[0].configMapRef.name Invalid"]),
        ({"secretRef": {}}, ["envFrom[0].secretRef.name Required"]),
    ],
)
def test_all_variables_of_an_object(source: Any, found: list[str]) -> None:
    assert wrong_in_container(envFrom=[source]) == found
