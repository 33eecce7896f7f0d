"""Structural schemas of custom resources: validation, defaults, pruning, lists, and the texts of the complaints."""

import pytest
from support.commands import eventually
from support.conformance import JSON_PATCH, Client, Collection, definition, definitions, installed
from support.samples import widget

from trainmaster.runtime.jsontree import JsonObject

INVALID, TYPE, REQUIRED = "FieldValueInvalid", "FieldValueTypeInvalid", "FieldValueRequired"
NOT_SUPPORTED, DUPLICATE, TOO_LONG, TOO_MANY = (
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueTooLong",
    "FieldValueTooMany",
)


@pytest.mark.parametrize(
    ("spec", "field", "reason", "text"),
    [
        ({"size": "x"}, "size", TYPE, 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 1.5}, "size", TYPE, 'Invalid value: "float64": spec.size in body must be of type int32: "float64"'),
        ({"name": 5}, "name", TYPE, 'Invalid value: "integer": spec.name in body must be of type string: "integer"'),
        ({"enabled": "yes"}, "enabled", TYPE, "spec.enabled in body must be of type boolean"),
        ({"steps": "x"}, "steps", TYPE, "spec.steps in body must be of type array"),
        ({"nested": []}, "nested", TYPE, "spec.nested in body must be of type object"),
        ({"size": -1}, "size", INVALID, "Invalid value: -1: spec.size in body should be greater than or equal to 0"),
        ({"size": 101}, "size", INVALID, "Invalid value: 101: spec.size in body should be less than or equal to 100"),
        ({"ratio": 0}, "ratio", INVALID, "spec.ratio in body should be greater than 0"),
        ({"step": 7}, "step", INVALID, "Invalid value: 7: spec.step in body should be a multiple of 5"),
        ({"name": "x"}, "name", INVALID, 'Invalid value: "x": spec.name in body should be at least 2 chars long'),
        ({"name": "x" * 9}, "name", TOO_LONG, "Too long: may not be "),
        ({"code": "A-1"}, "code", INVALID, "Invalid value: \"A-1\": spec.code in body should match '^[a-z]+-[0-9]+$'"),
        ({"color": "blue"}, "color", NOT_SUPPORTED, 'Unsupported value: "blue": supported values: "red", "green"'),
        ({"when": "today"}, "when", TYPE, 'spec.when in body must be of type date-time: "today"'),
        ({"target": True}, "target", TYPE, "spec.target in body must be of type integer,string"),
        ({"steps": ["a"] * 4}, "steps", TOO_MANY, "Too many: 4: must have at most 3 items"),
        ({"pair": [1]}, "pair", INVALID, "spec.pair in body should have at least 2 items"),
        ({"labels": dict.fromkeys("abcd", "x")}, "labels", TOO_MANY, "Too many: 4: must have at most 3 items"),
        ({"labels": {"a": 1}}, "labels.a", TYPE, "spec.labels.a in body must be of type string"),
        ({"steps": ["a", 1]}, "steps[1]", TYPE, "spec.steps[1] in body must be of type string"),
        ({"tags": ["a", "b", "a"]}, "tags[2]", DUPLICATE, 'Duplicate value: "a"'),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "parts[1]", DUPLICATE, 'Duplicate value: {"name":"a"}'),
        ({"parts": [{"count": 1}]}, "parts[0].name", REQUIRED, "Required value"),
        ({"embedded": {"kind": "Pod"}}, "embedded.apiVersion", REQUIRED, "Required value"),
    ],
)
async def test_a_value_that_breaks_the_schema_is_refused(
    widgets: Collection, spec: JsonObject, field: str, reason: str, text: str
) -> None:
    """Tolerance: the sentence of `Too long` differs by version."""
    status = (await widgets.create(widget("a", **spec))).refused(422, "Invalid")
    found = {(cause["field"], cause["reason"]): cause["message"] for cause in status["details"]["causes"]}
    assert (f"spec.{field}", reason) in found, found
    assert text in found[f"spec.{field}", reason]


async def test_a_required_field_is_missed(widgets: Collection) -> None:
    answer = await widgets.create({**widget("a"), "spec": {}})
    assert ("spec.size", REQUIRED) in answer.causes()
    assert "spec.size: Required value" in answer.json["message"]


async def test_exactly_one_alternative_must_hold(widgets: Collection) -> None:
    await widgets.made(widget("a", either={"a": "x"}))
    for both in ({}, {"a": "x", "b": "y"}):
        message = (await widgets.create(widget("b", either=both))).refused(422, "Invalid")["message"]
        assert '"spec.either" must validate one and only one schema (oneOf)' in message


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 0},
        {"size": 100},
        {"size": 5.0},
        {"name": "é" * 8},
        {"ratio": 1},
        {"ratio": 0.5},
        {"step": 0},
        {"step": -5},
        {"target": 1},
        {"target": "50%"},
        {"when": "2026-01-01T00:00:00Z"},
        {"when": "2026-01-01T00:00:00.123+01:00"},
        {"pair": [1, 2, 3]},
        {"tags": []},
        {"parts": [{"name": "a", "count": 1}, {"name": "b", "count": 2}]},
        {"maybe": None},
        {"free": {"a": [1, {"b": None}], "c": {"d": "e"}}},
        {"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"any": 1}}},
    ],
    ids=str,
)
async def test_a_value_that_keeps_the_schema_is_stored(widgets: Collection, spec: JsonObject) -> None:
    stored = (await widgets.made(widget("a", **spec)))["spec"]
    assert {name: stored[name] for name in spec} == spec


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {}),
        ({"nested": {}}, {"nested": {"mode": "auto"}}),
        ({"parts": [{"name": "a"}]}, {"parts": [{"name": "a", "count": 1}]}),
        ({"color": "green", "level": 0}, {"color": "green", "level": 0}),
        ({"color": None}, {}),
    ],
)
async def test_absent_fields_get_their_defaults(widgets: Collection, given: JsonObject, stored: JsonObject) -> None:
    """Defaults do not create their parents; null is absent."""
    defaults = {"size": 1, "color": "red", "level": 3, "defaulted": {"mode": "manual"}}
    assert (await widgets.made(widget("a", **given)))["spec"] == {**defaults, **stored}


async def test_a_default_comes_back_when_its_field_is_removed(widgets: Collection) -> None:
    await widgets.made(widget("a", color="green"))
    assert (await widgets.patch("a", {"spec": {"color": None}})).ok(200)["spec"]["color"] == "red"


async def test_unknown_fields_are_pruned(widgets: Collection) -> None:
    """Those of list elements and of an atomic map as well."""
    fields = {"nested": {"bogus": 2}, "parts": [{"name": "a", "bogus": 1}], "point": {"x": 1, "z": 2}}
    stored = await widgets.made({**widget("a", bogus=1, **fields), "other": 3})
    assert "other" not in stored
    assert "bogus" not in stored["spec"]
    assert stored["spec"]["nested"] == {"mode": "auto"}
    assert stored["spec"]["parts"] == [{"name": "a", "count": 1}]
    assert stored["spec"]["point"] == {"x": 1}


async def test_an_integer_is_checked_against_its_format(widgets: Collection) -> None:
    assert "spec.size" in (await widgets.create(widget("a", size=2**40))).refused(422)["message"]


async def test_what_was_invalid_before_does_not_fail_an_update(client: Client, namespace: str) -> None:
    """Ratcheting (KEP-4008): a rule that came later holds for what is changed.

    Tolerance: on by default since 1.30.
    """
    loose: JsonObject = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    crd = definition(loose)
    async with installed(client, crd, namespace=namespace) as things:
        kind = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing"}
        await things.made({**kind, "metadata": {"name": "old"}, "spec": {"a": "long", "b": "x"}})
        crds = definitions(client)
        path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/maxLength"
        patch = [{"op": "add", "path": path, "value": 2}]
        (await crds.patch(crd["metadata"]["name"], patch, form=JSON_PATCH)).ok(200)
        await _until_refused(things, {**kind, "metadata": {"generateName": "new-"}, "spec": {"a": "long"}})
        (await things.patch("old", {"spec": {"b": "y"}})).ok(200)
        (await things.patch("old", {"spec": {"a": "longer"}})).refused(422, "Invalid")


async def _until_refused(things: Collection, obj: JsonObject) -> None:
    """Wait until a new schema is in force, which takes a real server a moment."""

    async def refused() -> bool:
        return (await things.create(obj, dryRun="All")).status == 422

    await eventually(refused)
