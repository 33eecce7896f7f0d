"""JSONPath: the subset that printer columns use."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path

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
