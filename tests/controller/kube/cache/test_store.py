"""The store and its indexes."""

import gc
import tracemalloc
from collections.abc import Iterable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from trainmaster.controller.kube.cache.delta import Delta, Entry
from trainmaster.controller.kube.cache.store import Store, object_key, parse_resource_version, split_key
from trainmaster.runtime.jsontext import MAX_DEPTH
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, why_unreadable


@pytest.fixture
def store() -> Store:
    return Store()


def thing(name: str, version: int = 1, *, color: str = "red", namespace: str | None = "ns") -> JsonObject:
    metadata: JsonObject = {"name": name, "resourceVersion": str(version), "uid": name, "labels": {"color": color}}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata}


def color(obj: JsonObject) -> Iterable[str]:
    return [obj["metadata"]["labels"]["color"]]


def replace(store: Store, objects: Iterable[JsonObject], *, version: str = "1") -> list[Delta]:
    return store.replace([store.entry(obj) for obj in objects], resource_version=version)


def names(objects: list[JsonObject]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


@pytest.mark.guarantee("S-9")
def test_keys_are_namespace_and_name() -> None:
    assert object_key(thing("a")) == "ns/a"
    assert object_key(thing("a", namespace=None)) == "a"
    assert split_key("ns/a") == ("ns", "a")
    assert split_key("a") == (None, "a")


@pytest.mark.guarantee("S-21")
def test_objects_are_found_by_namespace(store: Store) -> None:
    replace(store, [thing("a"), thing("b", namespace="ns2"), thing("c"), thing("ns", namespace=None)])
    assert names(list(store.each("ns"))) == names(list(store.each("ns"))) == ["a", "c"]
    assert names(list(store.each())) == ["a", "b", "c", "ns"]
    assert list(store.each("n")) == []
    store.delete("ns/a")
    assert store.keys("ns") == ["ns/c"]


@pytest.mark.guarantee("S-21")
def test_an_index_added_late_covers_what_is_stored(store: Store) -> None:
    store.put(thing("a"))
    store.add_indexer("color", color)
    store.put(thing("b", color="blue"))
    assert store.index_keys("color", "red") == ["ns/a"]
    store.put(thing("a", 2, color="blue"))
    assert store.index_keys("color", "blue") == ["ns/b", "ns/a"]
    assert store.index_keys("color", "red") == []


@pytest.mark.guarantee("S-21")
def test_index_names_are_checked(store: Store) -> None:
    store.add_indexer("color", color)
    store.add_indexer("color", color)
    with pytest.raises(ValueError, match="another function"):
        store.add_indexer("color", lambda obj: [])
    with pytest.raises(KeyError, match="there are: color"):
        store.index_keys("colour", "red")


def test_object_that_an_index_cannot_read_is_stored_all_the_same(store: Store) -> None:
    store.add_indexer("color", color)
    odd: JsonObject = {"metadata": {"name": "odd"}}
    store.put(odd)
    store.put(thing("a"))
    assert store.get("odd") == odd
    assert store.index_keys("color", "red") == ["ns/a"]
    store.delete("odd")
    assert store.keys() == ["ns/a"]


@pytest.mark.guarantee("S-7")
def test_the_version_that_was_reached_never_goes_back(store: Store) -> None:
    replace(store, [], version="9")
    store.update_resource_version("7")
    assert store.resource_version == 9
    store.update_resource_version("10")
    assert store.resource_version == 10
    store.update_resource_version("opaque")
    assert store.resource_version == 10
    assert parse_resource_version("²") == parse_resource_version(None) == 0


OBJECTS = st.builds(thing, st.sampled_from("abcd"), st.integers(1, 5), color=st.sampled_from(["red", "blue"]))


@pytest.mark.guarantee("S-2", "S-6")
@pytest.mark.parametrize("namespace", [None, "ns"])
def test_what_is_there_before_and_after_a_replacement_is_never_missing(store: Store, namespace: str | None) -> None:
    """Readers in other threads come between any two steps; here the steps are those of the entries."""
    store.add_indexer("color", color)
    objects = [thing("a"), thing("b"), thing("c")]
    replace(store, [*objects, thing("d", namespace="other")])

    def entries() -> Iterable[Entry]:
        for version, obj in enumerate(objects, start=2):
            assert store.keys("ns") == store.index_keys("color", "red")[:3] == ["ns/a", "ns/b", "ns/c"]
            assert {store.version(key) for key in store.keys("ns")} == {"1"}, "between two states"
            yield store.entry(thing(obj["metadata"]["name"], version))

    store.replace(entries(), resource_version="9", namespace=namespace)
    assert [store.version(key) for key in store.keys("ns")] == ["2", "3", "4"]
    assert ("other/d" in store) == (namespace is not None)


@pytest.mark.guarantee("S-6", "S-21")
@given(st.lists(st.one_of(OBJECTS, st.sampled_from(["ns/a", "ns/b"]), st.lists(OBJECTS, max_size=4)), max_size=20))
def test_indexes_always_fit_the_objects(steps: list[JsonObject | str | list[JsonObject]]) -> None:
    """After any sequence of changes an index answers what a scan would."""
    store = Store()
    store.add_indexer("color", color)
    for step in steps:
        if isinstance(step, str):
            store.delete(step)
        elif isinstance(step, list):
            replace(store, step)
        else:
            store.put(step)
        for value in ("red", "blue"):
            scanned = sorted(names([obj for obj in list(store.each()) if value in color(obj)]))
            assert sorted(store.index_keys("color", value)) == [f"ns/{name}" for name in scanned]
        assert store.keys("ns") == store.keys()
        assert (
            store.total_size
            == sum(len(orjson.dumps(obj)) for obj in list(store.each()))
            == sum(map(store.size, store.keys()))
        )


@pytest.mark.guarantee("S-8", "P-23")
def test_what_a_reader_changes_is_its_own(store: Store) -> None:
    given = thing("a")
    store.put(given)
    given["metadata"]["labels"]["color"] = "spoiled"
    for read in (store.get("ns/a"), next(store.each()), next(store.each())):
        assert read == thing("a")
        read["metadata"]["labels"]["color"] = "spoiled"
    assert store.get("ns/a") == thing("a")


def test_what_is_decoded_later_is_as_it_was(store: Store) -> None:
    store.put(thing("a"))
    body = store.body("ns/a")
    store.put(thing("a", 2))
    store.delete("ns/a")
    assert body == orjson.dumps(thing("a"))
    assert store.body("ns/a") is None


@pytest.mark.guarantee("S-6")
def test_an_index_that_comes_between_entry_and_replacement_covers_the_entry(store: Store) -> None:
    entries = [store.entry(thing("a"))]
    store.add_indexer("color", color)
    store.replace(entries, resource_version="1")
    assert store.index_keys("color", "red") == ["ns/a"]


@pytest.mark.guarantee("S-2", "S-15")
def test_only_differences_are_returned_and_earlier_readers_keep_what_they_have(store: Store) -> None:
    """Deletions come first, so that whoever counts never counts too many."""
    replace(store, [thing("same"), thing("changed"), thing("gone")])
    before, late = list(store.each()), store.each()
    changes = replace(store, [thing("new"), thing("same"), thing("changed", 2)])
    assert [(change.key, change.is_addition, change.is_deletion) for change in changes] == [
        ("ns/gone", False, True),
        ("ns/new", True, False),
        ("ns/changed", False, False),
    ]
    assert [(change.old, change.new) for change in changes] == [
        (thing("gone"), None),
        (None, thing("new")),
        (thing("changed"), thing("changed", 2)),
    ]
    assert names(before) == names(list(late)) == ["same", "changed", "gone"]


@pytest.mark.guarantee("S-15")
def test_without_a_version_nothing_is_the_same(store: Store) -> None:
    odd: JsonObject = {"metadata": {"name": "odd"}}
    store.put(odd)
    assert not store.holds(object_key(odd), odd)
    assert len(replace(store, [odd])) == 1


@pytest.mark.guarantee("S-4")
def test_the_uid_is_known_without_decoding(store: Store) -> None:
    store.put(thing("a", 7))
    assert (store.uid("ns/a"), store.version("ns/a")) == ("a", "7")
    assert (store.uid("ns/b"), store.version("ns/b")) == (None, None)


@pytest.mark.guarantee("S-2")
def test_a_key_that_comes_twice_is_stored_once(store: Store) -> None:
    """Pages of a list may overlap if objects are made between them; the later one counts."""
    store.add_indexer("color", color)
    replace(store, [thing("a"), thing("a", 2, color="blue")])
    assert list(store.each()) == [thing("a", 2, color="blue")]
    assert store.index_keys("color", "red") == []


def nested(levels: int) -> JsonObject:
    """Objects in each other, each with something beside."""
    deep: JsonObject = {}
    for _ in range(levels - 1):
        deep = {"a": deep, "b": []}
    return deep


@pytest.mark.parametrize("levels", [MAX_DEPTH, 1020])
def test_an_object_that_is_nested_too_deeply_keeps_its_metadata_and_says_so(levels: int) -> None:
    """Nobody could walk it, and the informer goes on with all the others."""
    told: list[str] = []
    store = Store(on_unreadable=lambda key, _obj: told.append(key))
    store.put(deepest := {**thing("a"), "spec": nested(MAX_DEPTH - 1)})
    assert (store.get("ns/a"), told) == (deepest, [])
    delta = store.put({**thing("a"), "spec": nested(levels)})
    kept = {**thing("a"), UNREADABLE: "it is nested more than 150 levels deep"}
    assert (store.get("ns/a"), delta.new, told) == (kept, kept, ["ns/a"])
    assert store.get("ns/a") is not None
    assert why_unreadable(kept)


def test_managed_fields_that_are_nested_too_deeply_do_not_make_an_object_unreadable(store: Store) -> None:
    store.put(obj := thing("a"))
    plain = store.get("ns/a")
    obj["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": nested(400)}]
    store.put(obj)
    assert store.get("ns/a") == plain


@pytest.mark.guarantee("P-21")
def test_what_is_kept_has_no_room_to_spare(store: Store) -> None:
    store.add_indexer("name", lambda obj: [obj["metadata"]["name"]])
    objects = [thing(f"thing-{number}") for number in range(1000)]
    tracemalloc.start()
    try:
        for obj in objects:
            store.put(obj)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / len(objects) < len(orjson.dumps(objects[0])) + 1000  # with a key, and its place in two indexes


@pytest.mark.guarantee("P-22")
def test_the_garbage_collector_walks_through_no_object(store: Store) -> None:
    store.add_indexer("name", lambda obj: [obj["metadata"]["name"]])
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1000):
        store.put(thing(f"thing-{number}"))
    for _ in range(3):  # tuples within tuples take a pass for each level
        gc.collect()
    assert len(gc.get_objects()) - before < 100


@pytest.mark.guarantee("S-21")
def test_an_index_function_that_fails_for_all_is_told_of_a_few_times(store: Store) -> None:
    """A cache has ten thousands of objects; each of them is there all the same."""
    store.add_indexer("odd", lambda obj: [obj["nothing"]])
    with capture_logs() as logs:
        for number in range(100):
            store.put(thing(f"thing-{number}"))
    told = [each for each in logs if each["log_level"] == "error"]
    assert len(told) == 10
    assert told[0]["index"] == "odd"
    assert len(store) == 100
