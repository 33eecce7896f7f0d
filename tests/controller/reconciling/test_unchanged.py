"""The short way of recognising what is as it was applied."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.reconciling.drift import differences
from trainmaster.controller.reconciling.unchanged import is_unchanged
from trainmaster.runtime.jsontree import JsonObject

POD: JsonObject = {
    "suspend": False,
    "containers": [
        {
            "name": "node",
            "args": ["--a"],
            "env": [{"name": "B", "value": "1"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}],
        }
    ],
}
OWNED: JsonObject = {
    "f:suspend": {},
    "f:containers": {
        'k:{"name":"node"}': {
            ".": {},
            "f:name": {},
            "f:args": {},
            "f:env": {
                'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
                'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}},
            },
            "f:ports": {
                'k:{"containerPort":1,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
                'k:{"containerPort":2,"protocol":"UDP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
            },
        }
    },
}


def live(**of_container: Any) -> JsonObject:
    """The pod as the server returns it: with its defaults, and a field of somebody else."""
    pod: JsonObject = copy.deepcopy(POD)
    pod["theirs"] = 1
    pod["containers"][0]["ports"][0]["protocol"] = "TCP"
    pod["containers"][0] |= {"imagePullPolicy": "Always", **of_container}
    return pod


def test_what_the_server_usually_makes_of_an_apply_is_recognised() -> None:
    """Whatever order the managedFields have: servers sort them."""
    assert is_unchanged(POD, live(), OWNED)


@pytest.mark.parametrize(
    "of_container",
    [{"args": []}, {"env": []}, {"env": [{"name": "B", "value": "1"}, {"name": "A", "value": "3"}]}, {"ports": [1, 2]}],
)
def test_a_change_anywhere_is_seen(of_container: JsonObject) -> None:
    assert not is_unchanged(POD, live(**of_container), OWNED)


def test_two_items_that_leave_their_protocol_to_the_server_are_left_to_the_long_way() -> None:
    """Each could be the one that became this."""
    ports = [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 1, "protocol": "UDP"}]
    owned: JsonObject = {f"k:{orjson.dumps(port).decode()}": {"f:containerPort": {}} for port in ports}
    desired = {"ports": [{"containerPort": 1}, {"containerPort": 1}]}
    assert not is_unchanged(desired, {"ports": ports}, {"f:ports": owned})


def test_an_item_that_is_there_twice_does_not_stand_for_another_one_that_is_owned() -> None:
    items = [{"name": "A"}, {"name": "A"}]
    owned: JsonObject = {f'k:{{"name":"{name}"}}': {"f:name": {}} for name in "AB"}
    assert not is_unchanged({"items": items}, {"items": items}, {"f:items": owned})


def test_lists_that_have_the_same_items_are_looked_at_each_for_itself() -> None:
    """What is owned of the items of one is not what is owned of those of another."""
    items = [{"name": "A", "value": "1"}]
    cases: list[tuple[JsonObject, bool]] = [({"f:name": {}, "f:value": {}}, True), ({"f:name": {}}, False)]
    for below, expected in cases * 2:
        assert is_unchanged({"items": items}, {"items": items}, {"f:items": {'k:{"name":"A"}': below}}) is expected


# Small trees with few names, so that what is desired, there and owned often agree, and often nearly do.

NAMES = st.sampled_from("ab")
VALUES = st.sampled_from([None, 0, 1, True, "x", ""])
TREES: st.SearchStrategy[Any] = st.recursive(
    VALUES, lambda below: st.dictionaries(NAMES, below, max_size=2) | st.lists(below, max_size=2), max_leaves=8
)
KEYS = st.sampled_from([("a",), ("b",), ("a", "b")])


def as_owned(value: Any, keys: tuple[str, ...], complete: Any) -> Any:
    """Own all of a value, as the server would write that down."""
    if isinstance(value, dict):
        return {f"f:{name}": as_owned(below, keys, complete) for name, below in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        found = {}
        for item in value:
            identity = {key: item.get(key, complete) for key in keys}
            found[f"k:{orjson.dumps(identity).decode()}"] = {".": {}, **as_owned(item, keys, complete)}
        return found
    return {}


@st.composite
def cases(draw: st.DrawFn) -> tuple[JsonObject, JsonObject, JsonObject]:
    """What is desired, what is there, and what of it we own: nearly the same, and then changed somewhere."""
    keys, complete = draw(KEYS), draw(VALUES)
    desired = draw(st.dictionaries(NAMES, TREES, max_size=2))
    trees = [copy.deepcopy(desired), as_owned(desired, keys, complete)]
    _complete(trees[0], keys, complete)
    for tree in trees:
        for _ in range(draw(st.integers(0, 2))):
            _change(draw, tree)
    return desired, trees[0], trees[1]


def _complete(value: Any, keys: tuple[str, ...], complete: Any) -> None:
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _complete(below, keys, complete)
        if isinstance(value, list) and isinstance(below, dict):
            below.update({key: below.get(key, complete) for key in keys})


def _change(draw: st.DrawFn, tree: Any) -> None:
    """Change one place of a tree."""
    while tree:
        place = draw(st.sampled_from(sorted(tree) if isinstance(tree, dict) else range(len(tree))))
        if isinstance(tree[place], dict | list) and tree[place] and draw(st.booleans()):
            tree = tree[place]
        elif draw(st.booleans()):
            del tree[place]
            return
        else:
            tree[place] = draw(TREES | st.just({".": {}}))
            return


@given(cases())
def test_what_is_unchanged_has_no_difference(case: tuple[JsonObject, JsonObject, JsonObject]) -> None:
    """The short way may miss that nothing differs; it must never miss that something does."""
    desired, observed, owned = case
    if is_unchanged(desired, observed, owned):
        assert list(differences({"metadata": {}, **desired}, {"metadata": {}, **observed}, owned)) == []
