"""CustomResourceDefinitions: what makes a valid one, and its life."""

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from support.commands import eventually
from support.conformance import (
    JSON_PATCH,
    Client,
    Collection,
    condition_of,
    definition,
    definitions,
    install,
    installed,
    unique,
)

from trainmaster.runtime.jsontree import JsonObject

FREE: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture
async def crds(client: Client) -> Collection:
    return definitions(client)


@pytest.fixture
async def thing(client: Client) -> AsyncIterator[JsonObject]:
    """A definition that is served."""
    crd = definition({"type": "object", "properties": {"a": {"type": "string"}}})
    await install(client, crd)
    yield await definitions(client).read(crd["metadata"]["name"])
    await definitions(client).delete(crd["metadata"]["name"])


def _things(client: Client, crd: JsonObject, namespace: str | None) -> Collection:
    return client.collection(f"{crd['spec']['group']}/v1", "things", namespace)


def _thing(crd: JsonObject, name: str, **spec: Any) -> JsonObject:
    return {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec}


async def test_a_definition_is_completed_and_established(thing: JsonObject) -> None:
    names = thing["spec"]["names"]
    assert (names["singular"], names["listKind"]) == ("thing", "ThingList")
    assert thing["spec"]["conversion"] == {"strategy": "None"}
    assert thing["metadata"]["generation"] == 1
    conditions = {each["type"]: each for each in thing["status"]["conditions"]}
    assert (conditions["NamesAccepted"]["status"], conditions["NamesAccepted"]["reason"]) == ("True", "NoConflicts")
    assert conditions["Established"]["status"] == "True"
    assert conditions["Established"]["reason"] == "InitialNamesAccepted"
    assert thing["status"]["acceptedNames"]["kind"] == "Thing"
    assert thing["status"]["storedVersions"] == ["v1"]


async def test_objects_of_a_definition_are_stored(client: Client, thing: JsonObject, namespace: str) -> None:
    things = _things(client, thing, namespace)
    await things.made(_thing(thing, "a", a="x"))
    assert (await things.read("a"))["spec"] == {"a": "x"}


async def test_objects_may_be_cluster_wide(client: Client) -> None:
    crd = definition(FREE, scope="Cluster")
    async with installed(client, crd, namespace=None) as things:
        assert "namespace" not in (await things.made(_thing(crd, "a")))["metadata"]
        assert (await client.collection(f"{crd['spec']['group']}/v1", "things", "default").list()).status == 404


def _without(path: str) -> JsonObject:
    return _with(path, None)


def _with(path: str, value: Any) -> JsonObject:
    """Return a definition in which one field is different."""
    crd = definition({"type": "object", "properties": {"a": {"type": "string"}}})
    node: Any = crd
    *parents, last = path.split(".")
    for step in parents:
        node = node[int(step) if step.isdigit() else step]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return crd


SCHEMA = "spec.versions.0.schema.openAPIV3Schema"


@pytest.mark.parametrize(
    ("crd", "field"),
    [
        (_with("metadata.name", "wrong.example.com"), "metadata.name"),
        (_with("spec.scope", "Everywhere"), "spec.scope"),
        (_with("spec.group", "nodots"), "spec.group"),
        (_with("spec.names.plural", "Things"), "spec.names.plural"),
        (_with("spec.names.kind", "bad kind"), "spec.names.kind"),
        (_with("spec.versions.0.storage", False), "spec.versions"),
        (_with("spec.versions.0.name", "V1"), "spec.versions[0].name"),
        (_without("spec.versions.0.schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (_with(f"{SCHEMA}.type", "string"), "spec.validation.openAPIV3Schema.type"),
        (_with("spec.preserveUnknownFields", True), "spec.preserveUnknownFields"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_definition_is_validated(crds: Collection, crd: JsonObject, field: str) -> None:
    fields = [path for path, _ in (await crds.create(crd)).causes()]
    assert field in fields, fields


NOT_STRUCTURAL: dict[str, JsonObject] = {
    "untyped": {},
    "described-only": {"description": "no type"},
    "array-without-items": {"type": "array"},
    "untyped-items": {"type": "array", "items": {}},
    "untyped-below": {"type": "object", "properties": {"b": {}}},
    "unknown-type": {"type": "wrong"},
    "map-without-keys": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
    "optional-key-without-default": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
    },
    "unknown-list-type": {"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}},
    "bad-pattern": {"type": "string", "pattern": "("},
    "bad-default": {"type": "string", "default": 5},
    "properties-and-additional": {
        "type": "object",
        "properties": {"b": {"type": "string"}},
        "additionalProperties": {"type": "string"},
    },
    "unique-items": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
    "reference": {"$ref": "#/definitions/x"},
}


_A = "spec.validation.openAPIV3Schema.properties[spec].properties[a]"
SAID = {
    "untyped": f"{_A}.type: Required value: must not be empty for specified object fields",
    "array-without-items": f"{_A}.items: Required value: must be specified",
    "untyped-items": f"{_A}.items.type: Required value: must not be empty for specified array items",
    "map-without-keys": "must not be empty if x-kubernetes-list-type is map",
    "optional-key-without-default": f"{_A}.items.properties[k].default: Required value: this property is in x-",
    "properties-and-additional": f"{_A}.additionalProperties: Forbidden: additionalProperties and properties are",
}


@pytest.mark.parametrize("name", NOT_STRUCTURAL)
async def test_a_schema_must_be_structural(crds: Collection, name: str) -> None:
    crd = definition({"type": "object", "properties": {"a": NOT_STRUCTURAL[name]}})
    answer = await crds.create(crd)
    if answer.status == 201:
        await crds.delete(crd["metadata"]["name"])
    assert SAID.get(name, "") in answer.refused(422, "Invalid")["message"]


async def test_a_column_whose_path_is_broken_ends_the_table(client: Client, namespace: str) -> None:
    """The definition is accepted; the columns before it are shown."""
    columns = [
        {"name": name, "type": "string", "jsonPath": path}
        for name, path in (("A", ".spec.a"), ("B", ".spec["), ("C", ".spec.c"))
    ]
    async with installed(client, definition(FREE, columns=columns), namespace=namespace) as things:
        table = (await things.list(accept="application/json;as=Table;v=v1;g=meta.k8s.io")).ok(200)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "A"]


async def test_metadata_may_be_restricted_in_its_name_only(crds: Collection) -> None:
    crd = definition(FREE)
    metadata = {
        "type": "object",
        "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}},
    }
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"] = metadata
    answer = await crds.create(crd)
    if answer.status == 201:
        await crds.delete(crd["metadata"]["name"])
    answer.refused(422, "Invalid")


@pytest.mark.parametrize(
    ("field", "value"),
    [("group", "other.example.com"), ("scope", "Cluster"), ("names.kind", "Other"), ("names.plural", "others")],
)
async def test_a_definition_keeps_its_identity(crds: Collection, thing: JsonObject, field: str, value: str) -> None:
    change: Any = value
    for name in reversed(field.split(".")):
        change = {name: change}
    answer = await crds.patch(thing["metadata"]["name"], {"spec": change})
    assert f"spec.{field}" in [path for path, _ in answer.causes()]


async def test_a_definition_is_not_updated_without_a_resource_version(crds: Collection, thing: JsonObject) -> None:
    obj = deepcopy(thing)
    del obj["metadata"]["resourceVersion"]
    assert ("metadata.resourceVersion", "FieldValueInvalid") in (await crds.put(obj)).causes()


async def test_a_new_schema_takes_effect(client: Client, crds: Collection, thing: JsonObject, namespace: str) -> None:
    things = _things(client, thing, namespace)
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b"
    patch = [{"op": "add", "path": path, "value": {"type": "string", "default": "new"}}]
    obj = (await crds.patch(thing["metadata"]["name"], patch, form=JSON_PATCH)).ok(200)
    assert obj["metadata"]["generation"] == 2

    async def defaulted() -> bool:
        return bool((await things.made(_thing(thing, unique("a"))))["spec"].get("b") == "new")

    await eventually(defaulted)


@pytest.mark.controllers
async def test_a_definition_takes_its_objects_along(client: Client, crds: Collection, namespace: str) -> None:
    crd = definition(FREE)
    await install(client, crd)
    things = _things(client, crd, namespace)
    await things.made(_thing(crd, "a"))
    (await crds.delete(crd["metadata"]["name"])).ok(200)
    await crds.gone(crd["metadata"]["name"])
    await eventually(lambda: _unserved(things))


async def _unserved(things: Collection) -> bool:
    return (await things.list()).status == 404


@pytest.mark.controllers
async def test_a_definition_waits_for_its_objects(client: Client, crds: Collection, namespace: str) -> None:
    crd = definition(FREE)
    await install(client, crd)
    name, things = crd["metadata"]["name"], _things(client, crd, namespace)
    obj = _thing(crd, "a")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    await things.made(obj)
    await crds.delete(name)

    async def terminating() -> bool:
        present = (await crds.get(name)).ok(200)
        marked = "deletionTimestamp" in (await things.read("a"))["metadata"]
        return marked and condition_of(present, "Terminating") == "True"

    await eventually(terminating)
    assert "customresourcecleanup.apiextensions.k8s.io" in (await crds.read(name))["metadata"]["finalizers"]
    status = (await things.create(_thing(crd, "b"))).refused(403, "Forbidden")
    assert status["message"].endswith("create not allowed while custom resource definition is terminating")
    (await things.patch("a", {"metadata": {"finalizers": None}})).ok(200)
    await crds.gone(name)


async def test_names_that_are_taken_are_not_accepted(client: Client, crds: Collection, thing: JsonObject) -> None:
    other = definition(FREE, kind="Other", group=thing["spec"]["group"])
    other["spec"]["names"]["shortNames"] = ["things"]
    name = other["metadata"]["name"]
    await crds.made(other)
    try:

        async def judged() -> JsonObject | None:
            present = await crds.read(name)
            return present if condition_of(present, "NamesAccepted") == "False" else None

        present = await eventually(judged)
        assert present is not None
        conditions = {each["type"]: each for each in present["status"]["conditions"]}
        assert conditions["NamesAccepted"]["reason"] == "ShortNamesConflict"
        assert conditions["NamesAccepted"]["message"] == '"things" is already in use'
        assert condition_of(present, "Established") == "False"
    finally:
        await crds.delete(name)


async def test_short_names_and_categories_are_discoverable(client: Client) -> None:
    crd = definition(FREE)
    crd["spec"]["names"] |= {"shortNames": ["th"], "categories": ["all"]}
    await install(client, crd)
    try:

        async def listed() -> JsonObject | None:
            answer = await client.send("GET", f"/apis/{crd['spec']['group']}/v1")
            return answer.json["resources"][0] if answer.status == 200 else None

        entry = await eventually(listed)
        assert entry is not None
        assert (entry["shortNames"], entry["categories"]) == (["th"], ["all"])
    finally:
        await definitions(client).delete(crd["metadata"]["name"])


async def test_a_version_that_is_not_served_is_not_there(client: Client) -> None:
    crd = definition(FREE)
    older = deepcopy(crd["spec"]["versions"][0])
    crd["spec"]["versions"].append(older | {"name": "v1alpha1", "served": False, "storage": False})
    await install(client, crd)
    try:
        group = crd["spec"]["group"]
        assert (await client.collection(f"{group}/v1alpha1", "things").list()).status == 404
        (await client.collection(f"{group}/v1", "things").list()).ok(200)
    finally:
        await definitions(client).delete(crd["metadata"]["name"])


async def test_present_objects_get_the_defaults_of_a_changed_definition(client: Client, namespace: str) -> None:
    """When they are read: nothing is written for that."""
    crd = definition({"type": "object", "properties": {"old": {"type": "string"}, "gone": {"type": "string"}}})
    name = crd["metadata"]["name"]
    async with installed(client, crd, namespace=namespace) as things:
        made = await things.made(_thing(crd, "a", old="x", gone="y"))
        properties = {"old": {"type": "string"}, "new": {"type": "string", "default": "z"}}
        change = [
            {
                "op": "replace",
                "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties",
                "value": properties,
            }
        ]
        (await definitions(client).patch(name, change, form=JSON_PATCH)).ok(200)

        async def shaped() -> bool:
            return bool((await things.read("a"))["spec"] == {"old": "x", "new": "z"})

        await eventually(shaped)
        obj = await things.read("a")
        assert obj["metadata"] == made["metadata"]
        [item] = (await things.list()).ok(200)["items"]
        assert item["spec"] == obj["spec"]
        async with things.watch(timeoutSeconds=5) as stream:
            assert (await stream.next())["object"]["spec"] == obj["spec"]
        changed = (await things.patch("a", {"metadata": {"labels": {"l": "1"}}})).ok(200)
        assert (changed["spec"], changed["metadata"]["generation"]) == (obj["spec"], 1)
