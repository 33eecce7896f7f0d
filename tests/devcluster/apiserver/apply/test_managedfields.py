"""Who manages which fields, and sets of fields."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.apply import FieldSet, apply, update
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import copy_tree

VERSION = "example.com/v1"
CONDITIONS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
}
SCHEMA = Schema.compile(
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "status": {"type": "object", "properties": {"conditions": CONDITIONS, "ready": {"type": "integer"}}},
        },
    }
)


def obj(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "X", "metadata": {"name": "x"}, "spec": spec}


def updated(old: Any, new: Any, manager: str = "u", *, now: str = "t1", subresource: str = "") -> Any:
    return update(old, new, manager=manager, schema=SCHEMA, api_version=VERSION, now=now, subresource=subresource)


def changed(live: Any, **spec: Any) -> Any:
    new = copy_tree(live)
    new["spec"] |= spec
    return new


def entries(tree: Any) -> list[tuple[str, str, list[str]]]:
    return [
        (entry["manager"], entry["time"], list(FieldSet.decode(entry["fieldsV1"]).paths()))
        for entry in tree["metadata"].get("managedFields", [])
    ]


def test_the_entry_of_a_manager_grows_and_gets_the_time_of_the_last_change() -> None:
    live = updated(None, obj(a=1))
    live = updated(live, changed(live, b=2), now="t2")
    assert entries(live) == [("u", "t2", [".spec", ".spec.a", ".spec.b"])]


def test_a_removed_field_has_no_owner() -> None:
    live = updated(None, obj(a=1, b={"c": 1}))
    new = copy_tree(live)
    del new["spec"]["b"]
    assert entries(updated(live, new, "other", now="t2")) == [("u", "t1", [".spec", ".spec.a"])]


def test_an_object_in_place_of_a_scalar_and_back() -> None:
    live = updated(None, obj(a=1))
    live = updated(live, changed(live, a={"b": 1}), "other", now="t2")
    assert entries(live)[1] == ("other", "t2", [".spec.a", ".spec.a.b"])
    live = updated(live, changed(live, a=None), "third", now="t3")
    assert entries(live) == [("u", "t1", [".spec"]), ("third", "t3", [".spec.a"])]


def test_each_subresource_has_an_entry() -> None:
    live = updated(None, obj(a=1))
    new = {**live, "status": {"ready": 1, "conditions": [{"type": "Ready", "status": "True"}]}}
    live = updated(live, new, subresource="status", now="t2")
    entry = live["metadata"]["managedFields"][1]
    assert (entry["subresource"], entry["manager"]) == ("status", "u")
    assert list(FieldSet.decode(entry["fieldsV1"]).paths()) == [
        ".status",
        ".status.conditions",
        '.status.conditions[type="Ready"]',
        '.status.conditions[type="Ready"].status',
        '.status.conditions[type="Ready"].type',
        ".status.ready",
    ]
    new = copy_tree(live)
    new["status"]["conditions"][0]["status"] = "False"
    live = updated(live, new, "other", subresource="status", now="t3")
    assert entries(live)[2] == ("other", "t3", ['.status.conditions[type="Ready"].status'])


def test_at_most_ten_updaters_are_remembered() -> None:
    live = updated(None, obj(start=1), "m00", now="t00")
    for number in range(1, 15):
        live = updated(live, changed(live, **{f"f{number}": 1}), f"m{number:02}", now=f"t{number:02}")
    known = entries(live)
    assert len(known) == 10
    assert known[0] == ("ancient-changes", "t05", [".spec", *(f".spec.f{n}" for n in range(1, 6)), ".spec.start"])
    assert [manager for manager, _, _ in known[1:]] == [f"m{number:02}" for number in range(6, 15)]


def test_appliers_come_first_then_time_then_name() -> None:
    live = updated(None, obj(a=1), "z", now="t1")
    live = updated(live, changed(live, b=1), "b", now="t3")
    live = updated(live, changed(live, c=1), "a", now="t3")
    live = apply(live, obj(d=1), manager="x", force=False, schema=SCHEMA, api_version=VERSION, now="t9")
    assert [manager for manager, _, _ in entries(live)] == ["x", "z", "a", "b"]


def test_a_client_may_edit_managed_fields() -> None:
    live = updated(None, obj(a=1))
    new = copy_tree(live)
    new["metadata"]["managedFields"][0]["manager"] = "renamed"
    assert entries(updated(live, new)) == [("renamed", "t1", [".spec", ".spec.a"])]


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


def test_readable_paths() -> None:
    fields = FieldSet.decode(
        {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"a"}': {".": {}, "f:ports": {'k:{"protocol":"TCP","containerPort":80}': {}}}
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
    assert one == FieldSet.decode({"f:a": {'k:{ "a": "x", "b": 1 }': {".": {}}}})
