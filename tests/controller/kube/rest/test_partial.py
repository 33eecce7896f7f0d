"""Objects that the decoder refuses: what is kept of them, and that the others are not lost."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.errors import MalformedResponse
from trainmaster.controller.kube.rest.partial import (
    is_well_typed,
    partial_metadata,
    read_frame,
    read_items,
    read_object,
)
from trainmaster.controller.kube.rest.watch import decode_event
from trainmaster.runtime.jsontext import JsonError
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, why_unreadable

METADATA = {"name": "x", "namespace": "tenant", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
ODD = {
    "deep": b"[" * 5000 + b"]" * 5000,
    "deeper than ours": b'{"a":' * 300 + b"1" + b"}" * 300,
    "half a character": b'"\\ud800"',
    "no character": b'"\xff\xfe"',
    "infinite": b"1e999",
    "long": b"1" * 400,
}


def with_spec(spec: bytes, metadata: bytes = orjson.dumps(METADATA)) -> bytes:
    """An object with a spec of some text."""
    return b'{"apiVersion":"v1","kind":"Thing","metadata":' + metadata + b',"spec":{"a":[' + spec + b"]}}"


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
def test_of_an_object_that_cannot_be_read_the_metadata_is_kept(spec: bytes) -> None:
    obj, end = read_object(with_spec(spec))
    assert end == len(with_spec(spec))
    assert obj == {"apiVersion": "v1", "kind": "Thing", "metadata": METADATA, UNREADABLE: why_unreadable(obj)}
    assert (why_unreadable(obj) or "").startswith("spec: ")


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD)
def test_managed_fields_that_cannot_be_read_are_left_out_and_the_rest_is_whole(fields: bytes) -> None:
    metadata = orjson.dumps(METADATA)[:-1] + b',"managedFields":[{"fieldsV1":' + fields + b"}]}"
    obj, _ = read_object(with_spec(b"1", metadata))
    assert obj == {"apiVersion": "v1", "kind": "Thing", "metadata": METADATA, "spec": {"a": [1]}}


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
def test_an_event_of_an_object_that_cannot_be_read_is_an_event(spec: bytes) -> None:
    for line in (
        b'{"type":"MODIFIED","object":' + with_spec(spec) + b"}",
        b' { "object" : ' + with_spec(spec) + b' , "type" : "MODIFIED" } \n',
    ):
        obj = read_frame(line)["object"]
        assert obj["metadata"] == METADATA
        assert (read_frame(line)["type"], UNREADABLE in obj) == ("MODIFIED", True)
        assert decode_event(line).type == "MODIFIED"


@pytest.mark.guarantee("P-8")
@pytest.mark.parametrize("cut", [1, 30, 60, 200, 5000, 10_100])
def test_a_frame_that_was_cut_is_no_event(cut: int) -> None:
    line = b'{"type":"ADDED","object":' + with_spec(ODD["deep"]) + b"}"
    with pytest.raises(MalformedResponse):
        decode_event(line[:-cut])


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b"[]", b"1", b"{", b'{"a"', b'{"a":', b'{"a":}', b'{"a":1', b"{1:2}", b"{a:1}", b'{"metadata":1}'),
        *(
            b'{"metadata":{}',
            b'{"a":1}',
            b'{"a":[}',
            b'{"metadata":{} "a":1}',
            b'{"a":1,"metadata":',
            b'{"metadata":{"a"}}',
        ),
    ],
)
def test_what_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(JsonError):
        read_object(text)


TEXTS = st.sampled_from(["a", '"', "\\", '"}', "{", "]", "metadata", "é", "\n"])
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4).map(lambda obj: {**obj, "metadata": METADATA})


def encoded(tree: Any, *, spaces: bool) -> bytes:
    """JSON as servers write it, or as proxies do."""
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2 if spaces else None)


@given(
    OBJECTS.filter(lambda obj: all(type(value) is not int or abs(value) < 2**63 for value in obj.values())),
    st.booleans(),
)
def test_what_can_be_read_comes_out_as_it_is(obj: JsonObject, spaces: bool) -> None:
    try:
        text = encoded(obj, spaces=spaces)
    except orjson.JSONEncodeError:
        return
    assert read_object(text) == (orjson.loads(text), len(text))


@given(st.lists(OBJECTS, max_size=4), st.booleans())
def test_items_come_out_as_they_are(items: list[JsonObject], spaces: bool) -> None:
    try:
        text = encoded(items, spaces=spaces)
    except orjson.JSONEncodeError:
        return
    found = list(read_items(text, 1))
    assert [item for item, _ in found] == orjson.loads(text)
    assert not found or found[-1][1] == len(text) - 1


@pytest.mark.parametrize("rest", [b"", b"{}", b"[1]", b"1", b'{"metadata":{}}', b"]"])
def test_items_of_a_list_that_was_cut_are_an_error(rest: bytes) -> None:
    with pytest.raises(JsonError):
        list(read_items(b'[{"metadata":{"name":"a"}} ' + rest.removesuffix(b"]"), 1))


ODD_METADATA: dict[str, list[Any]] = {
    "namespace": [0, [], {}],
    "labels": ["x", [], {"a": 1}, {"a": None}],
    "ownerReferences": ["x", {}, [1], [{}], [{"kind": "A", "name": "b", "uid": 1, "apiVersion": "v1"}]],
    "finalizers": ["x", [1], {}],
    "generation": ["1"],
}


@pytest.mark.parametrize("odd", [{name: odd} for name, values in ODD_METADATA.items() for odd in values], ids=str)
def test_metadata_that_is_kept_has_the_types_of_the_api(odd: JsonObject) -> None:
    obj: JsonObject = {"apiVersion": "v1", "kind": 7, "metadata": {**METADATA, **odd, "other": [1]}, "spec": {}}
    assert not is_well_typed(obj["metadata"])
    kept = partial_metadata(obj, "why")
    sound = {name: value for name, value in METADATA.items() if name not in odd}
    assert kept == {"apiVersion": "v1", "metadata": sound, UNREADABLE: "why"}
    assert is_well_typed(kept["metadata"])
