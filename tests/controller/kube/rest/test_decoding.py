"""Decoding a part of an object gives what decoding all of it gives, but for the rest."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.decoding import ManagedFields, loads_status, loads_without_managed_fields
from trainmaster.controller.kube.rest.watch import decode_event

# What brackets and quotes there may be where the end is looked for, and the key itself in other places.
TEXTS = st.text(alphabet='],[{}":\\, managedFields', max_size=8) | st.sampled_from(
    [',"managedFields":[', ',"managedFields":[]', '],"a":"', 'x\\"managedFields']
)
NAMES = TEXTS | st.sampled_from(["managedFields", "metadata", "object"])
TREES = st.recursive(
    TEXTS | st.integers(1, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
METADATA = st.fixed_dictionaries({"name": TEXTS}, optional={"labels": TREES, "managedFields": st.lists(TREES)})
OBJECTS = st.fixed_dictionaries({"metadata": METADATA}, optional={"spec": TREES, "managedFields": TREES})


def without(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {name: each for name, each in obj["metadata"].items() if name != "managedFields"}}


@given(obj=OBJECTS, before=st.booleans(), rest=TREES)
@example(obj={"metadata": {"name": "a", "managedFields": [{"f:a]": {}}]}}, before=True, rest=None)
@example(obj={"metadata": {"name": "a", "managedFields": [[], {"a": [1]}]}}, before=True, rest=None)
@example(obj={"metadata": {"name": "a", "managedFields": []}, "spec": {"managedFields": [1]}}, before=True, rest=None)
def test_all_but_the_managed_fields_of_the_object_is_as_it_is(obj: dict[str, Any], before: bool, rest: Any) -> None:
    assert loads_without_managed_fields(orjson.dumps(obj)) == without(obj)
    frame = {"object": obj, "rest": rest} if before else {"rest": rest, "object": obj}
    assert loads_without_managed_fields(orjson.dumps(frame), "object") == {**frame, "object": without(obj)}
    obj = {"a": 1, "managedFields": [2], **obj}
    assert loads_without_managed_fields(orjson.dumps(obj)) == without(obj)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"0", b'{"a":1}', b'{"metadata":0}', b'{"metadata":{"a":1,"managedFields":0}}']
)
def test_what_has_none_is_decoded_as_it_is(text: bytes) -> None:
    if not text:
        with pytest.raises(orjson.JSONDecodeError):
            loads_without_managed_fields(text)
        return
    assert loads_without_managed_fields(text, "object") == orjson.loads(text)


def test_a_text_that_was_cut_off_is_not_decoded() -> None:
    text = orjson.dumps({"metadata": {"name": "a", "managedFields": [{"f:a": {"b": "c"}}]}, "spec": {"d": [1, "e"]}})
    for cut in range(1, 60):
        with pytest.raises(orjson.JSONDecodeError):
            loads_without_managed_fields(text[:-cut])


def test_of_an_event_they_are_not_even_looked_at() -> None:
    """Half of a character is one that no decoder takes."""
    line = b'{"type":"ADDED","object":{"kind":"A","metadata":{"name":"a","managedFields":[{"f:\\ud800":{}}]}}}'
    event = decode_event(line, managed_fields=ManagedFields.DROPPED)
    assert event.object == {"kind": "A", "metadata": {"name": "a"}}
    assert event.size == len(line)


STATUS_NAMES = st.sampled_from(["status", "resourceVersion", "metadata"]) | TEXTS
STATUS_TEXTS = TEXTS | st.sampled_from([',"status":{', '"resourceVersion":"1"', '},"status":{}', "1"])
STATUS_TREES = st.recursive(
    STATUS_TEXTS | st.integers(1, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STATUS_NAMES, inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.fixed_dictionaries({}, optional={"kind": STATUS_TREES, "spec": STATUS_TREES, "status": STATUS_TREES})


@given(
    before=st.dictionaries(STATUS_NAMES, STATUS_TREES, max_size=2),
    version=st.integers(1, 99).map(str),
    members=MEMBERS,
    first=st.booleans(),
    after=st.sampled_from([b"", b"\n", b" \r\n"]),
)
@example(before={}, version="7", members={"status": {"a": {"b": 1, "status": {"c": 2}}}}, first=True, after=b"")
@example(before={}, version="7", members={"spec": {"a": 1, "status": {"c": 2}}}, first=True, after=b"")
@example(before={}, version="7", members={"spec": 1, "status": {"c": 2}}, first=False, after=b"")
@example(before={"resourceVersion": "6"}, version="7", members={"status": {"c": 2}}, first=True, after=b"")
def test_a_status_is_that_of_the_object_or_none(
    before: dict[str, Any], version: str, members: dict[str, Any], first: bool, after: bytes
) -> None:
    metadata = {"metadata": {"labels": before, "resourceVersion": version}}
    obj = {**metadata, **members} if first else {**members, **metadata}
    found = loads_status(orjson.dumps(obj) + after)
    assert found is None or found == (obj["status"], version)


def test_of_an_answer_with_a_status_nothing_else_is_decoded() -> None:
    """Half of a character is one that no decoder takes."""
    text = b'{"kind":"A","metadata":{"resourceVersion":"5","name":"\\ud800"},"spec":{},"status":{"a":{"b":[1]}}}\n'
    assert loads_status(text) == ({"a": {"b": [1]}}, "5")


def test_a_status_that_was_cut_off_is_none() -> None:
    text = b'{"metadata":{"resourceVersion":"5"},"status":{"a":{"b":"c"},"d":[{},"e"]}}'
    assert [loads_status(text[:-cut]) for cut in range(1, 40)] == [None] * 39
