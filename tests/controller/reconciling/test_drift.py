"""Recognising that an object is already as it should be."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.reconciling.drift import Drift, drift, drift_of_created, owned_fields_of
from trainmaster.devcluster.apiserver.apply import apply, update
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import JsonObject

POD: JsonObject = {
    "containers": [
        {
            "name": "node",
            "args": ["--a", "--b"],
            "ports": [{"containerPort": 1}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "tolerations": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "spot"}],
    "volumes": [{"name": "data", "emptyDir": {}}],
}
OWNED_POD: JsonObject = {
    "f:containers": {
        'k:{"name":"node"}': {
            ".": {},
            "f:name": {},
            "f:args": {},
            "f:ports": {'k:{"containerPort":1,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
            "f:volumeMounts": {'k:{"mountPath":"/data"}': {".": {}, "f:name": {}, "f:mountPath": {}}},
        }
    },
    "f:tolerations": {},
    "f:volumes": {'k:{"name":"data"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
}


def wrap(spec: JsonObject) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}, "spec": spec}


def live_pod() -> JsonObject:
    """The pod as the server completes the keys of its items."""
    pod = copy.deepcopy(POD)
    pod["containers"][0]["ports"][0]["protocol"] = "TCP"
    return pod


def theirs(pod: JsonObject, owned: JsonObject) -> None:
    pod["containers"][0]["volumeMounts"].insert(0, {"name": "data", "mountPath": "/elsewhere"})


def default(pod: JsonObject, owned: JsonObject) -> None:
    pod["dnsPolicy"] = pod["containers"][0]["imagePullPolicy"] = "Always"


DIFFERENCES: dict[str, tuple[Drift, str, Callable[[JsonObject, JsonObject], object]]] = {
    "another order": (Drift.CERTAIN, "live", lambda pod, owned: pod["containers"][0]["args"].reverse()),
    "another order of items": (Drift.CERTAIN, "desired", lambda pod, owned: pod["tolerations"].reverse()),
    "an item not wanted any more": (Drift.CERTAIN, "desired", lambda pod, owned: pod["tolerations"].pop()),
    "a value not wanted any more": (Drift.CERTAIN, "desired", lambda pod, owned: pod["containers"][0]["args"].pop()),
    "a field not wanted any more": (Drift.CERTAIN, "live", lambda pod, owned: owned.update({"f:hostname": {}})),
    "an object not wanted any more": (Drift.CERTAIN, "live", lambda pod,
        owned: owned["f:containers"].update({'k:{"name":"gone"}': {".": {}, "f:name": {}}})),
    "no items": (Drift.CERTAIN, "live", lambda pod, owned: pod.update(containers=[])),
    "an item of others in an atomic list": (Drift.CERTAIN, "live", lambda pod,
        owned: pod["tolerations"].append({"key": "theirs"})),
    "ownership taken": (Drift.CERTAIN, "live", lambda pod, owned: owned.pop("f:tolerations")),
    "a field of an item, or a default": (Drift.POSSIBLE, "desired", lambda pod,
        owned: pod["tolerations"][0].pop("effect")),
    "something in an empty map": (Drift.POSSIBLE, "live", lambda pod,
        owned: pod["volumes"][0]["emptyDir"].update(medium="Memory")),
    "a second mount by others": (Drift.NONE, "live", theirs),
    "an item of others": (Drift.NONE, "live", lambda pod, owned: pod["containers"].insert(0, {"name": "injected"})),
    "defaults": (Drift.NONE, "live", default),
}  # fmt: skip
"""What is found, whether it is the object or what we desire that is changed, and how."""


@pytest.mark.guarantee("A-2", "A-6", "A-7", "C-12")
@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_certain_possible_or_none(name: str) -> None:
    found, whose, change = DIFFERENCES[name]
    objects, owned = {"live": live_pod(), "desired": copy.deepcopy(POD)}, copy.deepcopy(OWNED_POD)
    change(objects[whose], owned)
    live, desired = wrap(objects["live"]), wrap(objects["desired"])
    assert drift(desired, live, owned_fields={"f:spec": owned}) is found
    assert drift(desired, live, owned_fields=None) is Drift.CERTAIN, "what we have never applied is applied"


@pytest.mark.parametrize("empty", ["", 0, False, [], {}])
def test_an_empty_value_that_the_server_does_not_keep_is_applied_once_at_most(empty: Any) -> None:
    assert drift(wrap({**POD, "odd": empty}), wrap(live_pod()), owned_fields={"f:spec": OWNED_POD}) is Drift.POSSIBLE
    live = wrap({**live_pod(), "odd": "theirs"})
    assert drift(wrap({**POD, "odd": empty}), live, owned_fields={"f:spec": OWNED_POD}) is Drift.CERTAIN


# What a server-side apply would change, by the embedded API server's own.

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
                    "count": {"type": "integer", "default": 1},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "selector": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                    "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "args": {"type": "array", "items": {"type": "string"}},
                    "rules": {
                        "type": "array",
                        "x-kubernetes-list-type": "atomic",
                        "items": {
                            "type": "object",
                            "properties": {
                                "key": {"type": "string"},
                                "effect": {"type": "string"},
                                "operator": {"type": "string", "default": "Equal"},
                            },
                        },
                    },
                    "mounts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["mountPath"],
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "mountPath": {"type": "string"}},
                        },
                    },
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": {"type": "integer"},
                                "protocol": {"type": "string", "default": "TCP"},
                                "name": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    }
)
WORDS = st.sampled_from(["a", "b", "c"])
MAPS = st.dictionaries(WORDS, WORDS, max_size=2)


def objects_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=fields)


def items_of(required: dict[str, st.SearchStrategy[Any]], key: Callable[[Any], Any], **optional: Any) -> Any:
    return st.lists(st.fixed_dictionaries(required, optional=optional), max_size=3, unique_by=key)


SPECS = objects_of(
    count=st.integers(0, 2),
    labels=MAPS,
    selector=MAPS,
    zones=st.lists(WORDS, max_size=3, unique=True),
    args=st.lists(WORDS, max_size=3),
    rules=st.lists(objects_of(key=WORDS, effect=WORDS, operator=WORDS), max_size=2),
    mounts=items_of({"mountPath": WORDS}, lambda item: item["mountPath"], name=WORDS),
    ports=items_of(
        {"port": st.integers(1, 2)},
        lambda item: (item["port"], item.get("protocol", "TCP")),
        protocol=st.sampled_from(["TCP", "UDP"]),
        name=WORDS,
    ),
)


def thing(spec: JsonObject, labels: JsonObject) -> JsonObject:
    metadata = {"name": "x", "namespace": "n", "labels": labels}
    return {"apiVersion": "example.com/v1", "kind": "X", "metadata": metadata, "spec": spec}


def applied(live: JsonObject | None, config: JsonObject, manager: str) -> JsonObject:
    """Apply as a server does that sets defaults; time stands still."""
    result = apply(
        copy.deepcopy(live),
        copy.deepcopy(config),
        manager=manager,
        force=True,
        schema=SCHEMA,
        api_version="example.com/v1",
        now="t",
    )
    SCHEMA.default(result)
    return result


def updated(live: JsonObject, new: JsonObject) -> JsonObject:
    """Replace the spec as a client does that knows nothing of managedFields."""
    changed = {**copy.deepcopy(new), "metadata": copy.deepcopy(live["metadata"])}
    SCHEMA.default(changed)
    return update(live, changed, manager="kubectl-edit", schema=SCHEMA, api_version="example.com/v1", now="t")


def without_owners(obj: JsonObject) -> JsonObject:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


@pytest.mark.guarantee("C-12")
@given(
    first=st.builds(thing, SPECS, MAPS),
    others=st.lists(st.tuples(st.booleans(), st.builds(thing, SPECS, MAPS)), max_size=2),
    second=st.none() | st.builds(thing, SPECS, MAPS),
)
def test_drift_is_what_an_apply_would_change(
    first: JsonObject, others: list[tuple[bool, JsonObject]], second: JsonObject | None
) -> None:
    """Whatever we applied before, whatever others made of it, and whatever we want now."""
    live = applied(None, first, "trainer")
    for applies, theirs in others:
        live = applied(live, theirs, "them") if applies else updated(live, theirs)
    desired = first if second is None else second
    found = drift(desired, live, owned_fields=owned_fields_of(live, "trainer"))
    after = applied(live, desired, "trainer")
    if found is Drift.NONE:
        assert without_owners(after) == without_owners(live)
    elif found is Drift.CERTAIN:
        assert after != live
    # What was just applied is settled, and known to be.
    again = drift(desired, after, owned_fields=owned_fields_of(after, "trainer"))
    assert again is not Drift.CERTAIN
    assert applied(after, desired, "trainer") == after


@pytest.mark.guarantee("C-12")
@given(desired=st.builds(thing, SPECS, MAPS))
def test_what_was_created_is_known_to_be_as_applied(desired: JsonObject) -> None:
    """Without a look at who owns what: whatever the server has filled in, nobody else has had a hand in it."""
    created = applied(None, desired, "trainer")
    found = drift_of_created(desired, without_owners(created))
    again = applied(created, desired, "trainer")
    if found is Drift.NONE:
        assert again == created
    assert found >= drift(desired, created, owned_fields=owned_fields_of(created, "trainer"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, Drift.NONE),
        ({"restartPolicy": "Always"}, Drift.NONE),
        ({"containers": []}, Drift.CERTAIN),
        ({"containers": [{**POD["containers"][0], "args": ["--b", "--a"]}]}, Drift.CERTAIN),
        ({"containers": [{**POD["containers"][0], "image": "default"}]}, Drift.NONE),
        ({"tolerations": [{**each, "operator": "Equal"} for each in POD["tolerations"]]}, Drift.POSSIBLE),
    ],
    ids=["nothing", "a-field", "no-items", "an-order", "a-field-of-a-name", "a-default-in-a-list-without-names"],
)
def test_an_admission_that_makes_something_else_of_what_is_created_is_noticed(change: JsonObject, found: Drift) -> None:
    desired, created = wrap(POD), wrap({**POD, **change})
    created["metadata"] |= {"uid": "u", "resourceVersion": "9"}
    assert drift_of_created(desired, created) is found
