"""Columns of tables, and the subset of JSONPath that they use."""

from datetime import UTC, datetime
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.registry import Column, printers
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path

NOW = datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
METADATA = {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}


def cells(shown: tuple[Column, ...], obj: dict[str, Any]) -> dict[str, Any]:
    return {column.name: column.cell({"metadata": METADATA, **obj}, NOW) for column in shown}


def test_pods() -> None:
    statuses = [
        {"ready": True, "restartCount": 2, "state": {"running": {}}},
        {"ready": False, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]
    status = {"phase": "Running", "podIP": "127.0.0.2", "containerStatuses": statuses}
    obj = {"spec": {"containers": [{}, {}], "nodeName": "n"}, "status": status}
    assert cells(printers.PODS, obj) == {
        "Name": "x",
        "Ready": "1/2",
        "Status": "CrashLoopBackOff",
        "Restarts": "3",
        "Age": "60m",
        "IP": "127.0.0.2",
        "Node": "n",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }
    gated = {"containers": [{}], "readinessGates": [{"conditionType": "acme.io/a"}, {"conditionType": "acme.io/b"}]}
    conditions = [{"type": "acme.io/a", "status": "True"}, {"type": "acme.io/b", "status": "False"}]
    assert cells(printers.PODS, {"spec": gated, "status": {"conditions": conditions}})["Readiness Gates"] == "1/2"
    new = {"spec": {"containers": [{}]}, "status": {"phase": "Pending"}}
    assert cells(printers.PODS, new)["Status"] == "Pending"
    assert cells(printers.PODS, new)["IP"] == "<none>"


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ([], "Running"),
        (["Suspended"], "Suspended"),
        (["SuccessCriteriaMet", "Complete"], "Complete"),
        (["Failed"], "Failed"),
    ],
)
def test_jobs(conditions: list[str], text: str) -> None:
    status = {
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:01:00Z",
        "succeeded": 1,
        "conditions": [{"type": each, "status": "True"} for each in conditions],
    }
    shown = cells(printers.JOBS, {"spec": {"completions": 2}, "status": status})
    assert (shown["Status"], shown["Completions"], shown["Duration"]) == (text, "1/2", "60s")


def test_declared_columns_of_custom_resources() -> None:
    declared: list[dict[str, Any]] = [
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "On", "type": "string", "jsonPath": ".spec.on"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
        {"name": "Wrong", "type": "integer", "jsonPath": ".status.state"},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
        {"name": "Odd", "type": "date", "jsonPath": ".status.state"},
        {"name": "Missing", "type": "string", "jsonPath": ".status.nothing"},
    ]
    obj = {
        "spec": {"on": True, "count": 3},
        "status": {"state": "good", "conditions": [{"type": "Ready", "status": "False"}]},
    }
    shown = printers.custom_columns(declared)
    assert cells(shown, obj) == {
        "Name": "x",
        "State": "good",
        "Ready": "False",
        "On": "true",
        "Count": 3,
        "Wrong": None,
        "Since": "60m",
        "Odd": "<invalid>",
        "Missing": None,
    }
    assert [column.priority for column in shown] == [0, 0, 0, 0, 0, 0, 1, 0, 0]


def test_every_column_of_every_built_in_kind_copes_with_an_empty_object() -> None:
    obj = {"metadata": METADATA, "spec": {"containers": []}}
    for kind in builtin_registry().kinds():
        for column in kind.columns:
            column.cell(obj, NOW)


OBJ: dict[str, Any] = {
    "metadata": {"name": "x", "labels": {"a.b/c": "dotted"}},
    "spec": {"n": 0, "list": [1, 2, 3], "off": False, "map": {"one": {"v": 1}, "two": {"v": 2}}},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "weight": 1, "current": True},
            {"type": "Failed", "status": "False", "weight": 5},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["x"]),
        ("{.metadata.name}", ["x"]),
        ("$.metadata.name", ["x"]),
        ("metadata.name", ["x"]),
        (r".metadata.labels.a\.b/c", ["dotted"]),
        (".metadata.labels['a.b/c']", ["dotted"]),
        (r".metadata.labels['a\.b/c']", ["dotted"]),
        (".spec.n", [0]),
        (".spec.off", [False]),
        (".spec.list", [[1, 2, 3]]),
        (".spec.list[*]", [1, 2, 3]),
        (".spec.list[0]", [1]),
        (".spec.list[-1]", [3]),
        (".spec.list[-1:]", [3]),
        (".spec.list[0:2]", [1, 2]),
        (".spec.list[:1]", [1]),
        (".spec.list[9]", []),
        (".spec.map.*.v", [1, 2]),
        (".status.conditions[-1:].type", ["Failed"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Ready')].status", ["True"]),
        ('.status.conditions[?(@.type!="Ready")].type', ["Failed"]),
        (".status.conditions[?(@.weight>1)].type", ["Failed"]),
        (".status.conditions[?(@.weight<=1)].type", ["Ready"]),
        (".status.conditions[?(@.weight==true)].type", []),
        (".status.conditions[?(@.current)].type", ["Ready"]),
        (".status.conditions[?(@.current==true)].type", ["Ready"]),
        ('.status.conditions[?(@.weight<"a")].type', []),
        ('.status.conditions[?(@.type=="None")].status', []),
        ('.status.conditions[?(@.type=="a)b]")].status', []),
        (".missing.name", []),
        (".metadata.name.deeper", []),
        (".metadata.name[0]", []),
    ],
)
def test_paths(path: str, found: list[Any]) -> None:
    assert compile_path(path)(OBJ) == found


def test_the_object_itself() -> None:
    assert compile_path(".")(OBJ) == [OBJ]
    assert compile_path("$")(OBJ) == [OBJ]


@pytest.mark.parametrize("path", ["..name", ".a[", ".a[b]", ".a[?(@.x==y)]", ".a[0,1]", ".a.", ".a[?(x)]"])
def test_bad_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="JSONPath"):
        compile_path(path)
