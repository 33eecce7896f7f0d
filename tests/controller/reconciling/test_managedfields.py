"""Who owns which fields of an object, as far as the managedFields can be read."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.decoding import ManagedFields
from trainmaster.controller.kube.rest.watch import decode_event
from trainmaster.controller.reconciling.managedfields import (
    OWNED_FIELDS,
    owned_fields,
    owned_fields_of,
    strip_managed_fields,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree

# What might be taken for the end of an entry, or for one of ours.
NAMES = st.sampled_from(["f:a", 'k:{"name":"a"}', 'v:"b"', '},{"a', "]", '"manager":"trainer"', "é", "."])
FIELDS: st.SearchStrategy[JsonObject] = st.recursive(
    st.just({}), lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=6
)
ENTRIES = st.fixed_dictionaries(
    {
        "manager": st.sampled_from(["trainer", "trainer2", 'a","manager":"trainer', "kubectl"]),
        "operation": st.sampled_from(["Apply", "Update"]),
        "fieldsV1": FIELDS,
    },
    optional={"subresource": st.just("status"), "time": st.just("2026-01-01T00:00:00Z")},
)


@pytest.mark.guarantee("A-5")
def test_owned_fields_are_those_of_our_applies() -> None:
    fields: list[JsonObject] = [
        {"manager": "trainer", "operation": "Update", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "fieldsV1": {"f:right": {}}},
    ]
    assert owned_fields_of({"metadata": {"managedFields": fields}}, "trainer") == {"f:right": {}}
    assert owned_fields_of({"metadata": {}}, "trainer") is None


@pytest.mark.guarantee("A-5")
@given(entries=st.lists(ENTRIES, max_size=4), last=st.booleans())
@example(entries=[{"manager": "trainer", "operation": "Apply", "fieldsV1": {'},{"a': {}}}], last=True)
@example(entries=[{"subresource": "status", "manager": "trainer", "operation": "Apply", "time": "2026"}], last=True)
def test_they_are_the_same_whether_an_object_came_in_a_list_or_by_a_watch(
    entries: list[JsonObject], last: bool
) -> None:
    metadata = {"name": "a", "managedFields": entries}
    obj: JsonObject = {"metadata": metadata if last else {**metadata, "uid": "b"}, "spec": {"c": 1}}
    owned = owned_fields_of(obj, "trainer")
    line = orjson.dumps({"type": "ADDED", "object": obj})
    by_watch = strip_managed_fields(decode_event(line, managed_fields=ManagedFields.TEXT).object)
    in_list = strip_managed_fields(copy_tree(obj))
    assert owned_fields(by_watch) == owned_fields(in_list) == owned
    assert by_watch == in_list
    assert OWNED_FIELDS in by_watch["metadata"] or owned is None
    assert "managedFields" not in by_watch["metadata"]


@pytest.mark.guarantee("A-5")
@pytest.mark.parametrize(
    "text",
    [
        '[{"manager": "trainer", "operation": "Apply", "fieldsV1": {"f:a": {}}}]',
        '[{"operation":"Apply","fieldsV1":{"f:a":{}},"manager":"tr\\u0061iner"},{"manager":"trainer"}]',
    ],
)
def test_a_text_may_be_written_in_another_way(text: str) -> None:
    assert owned_fields(strip_managed_fields({"metadata": {"managedFields": text}})) == {"f:a": {}}


@pytest.mark.guarantee("A-5")
@pytest.mark.parametrize("text", ["", "[]", "[", "[{]", '["trainer"]', '[{"manager":"trainer","operation":"Apply",x}]'])
def test_of_a_text_that_is_none_nothing_is_ours(text: str) -> None:
    assert owned_fields(strip_managed_fields({"metadata": {"managedFields": text}})) is None
