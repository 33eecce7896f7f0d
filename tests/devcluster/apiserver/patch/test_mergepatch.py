"""JSON Merge Patch: the examples and the laws of RFC 7386."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.patch import PatchError, merge_patch

SCALARS = st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
KEYS = st.sampled_from("abc")


def objects(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(
        KEYS, st.recursive(leaves, lambda it: st.dictionaries(KEYS, it, max_size=3), max_leaves=6), max_size=3
    )


DOCUMENTS = objects(SCALARS)
PATCHES = objects(SCALARS | st.none())


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_examples_of_the_rfc(doc: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(doc, patch) == expected


@pytest.mark.parametrize("patch", [[], "a", 1, None])
def test_a_patch_must_be_an_object(patch: Any) -> None:
    with pytest.raises(PatchError, match="must be a JSON object"):
        merge_patch({}, patch)


@given(DOCUMENTS, PATCHES)
def test_patching_twice_is_patching_once(doc: Any, patch: Any) -> None:
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) == once


@given(DOCUMENTS, DOCUMENTS)
def test_every_document_without_nulls_can_be_reached_by_a_patch(old: Any, new: Any) -> None:
    assert merge_patch(old, difference(old, new)) == new


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        nested = isinstance(value, dict) and isinstance(old.get(key), dict)
        patch[key] = difference(old[key], value) if nested else value
    return patch


@given(DOCUMENTS, PATCHES)
def test_inputs_stay_as_they_are_and_are_not_shared(doc: Any, patch: Any) -> None:
    before = repr((doc, patch))
    result = merge_patch(doc, patch)
    for value in result.values():
        if isinstance(value, dict):
            value.clear()
    assert repr((doc, patch)) == before


@given(DOCUMENTS)
def test_an_empty_patch_changes_nothing(doc: Any) -> None:
    assert merge_patch(doc, {}) == doc
