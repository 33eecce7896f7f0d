"""The store and its indexes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.kube.storing import Store, object_key, parse_resource_version, split_key
from trainmaster.runtime.jsontree import JsonObject


def thing(name: str, version: int = 1, *, color: str = "red", namespace: str | None = "ns") -> JsonObject:
    metadata: JsonObject = {"name": name, "resourceVersion": str(version), "uid": name, "labels": {"color": color}}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata}


def color(obj: JsonObject) -> Iterable[str]:
    return [obj["metadata"]["labels"]["color"]]


def names(objects: list[JsonObject]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def test_keys() -> None:
    """S-9"""
    assert object_key(thing("a")) == "ns/a"
    assert object_key(thing("a", namespace=None)) == "a"
    assert split_key("ns/a") == ("ns", "a")
    assert split_key("a") == (None, "a")


def test_listing_by_namespace() -> None:
    store = Store()
    store.replace([thing("a"), thing("b", namespace="ns2"), thing("c")], resource_version="1")
    assert names(store.list("ns")) == ["a", "c"]
    assert names(store.list()) == ["a", "b", "c"]
    assert store.list("n") == []


def test_index_added_late_covers_what_is_stored() -> None:
    """S-21"""
    store = Store()
    store.put(thing("a"))
    store.add_index("color", color)
    store.put(thing("b", color="blue"))
    assert names(store.by_index("color", "red")) == ["a"]
    store.put(thing("a", 2, color="blue"))
    assert names(store.by_index("color", "blue")) == ["b", "a"]
    assert store.by_index("color", "red") == []


def test_index_names_are_checked() -> None:
    store = Store()
    store.add_index("color", color)
    store.add_index("color", color)
    with pytest.raises(ValueError, match="another function"):
        store.add_index("color", lambda obj: [])
    with pytest.raises(KeyError, match="there are: color"):
        store.by_index("colour", "red")


def test_object_that_an_index_cannot_read_is_stored_all_the_same() -> None:
    store = Store()
    store.add_index("color", color)
    odd: JsonObject = {"metadata": {"name": "odd"}}
    store.put(odd)
    store.put(thing("a"))
    assert store.get("odd") is odd
    assert names(store.by_index("color", "red")) == ["a"]
    store.remove("odd")
    assert store.keys() == ["ns/a"]


def test_reached_version_never_goes_back() -> None:
    """S-7, C-5"""
    store = Store()
    store.replace([], resource_version="9")
    store.advance("7")
    assert store.resource_version == 9
    store.advance("10")
    assert store.resource_version == 10
    store.advance("opaque")
    assert store.resource_version == 10
    assert parse_resource_version("²") == parse_resource_version(None) == 0


def test_readers_of_a_replaced_state_keep_it() -> None:
    """S-2: a list handed out before is not changed by a replacement."""
    store = Store()
    store.put(thing("a"))
    before = store.list()
    store.replace([thing("b")], resource_version="2")
    assert names(before) == ["a"]
    assert names(store.list()) == ["b"]


OBJECTS = st.builds(thing, st.sampled_from("abcd"), st.integers(1, 5), color=st.sampled_from(["red", "blue"]))


@given(st.lists(st.one_of(OBJECTS, st.sampled_from(["ns/a", "ns/b"]), st.lists(OBJECTS, max_size=4)), max_size=20))
def test_indexes_always_fit_the_objects(steps: list[JsonObject | str | list[JsonObject]]) -> None:
    """S-6: after any sequence of changes an index answers what a scan would."""
    store = Store()
    store.add_index("color", color)
    for step in steps:
        if isinstance(step, str):
            store.remove(step)
        elif isinstance(step, list):
            store.replace(step, resource_version="1")
        else:
            store.put(step)
        for value in ("red", "blue"):
            scanned = sorted(names([obj for obj in store.list() if value in color(obj)]))
            assert sorted(names(store.by_index("color", value))) == scanned
