"""JSON Patch and JSON Merge Patch: the examples of their RFCs, limits, and the words of the API server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.jsonpatch import PatchError, PatchTooLarge, json_patch, merge_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


@pytest.mark.parametrize(
    ("doc", "ops", "expected"),
    [
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": 1}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
        ({"a/b": {"m~n": 1}}, [{"op": "replace", "path": "/a~1b/m~0n", "value": 2}], {"a/b": {"m~n": 2}}),
        ({"": 1}, [{"op": "remove", "path": "/"}], {}),
        ({"~2": 1}, [{"op": "remove", "path": "/~2"}], {}),
        ({}, [{"op": "add", "path": "/a", "value": 1, "from": 2}], {"a": 1}),
        ({"a": [1, {"b": None}]}, [{"op": "test", "path": "/a", "value": [1, {"b": None}]}], {"a": [1, {"b": None}]}),
    ],
)
def test_operations(doc: dict[str, Any], ops: list[Any], expected: dict[str, Any]) -> None:
    assert json_patch(doc, ops) == expected


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([{"op": "remove", "path": "/x"}], "remove operation does not apply: doc is missing key: /x"),
        (
            [{"op": "replace", "path": "/x/y", "value": 1}],
            'replace operation does not apply: doc is missing path: "/x/y"',
        ),
        ([{"op": "replace", "path": "/list/9", "value": 1}], "Unable to access invalid index: 9"),
        ([{"op": "add", "path": "/x/y", "value": 1}], 'add operation does not apply: doc is missing path: "/x/y"'),
        ([{"op": "add", "path": "/a/b/c", "value": 1}], "missing path"),
        ([{"op": "add", "path": "/list/3", "value": 1}], "invalid index: 3"),
        ([{"op": "add", "path": "/list/01", "value": 1}], "invalid index: 01"),
        ([{"op": "add", "path": "/list/-1", "value": 1}], "invalid index: -1"),
        ([{"op": "remove", "path": "/list/-"}], "invalid index: -"),
        ([{"op": "test", "path": "/a", "value": 2}], "testing value /a failed"),
        ([{"op": "test", "path": "/a", "value": True}], "testing value /a failed"),
        ([{"op": "test", "path": "/x", "value": None}], "missing key: /x"),
        ([{"op": "copy", "from": "/x", "path": "/y"}], "copy operation does not apply"),
        ([{"op": "move", "from": "/list", "path": "/list/0"}], "cannot move into itself"),
        ([{"op": "remove", "path": ""}], "the whole object cannot be removed"),
        ([{"op": "move", "from": "", "path": ""}], "the whole object cannot be removed"),
        ([{"op": "append", "path": "/a", "value": "x"}], "Unexpected kind: append"),
        ([{"op": "test", "path": "/list/-", "value": None}], "invalid index: -"),
        ([{"op": "test", "path": "/list", "value": [True, 2]}], "testing value /list failed"),
        ([{"op": "replace", "path": "", "value": []}], "not an object"),
        ([{"op": "add", "path": "a", "value": 1}], "not a JSON pointer"),
        ([{"op": "add", "path": "/a"}], "needs a 'value'"),
        ([{"op": "add", "value": 1}], "needs a string as its 'path'"),
        ([{"path": "/a"}], "needs a string as its 'op'"),
        ([{"op": "move", "path": "/a"}], "needs a string as its 'from'"),
        ([{"op": "merge", "path": "/a"}], "Unexpected kind: merge"),
        (["add"], "must be an object"),
        ({"op": "add"}, "must be a list"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(ops: Any, message: str) -> None:
    doc = {"a": 1, "list": [1, 2]}
    with pytest.raises(PatchError) as caught:
        json_patch(doc, ops)
    assert message in str(caught.value)
    assert doc == {"a": 1, "list": [1, 2]}


def test_what_was_copied_or_given_is_not_shared() -> None:
    value = {"b": 1}
    patched = json_patch(
        {},
        [
            {"op": "add", "path": "/a", "value": value},
            {"op": "copy", "from": "/a", "path": "/c"},
            {"op": "replace", "path": "/c/b", "value": 2},
        ],
    )
    assert patched == {"a": {"b": 1}, "c": {"b": 2}}
    assert value == {"b": 1}


def test_copies_cannot_blow_a_document_up() -> None:
    """Each copy doubles the document: forty of them would fill any memory."""
    ops: list[Any] = [{"op": "add", "path": "/0", "value": "x" * 1000}]
    ops += [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(1, 40)]
    with pytest.raises(PatchTooLarge, match="copy operations"):
        json_patch({}, ops)


@given(OBJECTS, st.text(max_size=3), JSON)
def test_adding_and_removing_a_field_leaves_the_rest(doc: dict[str, Any], name: str, value: Any) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    added = json_patch(doc, [{"op": "add", "path": pointer, "value": value}])
    assert added == {**doc, name: value}
    rest = json_patch(added, [{"op": "test", "path": pointer, "value": value}, {"op": "remove", "path": pointer}])
    assert rest == {key: each for key, each in doc.items() if key != name}


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


def test_copies_do_not_nest_a_document_beyond_what_can_be_stored() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    operations = [{"op": "add", "path": "/b", "value": {}}]
    path = "/b"
    for _ in range(20):
        path += "/x"
        operations.append({"op": "copy", "from": "/deep", "path": path})
        path += "/a" * 99
    with pytest.raises(PatchError, match="nested more than 150 levels deep"):
        json_patch({"deep": deep}, operations)
    operations = [{"op": "copy", "from": "/deep", "path": "/deep" + "/a" * 99 + "/x"} for _ in range(3)]
    with pytest.raises(PatchError, match="nested more than 150 levels deep"):
        json_patch({"deep": {**deep, "b": 1}}, operations)
