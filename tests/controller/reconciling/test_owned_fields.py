"""Who owns which fields of an object, as far as the managedFields can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.reconciling.drift import (
    OWNED_FIELDS,
    owned_fields,
    owned_fields_of,
    strip_managed_fields,
)
from trainmaster.runtime.jsontree import JsonObject

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
@given(entries=st.lists(ENTRIES, max_size=4))
def test_they_are_what_is_kept_of_a_stripped_object(entries: list[JsonObject]) -> None:
    obj: JsonObject = {"metadata": {"name": "a", "managedFields": entries}, "spec": {"c": 1}}
    owned = owned_fields_of(obj, "trainer")
    stripped = strip_managed_fields(obj)
    assert owned_fields(stripped) == owned
    assert OWNED_FIELDS in stripped["metadata"] or owned is None
    assert "managedFields" not in stripped["metadata"]


@pytest.mark.guarantee("A-5")
@pytest.mark.parametrize("text", ["", "[]", "[", "[{]", '["trainer"]', '[{"manager":"trainer","operation":"Apply",x}]'])
def test_of_a_text_that_is_none_nothing_is_ours(text: str) -> None:
    assert owned_fields(strip_managed_fields({"metadata": {"managedFields": text}})) is None
