"""Field sets: they are sets, and FieldsV1 carries them faithfully."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.apply import FieldSet, FieldsInvalid

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x","port":1}', 'v:"s"', "v:1", "i:0"])
TREES = st.recursive(
    st.just({}),
    lambda below: st.dictionaries(ELEMENTS, below, max_size=3).flatmap(
        lambda tree: st.sampled_from([tree, {**tree, ".": {}}]) if tree else st.just({})
    ),
    max_leaves=8,
).map(lambda tree: {element: node for element, node in tree.items() if element != "."})
SETS = TREES.map(FieldSet)


def paths(fields: FieldSet) -> set[str]:
    return set(fields.paths())


@given(SETS)
def test_fieldsv1_round_trip(fields: FieldSet) -> None:
    assert FieldSet.decode(fields.encode()) == fields


@given(SETS, SETS)
def test_operations_are_those_of_sets(left: FieldSet, right: FieldSet) -> None:
    assert paths(left | right) == paths(left) | paths(right)
    assert paths(left - right) == paths(left) - paths(right)
    assert paths(left & right) == paths(left) & paths(right)


@given(SETS, SETS)
def test_equal_sets_have_equal_trees(left: FieldSet, right: FieldSet) -> None:
    """Whether an apply changed anything is decided by comparing trees."""
    assert (left | right) == (right | left)
    assert ((left - right) | (left & right)) == left
    assert (left - left) == FieldSet()
    assert bool(left) == bool(paths(left))


@given(SETS, SETS)
def test_operations_leave_their_operands_alone(left: FieldSet, right: FieldSet) -> None:
    before = repr((left, right))
    _ = (left | right, left - right, left & right)
    assert repr((left, right)) == before


def test_readable_paths() -> None:
    fields = FieldSet.decode(
        {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"a"}': {".": {}, "f:ports": {'k:{"protocol":"TCP","containerPort":80}': {}}},
                },
                "f:finalizers": {'v:"x"': {}},
                "f:args": {"i:0": {}},
            }
        }
    )
    assert list(fields.paths()) == [
        ".spec.args[0]",
        '.spec.containers[name="a"]',
        '.spec.containers[name="a"].ports[containerPort=80,protocol="TCP"]',
        '.spec.finalizers[="x"]',
    ]


def test_equal_keys_are_equal_however_they_are_written() -> None:
    one = FieldSet.decode({"f:a": {'k:{"b":1,"a":"x"}': {}}})
    other = FieldSet.decode({"f:a": {'k:{ "a": "x", "b": 1 }': {".": {}}}})
    assert one == other


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "fieldsV1 must be an object"),
        ({"f:a": 1}, "fieldsV1/f:a must be an object"),
        ({"a": {}}, "unknown path element 'a'"),
        ({"x:a": {}}, "unknown path element 'x:a'"),
        ({"f:a": {"k:{": {}}}, "not JSON after k:"),
        ({"k:[]": {}}, "unknown path element"),
        ({"v:x": {}}, "not JSON after v:"),
        ({"i:x": {}}, "unknown path element"),
    ],
)
def test_what_cannot_be_read_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(FieldsInvalid, match=message):
        FieldSet.decode(fields)
