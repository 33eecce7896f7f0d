"""Decoding without managedFields gives what decoding with them gives, but for these."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.decoding import ManagedFields, loads_without_managed_fields
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


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_text_that_was_cut_off_is_not_decoded(cut: int) -> None:
    text = orjson.dumps({"metadata": {"name": "a", "managedFields": [{"f:a": {"b": "c"}}]}, "spec": {"d": [1, "e"]}})
    with pytest.raises(orjson.JSONDecodeError):
        loads_without_managed_fields(text[:-cut])


def test_of_an_event_they_are_not_even_looked_at() -> None:
    """Half of a character is one that no decoder takes."""
    line = b'{"type":"ADDED","object":{"kind":"A","metadata":{"name":"a","managedFields":[{"f:\\ud800":{}}]}}}'
    event = decode_event(line, managed_fields=ManagedFields.DROPPED)
    assert event.object == {"kind": "A", "metadata": {"name": "a"}}
    assert event.size == len(line)
