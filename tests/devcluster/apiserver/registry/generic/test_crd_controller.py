"""Custom resource definitions, and the rules that they contain."""

import errno
from pathlib import Path
from typing import Any

import pytest
from support.apiserver import assert_refused

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS, NAMESPACES, GroupResource
from trainmaster.devcluster.apiserver.storage import Journal, Store
from trainmaster.runtime.jsontree import copy_tree

WIDGETS = GroupResource("example.com", "widgets")


def widget(name: str = "w", **metadata: Any) -> dict[str, Any]:
    head = {"apiVersion": "example.com/v1", "kind": "Widget"}
    return {**head, "metadata": {"name": name, **metadata}, "spec": {"size": 1}}


def conditions(crd: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in crd["status"]["conditions"]}


async def test_names_that_clash_are_not_served_until_they_are_free(api: Api, define: Any) -> None:
    await define()
    other = await define(plural="gadgets", kind="Widget")
    assert conditions(other) == {
        "NamesAccepted": ("False", "SingularConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert not api.registry.serves(GroupResource("example.com", "gadgets"))
    await api.delete(CRDS, None, "widgets.example.com")
    assert conditions(api.get(CRDS, None, "gadgets.example.com"))["Established"][0] == "True"
    assert api.registry.serves(GroupResource("example.com", "gadgets"))


async def test_changed_names_and_columns_are_accepted(api: Api, define: Any) -> None:
    crd = copy_tree(await define())
    crd["spec"]["names"]["shortNames"] = ["wd"]
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [column]
    await api.update(CRDS, crd)
    assert [each.name for each in api.registry.get(WIDGETS).columns] == ["Name", "Size"]
    assert api.get(CRDS, None, "widgets.example.com")["status"]["acceptedNames"]["shortNames"] == ["wd"]
    assert api.registry.get(WIDGETS).short_names == ("wd",)


async def test_deleting_a_definition_deletes_its_objects_and_ends_watches(api: Api, define: Any) -> None:
    await define()
    await api.create(WIDGETS, widget(), namespace="default")
    watch = api.watch(WIDGETS, since=api.revision)
    _, gone = await api.delete(CRDS, None, "widgets.example.com")
    assert gone
    assert not api.registry.serves(WIDGETS)
    assert [event.type async for event in watch] in ([], ["DELETED"])
    with pytest.raises(StatusError) as caught:
        api.list(WIDGETS)
    assert caught.value.code == 404


async def test_definitions_are_served_again_after_a_restart(tmp_path: Path, define: Any) -> None:
    crd = await define()
    crd = {**crd, "metadata": {"name": crd["metadata"]["name"]}}
    store = Store(journal=Journal(tmp_path / "journal"))
    first = Api(store, builtin_registry())
    await first.create(NAMESPACES, {"metadata": {"name": "default"}})
    await first.create(CRDS, crd)
    await first.create(WIDGETS, widget(), namespace="default")
    store.close()
    store = Store(journal=Journal(tmp_path / "journal"))
    assert Api(store, builtin_registry()).get(WIDGETS, "default", "w")["spec"]["mode"] == "fast"
    store.close()


async def test_names_that_became_free_just_before_the_end_are_accepted_by_the_next_start(
    tmp_path: Path, define: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full, or the process was killed, between a deletion and what follows from it."""
    store = Store(journal=Journal(tmp_path / "journal"))
    first = Api(store, builtin_registry())
    crd = await define()
    await first.create(CRDS, {**crd, "metadata": {"name": crd["metadata"]["name"]}})
    clashing = await define(plural="gizmos", kind="Widget")
    await first.create(CRDS, {**clashing, "metadata": {"name": clashing["metadata"]["name"]}})
    append, room = Journal.append, 2

    def append_while_there_is_room(*arguments: Any) -> None:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        room -= 1
        append(*arguments)

    with monkeypatch.context() as full:
        full.setattr(Journal, "append", append_while_there_is_room)
        await first.delete(CRDS, None, "widgets.example.com")
    store.close()
    store = Store(journal=Journal(tmp_path / "journal"))
    again = Api(store, builtin_registry())
    assert conditions(again.get(CRDS, None, "gizmos.example.com"))["Established"][0] == "True"
    assert again.registry.serves(GroupResource("example.com", "gizmos"))
    store.close()


def _bad_path(crd: dict[str, Any]) -> None:
    crd["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".a[?("}]


def _two_versions(crd: dict[str, Any]) -> None:
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": False})


def _webhook(crd: dict[str, Any]) -> None:
    crd["spec"]["conversion"] = {"strategy": "Webhook"}


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (_bad_path, 422, "spec.versions: Invalid value"),
        (_two_versions, 501, "several served versions"),
        (_webhook, 501, "conversion webhooks"),
    ],
)
async def test_definitions_that_cannot_be_served_are_refused(
    api: Api, define: Any, change: Any, code: int, text: str
) -> None:
    crd = copy_tree(await define())
    await api.delete(CRDS, None, "widgets.example.com")
    for field in ("status", "metadata"):
        del crd[field]
    crd["metadata"] = {"name": "widgets.example.com"}
    change(crd)
    await assert_refused(api.create(CRDS, crd), code, text)
    assert not api.registry.serves(WIDGETS)


def causes(error: StatusError) -> dict[str, str]:
    assert error.code == 422
    assert error.details is not None
    return {cause["field"]: cause["message"] for cause in error.details["causes"]}


def with_rule(crd: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = copy_tree(crd)
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [entry]
    return changed


async def test_a_rule_that_came_later_only_warns_of_what_is_there(api: Api, define: Any) -> None:
    """Ratcheting: an object stays usable when its definition gets stricter."""
    crd = await define()
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 9}}
    await api.create(WIDGETS, widget, namespace="default")
    await api.update(CRDS, with_rule(crd, {"rule": "self.size < 5", "message": "too big"}))
    options = WriteOptions()
    label = {"metadata": {"labels": {"a": "b"}}}
    await api.patch(WIDGETS, "default", "w", label, patch_type=PatchType.MERGE, options=options)
    assert options.warnings == ["spec: Invalid value: too big"]
    with pytest.raises(StatusError, match="spec: Invalid value: too big"):
        await api.patch(WIDGETS, "default", "w", {"spec": {"size": 8}}, patch_type=PatchType.MERGE)


async def test_a_rule_that_does_not_compile_is_the_definition_s_error(api: Api, define: Any) -> None:
    crd = await define()
    entry = {"rule": "self.colour == 'red'", "message": "paint it"}
    with pytest.raises(StatusError) as caught:
        await api.update(CRDS, with_rule(crd, entry))
    assert causes(caught.value) == {
        "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule": "Invalid value: "
        '{"rule":"self.colour == \'red\'","message":"paint it"}: compilation failed: '
        "ERROR: <input>:1:5: undefined field 'colour'\n | self.colour == 'red'\n | ....^"
    }
    assert api.get(CRDS, None, "widgets.example.com") == crd
