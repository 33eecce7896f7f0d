"""What servers fill in is remembered, and makes no difference to what is told of an object."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.controller.reconciling import created_drift
from trainmaster.controller.reconciling.created_drift import CreatedDrift
from trainmaster.controller.reconciling.drift import Drift, drift_of_created
from trainmaster.runtime.jsontree import JsonObject

NAMES = st.sampled_from(["a", "b", "name", "metadata"])
TREES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([0, 1, "a", "name", None]),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(NAMES, below, max_size=2),
    max_leaves=6,
)


def thing(name: str, spec: Any, **fields: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec, **fields}


def filled_in(tree: Any, filling: list[Any]) -> Any:
    """Fill in one value after the other, where there is room for one, in the order of the tree."""
    if isinstance(tree, dict):
        found = {name: filled_in(value, filling) for name, value in tree.items()}
        if filling and (value := filling.pop(0)) is not None:
            found.setdefault("default", value)
        return found
    return [filled_in(each, filling) for each in tree] if isinstance(tree, list) else tree


def as_created(obj: JsonObject, filling: list[Any]) -> JsonObject:
    created = filled_in(copy.deepcopy(obj), list(filling))
    created["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    return dict(created)


PAIRS = st.lists(
    st.tuples(TREES, st.lists(st.sampled_from([None, 0, "x", {"y": 1}]), max_size=4), st.none() | TREES),
    min_size=1,
    max_size=4,
)


@given(PAIRS)
@example([([{"name": "a"}], [1], None), ([{"b": "a"}], [1], None)])
@example([([{"name": "a"}, {"name": 1}], [1], None), ([{"name": "a"}, "name"], [1], None)])
@example([({"a": {"b": 1}}, [1], None), ({"a": {}}, [1], None), ({"a": []}, [1], None), ({"a": "default"}, [1], None)])
def test_whatever_was_created_before_the_drift_is_the_same(pairs: list[tuple[Any, list[Any], Any]]) -> None:
    known = CreatedDrift()
    for number, (spec, filling, admitted) in enumerate(pairs):
        desired = thing(str(number), spec)
        created = as_created(desired if admitted is None else thing(str(number), admitted), filling)
        before = copy.deepcopy((desired, created))
        assert known.of(desired, created) is drift_of_created(desired, created)
        assert (desired, created) == before


def test_what_is_filled_in_as_before_is_not_searched_for(monkeypatch: Any) -> None:
    known = CreatedDrift()
    spec = {"jobs": [{"name": "a", "ports": [{"port": 1}]}], "policy": {}}
    filling = ["of no", "interest", {"y": 1}, 0]
    desired = thing("first", spec)
    assert known.of(desired, as_created(desired, filling)) is Drift.POSSIBLE
    monkeypatch.setattr(created_drift, "_places_filled_in", None)
    second = thing("second", spec, data={"more": 1})
    assert known.of(second, as_created(second, [*filling, None])) is Drift.POSSIBLE


def test_a_server_that_fills_in_a_lot_is_asked_each_time() -> None:
    known = CreatedDrift()
    desired = thing("many", [{"name": str(number)} for number in range(300)])
    for _ in range(2):
        assert known.of(desired, as_created(desired, [1] * 300)) is Drift.NONE
