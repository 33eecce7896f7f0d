"""Scopes: how little of a kind is read, and how objects of several scopes are read together."""

import orjson
import pytest
from structlog.testing import capture_logs
from support.objects import trainjob

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.manager.scopes import JoinedStore, Scope, served_by
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.ownership import owner_reference

SECRET = ("v1", "Secret", "secrets")
KEYS = Watch(*SECRET, writes=True, metadata_only=True, declared_by="mpi")
"""How MPI declares the Secrets that it builds."""


@pytest.mark.guarantee("S-18", "S-19")
@pytest.mark.parametrize(
    ("watches", "scopes"),
    [
        ([KEYS], ["metadata,owned"]),
        ([KEYS, Watch(*SECRET, label_selector="acme=1")], ["metadata,owned", "acme=1"]),
        ([KEYS, Watch(*SECRET, metadata_only=True)], ["metadata"]),
        ([KEYS, Watch(*SECRET, metadata_only=True, label_selector="acme=1")], ["metadata,owned", "acme=1,metadata"]),
        ([KEYS, Watch(*SECRET, writes=True)], ["owned"]),
        ([KEYS, Watch(*SECRET)], ["all"]),
        ([Watch(*SECRET, label_selector="a"), Watch(*SECRET, label_selector="b")], ["a", "b"]),
        ([Watch(*SECRET, label_selector="a", metadata_only=True), Watch(*SECRET, label_selector="a")], ["a"]),
        ([Watch(*SECRET, label_selector="")], ["all"]),
    ],
)
def test_nothing_is_read_but_what_somebody_declared(watches: list[Watch], scopes: list[str]) -> None:
    """Of two scopes of which neither covers the other each is read for itself."""
    assert [str(scope) for scope in served_by(watches)] == scopes


def test_a_plugin_that_is_shown_more_or_less_than_it_declared_is_told_of_with_who_asked_for_it() -> None:
    with capture_logs() as logs:
        served_by([KEYS, Watch(*SECRET, declared_by="vault")])
    (entry,) = logs
    told = {name: entry[name] for name in ("log_level", "kind", "plugin", "declared", "shown", "because_of")}
    assert told == {
        "log_level": "warning",
        "kind": "Secret",
        "plugin": "mpi",
        "declared": "metadata,owned",
        "shown": "all",
        "because_of": ["vault"],
    }
    with capture_logs() as logs:
        served_by([KEYS, KEYS, Watch(*SECRET, label_selector="acme=1", declared_by="acme")])
    assert logs == []
    with capture_logs() as logs:
        served_by([Watch(*SECRET, namespaces=("a",), declared_by="vault")], ("b",))
    (entry,) = logs
    assert (entry["log_level"], entry["plugin"], entry["namespaces"]) == ("warning", "vault", ["a"])
    assert "watchNamespaces" in entry["hint"]


def stored(scope: Scope, *objects: JsonObject, version: int) -> tuple[Scope, Store]:
    store = Store()
    for obj in objects:
        store.put(obj)
    store.update_resource_version(str(version))
    return scope, store


def secret(name: str, *, owned: bool = False, **fields: JsonObject) -> JsonObject:
    metadata: JsonObject = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"}
    if owned:
        metadata["ownerReferences"] = [owner_reference(trainjob())]
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **fields}


def test_each_object_is_read_once_as_whole_as_any_scope_has_it() -> None:
    labelled = secret("foreign-a")
    labelled["metadata"]["labels"] = {"a": "1"}
    joined = JoinedStore(
        [
            stored(
                Scope(None, metadata_only=False, owned_only=True),
                secret("own", owned=True, data={"x": "1"}),
                secret("foreign-a"),
                secret("foreign"),
                version=20,
            ),
            stored(Scope("a", metadata_only=True, owned_only=False), secret("own", owned=True), labelled, version=3),
            stored(Scope("b", metadata_only=False, owned_only=False), secret("foreign", data={"y": "1"}), version=4),
        ]
    )
    found = {obj["metadata"]["name"]: obj for obj in joined.each("team")}
    assert sorted(found) == ["foreign", "foreign-a", "own"]
    assert sorted(joined.keys("team")) == ["team/foreign", "team/foreign-a", "team/own"]
    assert (found["own"]["data"], found["foreign"]["data"]) == ({"x": "1"}, {"y": "1"})
    assert found["foreign-a"]["metadata"]["labels"] == {"a": "1"}
    assert list(joined.each("other")) == []
    assert (joined.get("team/none"), joined.body("team/none")) == (None, None)
    assert orjson.loads(joined.body("team/own") or b"") == found["own"]
    assert (joined.uid("team/own"), joined.uid("team/none")) == ("own", None)
    assert (joined.size("team/own") > joined.size("team/foreign-a") > 0, joined.size("team/none")) == (True, 0)
    assert ("team/own" in joined, "team/none" in joined, len(joined)) == (True, False, 3)
    assert not isinstance(joined, Store), "nobody can write into what belongs to several informers"


@pytest.mark.parametrize(
    ("watches", "served", "scopes"),
    [
        ([Watch(*SECRET, namespaces=("b", "a"))], (), ["in a b"]),
        ([Watch(*SECRET, namespaces=("a", "b")), Watch(*SECRET, namespaces=("a",))], (), ["in a b"]),
        ([Watch(*SECRET, namespaces=("a",)), Watch(*SECRET, namespaces=("b",))], (), ["in a", "in b"]),
        ([Watch(*SECRET, namespaces=("a",)), Watch(*SECRET)], (), ["all"]),
        ([KEYS, Watch(*SECRET, namespaces=("a",))], (), ["metadata,owned", "in a"]),
        ([Watch(*SECRET, namespaces=("a", "b"))], ("a", "c"), ["in a"]),
        ([Watch(*SECRET, namespaces=("a", "b"))], ("a",), ["all"]),
        ([Watch(*SECRET, namespaces=("a",))], ("b",), ["in no namespace"]),
    ],
)
def test_namespaces_that_a_plugin_chose_are_read_and_no_others(
    watches: list[Watch], served: tuple[str, ...], scopes: list[str]
) -> None:
    """Beside what others declared, of those that the manager serves: it has no right to more."""
    assert [str(scope) for scope in served_by(watches, served)] == scopes


def test_a_scope_that_hears_of_few_objects_or_namespaces_holds_up_no_write_of_another() -> None:
    """It learns of the versions in between by bookmarks, a minute late, and never of other namespaces."""
    everything = Scope(None, metadata_only=True, owned_only=False)
    some = Scope("a", metadata_only=False, owned_only=False)
    assert JoinedStore([stored(everything, version=20), stored(some, version=3)]).reached("team/any") == 20
    assert JoinedStore([stored(some, version=3)]).reached("team/any") == 3
    labelled = Scope("a", metadata_only=False, owned_only=True)
    chosen = Scope(None, metadata_only=False, owned_only=False, namespaces=("x",))
    scope, store = stored(chosen, version=0)
    store.update_resource_version("3", "x")
    assert JoinedStore([stored(labelled, version=20), (scope, store)]).reached("team/own") == 20


def test_an_index_of_one_scope_finds_objects_as_whole_as_any_scope_has_them() -> None:
    def by_data(obj: JsonObject) -> list[str]:
        return list(obj.get("data", ()))

    metadata = stored(Scope(None, metadata_only=True, owned_only=False), secret("one"), secret("two"), version=5)
    whole = stored(Scope("a", metadata_only=False, owned_only=False), secret("one", data={"k": "v"}), version=5)
    whole[1].add_indexer("data", by_data)
    joined = JoinedStore([metadata, whole])
    assert joined.index_names() == ["data"]
    assert [obj["data"] for obj in joined.by_index("data", "k")] == [{"k": "v"}]
    assert list(joined.by_index("data", "x")) == []
