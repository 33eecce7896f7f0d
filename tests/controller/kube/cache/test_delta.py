"""Deltas: what is told of a change without decoding both of its states."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.runtime.jsontree import JsonObject

NAMES = st.sampled_from(["a", "status", "resourceVersion", "spec"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["", "1", "2", ',"status":{', '"resourceVersion":"1"', 1, None, {}]),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(NAMES, below, max_size=2),
    max_leaves=5,
)

OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(NAMES, st.sampled_from(["1", "2"]), max_size=2),
        "spec": st.dictionaries(NAMES, VALUES, max_size=2),
        "status": st.dictionaries(NAMES, VALUES, max_size=2),
        "zone": VALUES,
    },
)


def built(parts: JsonObject, version: str) -> JsonObject:
    """As an API server writes it: keys in their order, and what is peculiar to a kind among them."""
    metadata = {"labels": parts.get("labels", {}), "name": "a", "resourceVersion": version, "uid": "u"}
    return {"metadata": metadata, **{name: value for name, value in parts.items() if name != "labels"}}


def changed(before: JsonObject, after: JsonObject) -> Delta:
    store = Store()
    store.put(built(before, "1"))
    return store.put(built(after, "2"))


@given(before=OBJECTS, after=OBJECTS)
@example(before={"spec": {"status": {"a": 1}}}, after={"spec": {"status": {"a": 2}}})
@example(before={"spec": {"a": 1}, "status": {"status": {"a": 1}}}, after={"spec": {"a": 1}, "status": {"a": 2}})
@example(before={"labels": {"resourceVersion": "1"}}, after={"labels": {"resourceVersion": "2"}})
def test_where_statuses_are_told_nothing_else_has_changed(before: JsonObject, after: JsonObject) -> None:
    statuses = changed(before, after).statuses()
    rest_of = [{name: value for name, value in each.items() if name != "status"} for each in (before, after)]
    for each in rest_of:
        each.setdefault("labels", {})
    if statuses is not None:
        assert rest_of[0] == rest_of[1]
        assert statuses == (before.get("status") or {}, after.get("status") or {})


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"a": 1}), ({"a": 1}, {"a": 2}), ({"a": {"status": {}}}, {"a": {"status": "x"}})],
)
def test_statuses_are_told_of_objects_as_api_servers_write_them(before: Any, after: Any) -> None:
    spec = {"template": {"resourceVersion": "1", "status": "of no interest"}}
    delta = changed({"spec": spec, **({"status": before} if before else {})}, {"spec": spec, "status": after})
    assert delta.statuses() == (before, after)


def test_of_what_came_or_went_no_statuses_are_told() -> None:
    store = Store()
    came = store.put(built({"status": {"a": 1}}, "1"))
    went = store.delete("a")
    assert came.statuses() is went.statuses() is None
    assert (came.is_addition, came.is_deletion, went.is_addition, went.is_deletion) == (True, False, False, True)
