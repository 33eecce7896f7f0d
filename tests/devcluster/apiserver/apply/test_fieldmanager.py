"""Server-side apply: ownership, conflicts, removal and the order of lists (KEP-555)."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.apply import ApplyConflict, ApplyInvalid, Conflict, FieldSet, apply, update
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import copy_tree

VERSION = "example.com/v1"
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
PORT = {
    "type": "object",
    "properties": {
        "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": {"type": "string"},
    },
}
CONTAINER = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "args": {"type": "array", "items": {"type": "string"}},
        "probe": {"type": "object", "properties": {"path": {"type": "string"}, "period": {"type": "integer"}}},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": PORT,
        },
    },
}
SCHEMA = Schema.compile(
    {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "suspend": {"type": "boolean"},
                    "selector": {**STRINGS, "x-kubernetes-map-type": "atomic"},
                    "nodes": STRINGS,
                    "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "containers": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": CONTAINER,
                    },
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
)


def obj(spec: Any = None, *, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "x", "namespace": "n"}
    if labels is not None:
        metadata["labels"] = labels
    tree: dict[str, Any] = {"apiVersion": VERSION, "kind": "X", "metadata": metadata, **fields}
    if spec is not None:
        tree["spec"] = spec
    return tree


def applied(live: Any, config: Any, manager: str = "a", *, force: bool = False, now: str = "t1", **options: Any) -> Any:
    return apply(live, config, manager=manager, force=force, schema=SCHEMA, api_version=VERSION, now=now, **options)


def updated(old: Any, new: Any, manager: str = "u", *, now: str = "t1", **options: Any) -> Any:
    return update(old, new, manager=manager, schema=SCHEMA, api_version=VERSION, now=now, **options)


def owned(tree: Any, manager: str, operation: str = "Apply", subresource: str = "") -> list[str]:
    for entry in tree["metadata"].get("managedFields", []):
        if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, operation, subresource):
            return list(FieldSet.decode(entry["fieldsV1"]).paths())
    return []


def names(tree: Any) -> list[str]:
    return [container["name"] for container in tree["spec"]["containers"]]


def test_a_field_of_the_schema_goes_with_what_was_defaulted_in_it_and_stays_with_what_another_owns() -> None:
    """Half a probe would be refused, as it once was when another release of a Deployment was applied."""
    live = applied(None, obj({"containers": [{"name": "c", "image": "i", "probe": {"path": "/"}}]}))
    shared = applied(live, obj({"containers": [{"name": "c", "probe": {"period": 5}}]}), "b")
    live["spec"]["containers"][0]["probe"]["period"] = 10  # a default
    config = obj({"containers": [{"name": "c", "image": "i"}]})
    assert applied(live, config)["spec"]["containers"] == [{"name": "c", "image": "i"}]
    assert applied(shared, config)["spec"]["containers"] == [{"name": "c", "image": "i", "probe": {"period": 5}}]


def test_a_map_that_the_schema_names_goes_with_what_nobody_owns_in_it() -> None:
    live = applied(None, obj({"nodes": {"a": "1"}}))
    live["spec"]["nodes"]["b"] = "2"
    assert applied(live, obj({"replicas": 1}))["spec"] == {"replicas": 1}


def test_an_empty_map_that_is_applied_stays() -> None:
    after = applied(applied(None, obj({"replicas": 1})), obj({}))
    assert after["spec"] == {}
    assert owned(after, "a") == [".spec"]


def test_several_conflicts_are_listed_by_owner() -> None:
    live = applied(None, obj({"replicas": 1}))
    live = updated(live, {**live, "spec": {"replicas": 1, "suspend": True, "nodes": {"k": "v"}}})
    with pytest.raises(ApplyConflict) as caught:
        applied(live, obj({"replicas": 2, "suspend": False, "nodes": {"k": "w"}}), "b")
    assert str(caught.value) == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .spec.replicas\n'
        f'conflicts with "u" using {VERSION}:\n- .spec.nodes.k\n- .spec.suspend'
    )


def test_the_same_manager_conflicts_with_its_own_updates_and_subresources() -> None:
    """An owner is a manager with an operation and a subresource, not a name alone."""
    live = updated(None, obj({"replicas": 1}), "a", subresource="scale")
    with pytest.raises(ApplyConflict, match=f'conflict with "a" with subresource "scale" using {VERSION}'):
        applied(live, obj({"replicas": 2}), "a")


def test_maps_without_a_schema_are_granular_and_lists_atomic() -> None:
    live = applied(None, obj({"open": {"deep": {"a": 1}, "list": [{"name": "x"}]}}))
    live = applied(live, obj({"open": {"deep": {"b": 2}}}), "b")
    assert live["spec"]["open"] == {"deep": {"a": 1, "b": 2}, "list": [{"name": "x"}]}
    with pytest.raises(ApplyConflict, match=r"\.spec\.open\.list$"):
        applied(live, obj({"open": {"list": [{"name": "y"}]}}), "b")


def test_keys_that_are_left_out_have_their_default() -> None:
    live = applied(None, obj({"containers": [{"name": "c", "ports": [{"port": 80, "protocol": "TCP", "name": "p"}]}]}))
    after = applied(live, obj({"containers": [{"name": "c", "ports": [{"port": 80, "name": "q"}]}]}))
    assert after["spec"]["containers"][0]["ports"] == [{"port": 80, "name": "q"}], (
        "the same port; defaulting comes next"
    )
    after = applied(live, obj({"containers": [{"name": "c", "ports": [{"port": 80, "protocol": "UDP"}]}]}), "b")
    assert [port["protocol"] for port in after["spec"]["containers"][0]["ports"]] == ["TCP", "UDP"]


def test_an_element_goes_although_an_updater_changed_something_in_it() -> None:
    """What would remain of it has no key."""
    live = applied(None, obj({"containers": [{"name": "c", "image": "i"}, {"name": "d"}]}))
    changed = copy_tree(live)
    changed["spec"]["containers"][0]["image"] = "j"
    live = updated(live, changed)
    after = applied(live, obj({"containers": [{"name": "d"}]}))
    assert after["spec"]["containers"] == [{"name": "d"}]
    assert owned(after, "u", "Update") == []


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ("abc", "cd", "abcd"),
        ("sn", "in", "sin"),
        ("axb", "ba", "xba"),
        ("ab", "ba", "ba"),
        ("ab", "cd", "abcd"),
        ("abc", "b", "abc"),
        ("ab", "acb", "acb"),
        ("axb", "acb", "axcb"),
    ],
)
def test_order_of_keyed_lists(live: str, config: str, expected: str) -> None:
    """Applied elements in the applied order; what only the stored list has keeps its place among them."""
    stored = updated(None, obj({"containers": [{"name": name} for name in live]}))
    after = applied(stored, obj({"containers": [{"name": name} for name in config]}))
    assert "".join(names(after)) == expected


@given(st.permutations("abcdef").map(lambda it: it[:4]), st.permutations("abcdef").map(lambda it: it[:3]))
def test_order_keeps_every_element_once_and_the_applied_order(live: list[str], config: list[str]) -> None:
    stored = updated(None, obj({"containers": [{"name": name} for name in live]}))
    merged = names(applied(stored, obj({"containers": [{"name": name} for name in config]})))
    assert sorted(merged) == sorted({*live, *config})
    assert [name for name in merged if name in config] == config


@pytest.mark.parametrize(
    ("containers", "message"),
    [
        (
            [{"name": "c", "ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}],
            r'^\.spec\.containers\[name="c"\]\.ports: duplicate entries for key \[port=1,protocol="TCP"\]',
        ),
        ([{"name": "c"}, {"name": "c"}], r'^\.spec\.containers: duplicate entries for key \[name="c"\]'),
        ([{"image": "c"}], r"^\.spec\.containers: element 0: .* omits key field 'name'"),
        (["c"], r"^\.spec\.containers: element 0: an object with the keys name was expected"),
    ],
)
def test_elements_that_cannot_be_told_apart_are_refused(containers: Any, message: str) -> None:
    for live in (None, applied(None, obj({"replicas": 1}))):
        with pytest.raises(ApplyInvalid, match=message):
            applied(live, obj({"containers": containers}))


def test_stored_lists_with_duplicates_are_replaced_as_a_whole() -> None:
    live = updated(None, obj({"containers": [{"name": "c"}, {"name": "c"}]}))
    assert names(applied(live, obj({"containers": [{"name": "d"}]}), force=True)) == ["d"]


def test_the_identity_of_the_object_has_no_owner_and_stays() -> None:
    live = applied(None, obj({"replicas": 1}))
    live["metadata"] |= {"uid": "u", "resourceVersion": "5", "generation": 1, "creationTimestamp": "t0"}
    config = obj({"replicas": 2})
    config["metadata"]["creationTimestamp"] = None  # what Go clients send
    after = applied(live, config)
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        assert after["metadata"][name] == live["metadata"][name]
    assert owned(after, "a") == [".spec.replicas"]


def test_metadata_of_custom_resources_merges_like_all_metadata() -> None:
    def config(uid: str, finalizer: str) -> dict[str, Any]:
        tree = obj()
        owner = {"apiVersion": "v1", "kind": "K", "name": "o", "uid": uid}
        tree["metadata"] |= {"finalizers": [finalizer], "ownerReferences": [owner]}
        return tree

    live = applied(applied(None, config("1", "f1")), config("2", "f2"), "b")
    assert live["metadata"]["finalizers"] == ["f1", "f2"]
    assert [owner["uid"] for owner in live["metadata"]["ownerReferences"]] == ["1", "2"]
    assert owned(live, "b") == ['.metadata.finalizers[="f2"]', '.metadata.ownerReferences[uid="2"]']


def test_inputs_are_neither_changed_nor_shared() -> None:
    live = applied(None, obj({"containers": [{"name": "c", "args": ["x"]}], "nodes": {"a": "b"}}))
    config = obj({"containers": [{"name": "d", "args": ["y"]}]})
    before = repr((live, config))
    for result in (applied(live, config, "b"), applied(live, config), applied(None, config)):
        for container in result["spec"]["containers"]:
            container["args"].append("z")
    assert repr((live, config)) == before


NAMES = st.lists(st.sampled_from("xyz"), unique=True, max_size=3)
CONTAINERS = NAMES.flatmap(
    lambda known: st.tuples(
        *(
            st.fixed_dictionaries(
                {"name": st.just(name)},
                optional={"image": st.sampled_from("ij"), "args": st.lists(st.just("v"), max_size=2)},
            )
            for name in known
        )
    ).map(list)
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "nodes": st.dictionaries(st.sampled_from("kl"), st.sampled_from("12"), max_size=2),
        "selector": st.dictionaries(st.sampled_from("kl"), st.sampled_from("12"), max_size=2),
        "zones": NAMES,
        "containers": CONTAINERS,
        "open": st.dictionaries(st.sampled_from("kl"), st.integers(0, 1) | st.just({"m": 1}), max_size=2),
    },
)


@given(SPECS, SPECS, SPECS)
def test_applying_twice_is_applying_once(first: Any, other: Any, second: Any) -> None:
    live = applied(applied(None, obj(first)), obj(other), "b", force=True)
    once = applied(live, obj(second), force=True)
    assert applied(once, obj(second), now="t2") == once, "the second time must not conflict either"


@given(SPECS, SPECS)
def test_after_force_everything_applied_is_there_and_owned(first: Any, second: Any) -> None:
    live = applied(applied(None, obj(first)), obj(second), "b", force=True)
    assert applied(live, obj(second), "c")["spec"] == live["spec"], "a third one who wants the same does not conflict"
    mine, theirs = owned(live, "b"), owned(live, "a")
    assert set(mine) == set(owned(applied(None, obj(second), "b"), "b"))
    assert set(theirs) <= set(owned(applied(None, obj(first)), "a"))


@given(SPECS, SPECS)
def test_force_makes_no_difference_without_conflicts_and_takes_what_they_name(first: Any, second: Any) -> None:
    live = applied(None, obj(first))
    forced = applied(live, obj(second), "b", force=True)
    lost = set(owned(live, "a")) - set(owned(forced, "a"))
    conflicts = {conflict.path for conflict in conflicts_of(live, obj(second), "b")}
    assert conflicts <= lost
    if not conflicts:
        assert applied(live, obj(second), "b") == forced


def conflicts_of(live: Any, config: Any, manager: str) -> list[Conflict]:
    try:
        applied(live, config, manager)
    except ApplyConflict as error:
        return error.conflicts
    return []


@given(SPECS, SPECS)
def test_a_manager_that_applies_nothing_more_leaves_no_trace(first: Any, second: Any) -> None:
    alone = applied(None, obj(first))
    assume(not conflicts_of(alone, obj(second), "b"))
    withdrawn = applied(applied(alone, obj(second), "b"), obj(), "b")
    assert owned(withdrawn, "b") == []
    assert owned(withdrawn, "a") == owned(alone, "a")
