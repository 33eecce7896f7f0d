"""Trees of steps: what stays, and what is another step's, when a tree changes."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runtime.provenance import Steps, carried, leaves, put, set_by, settled, value_at

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "b"])
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"value": SCALARS}), max_size=4
)  # names may repeat
TREES = st.recursive(
    SCALARS | NAMED,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("xyz"), below, max_size=3),
    max_leaves=12,
)


def flat(tree: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    if tree and isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {at: value for key, below in items for at, value in flat(below, (*path, key)).items()}
    return {path: tree}


@given(TREES, st.lists(TREES, max_size=4))
def test_each_leaf_has_one_step_and_what_does_not_change_keeps_it(first: Any, later: list[Any]) -> None:
    steps, before = set_by("0", first), first
    for number, tree in enumerate(later, start=1):
        known = copy.deepcopy(steps)
        steps = carried(before, steps, tree, str(number))
        assert {path: value for path, value, _ in leaves(tree, steps)} == flat(tree)
        assert carried(tree, steps, copy.deepcopy(tree), "never") == steps
        assert {step for _, _, step in leaves(tree, steps)} <= {
            *(step for _, _, step in leaves(before, known)),
            str(number),
        }
        before = tree


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 3, "c": 4}, {("a",), ("c",)}),
        ({"a": {}}, {"a": {"b": 1}}, {("a", "b")}),
        ({"a": {"b": 1}}, {"a": {}}, {("a",)}),
        ({"a": 1}, {"a": True}, {("a",)}),
        # Elements with names are the same wherever they stand ...
        ([{"name": "a", "value": 1}, {"name": "b"}], [{"name": "b"}, {"name": "a", "value": 2}], {(1, "value")}),
        ([{"mountPath": "/a", "name": "v"}], [{"mountPath": "/b", "name": "v"}], {(0, "mountPath")}),
        (
            [{"mountPath": "/a", "name": "v"}, {"mountPath": "/b", "name": "v"}],
            [{"mountPath": "/b", "name": "v"}, {"mountPath": "/c", "name": "v"}],
            {(1, "mountPath"), (1, "name")},
        ),
        ([{"containerPort": 1}], [{"containerPort": 2}, {"containerPort": 1}], {(0, "containerPort")}),
        # ... of others those that are the same in their order.
        (["run", "a", "b"], ["run", "--flag", "a", "b"], {(1,)}),
        (["run", "a", "b"], ["run", "c", "b"], {(1,)}),
        ([{"name": "a", "value": 1}] * 2, [{"name": "a", "value": 1}, {"name": "a", "value": 2}], {(1, "value")}),
        ([1, 2, 3], [], {()}),
        ([], [1], {(0,)}),
        ("text", ["text"], {(0,)}),
    ],
)
def test_what_has_changed_is_the_steps(before: Any, now: Any, changed: set[tuple[str | int, ...]]) -> None:
    steps = carried(before, set_by("old", before), now, "new")
    assert {path for path, _, step in leaves(now, steps) if step == "new"} == changed


def test_long_lists_are_compared_by_place() -> None:
    before = [str(number) for number in range(2_000)]
    now = [*before[:500], "new", *before[501:], "last"]
    steps = carried(before, set_by("old", before), now, "new")
    assert [path for path, _, step in leaves(now, steps) if step == "new"] == [(500,), (2_000,)]


def test_a_step_in_the_place_of_a_tree_is_that_of_all_of_it() -> None:
    tree = {"data": {"a": "1", "b": {"c": []}}, "kind": "X", "list": [1, 2]}
    steps = settled({"data": "known", "list": ["first", "second"]}, tree, "other")
    assert {path: step for path, _, step in leaves(tree, steps)} == {
        ("data", "a"): "known",
        ("data", "b", "c"): "known",
        ("kind",): "other",
        ("list", 0): "first",
        ("list", 1): "second",
    }


def test_one_step_is_put_in_the_place_of_another_and_of_no_other() -> None:
    steps: Steps = {"a": {"b": ["x", "y", "x"], "c": "x"}, "d": "x"}
    put(steps, ("a", "b"), "x", "z")
    assert steps == {"a": {"b": ["z", "y", "z"], "c": "x"}, "d": "x"}
    put(steps, ("a", "b"), "z", ["1", "2", "3"])
    assert steps == {"a": {"b": ["1", "y", "3"], "c": "x"}, "d": "x"}


def test_paths_that_lead_nowhere() -> None:
    tree = {"a": [{"b": 1}]}
    assert value_at(tree, ("a", 0, "b")) == 1
    assert [value_at(tree, path) for path in (("a", 1), ("c",), ("a", "b"), ("a", 0, "b", "c"))] == [None] * 4
