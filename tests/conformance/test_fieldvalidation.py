"""Field validation, dry runs and warnings."""

from typing import Any

import pytest
from support.conformance import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Collection
from support.samples import configmap, widget

UNKNOWN = 'unknown field "bogus"'
TWICE_IN_YAML = b'metadata:\n  name: a\ndata:\n  x: "1"\n  x: "2"\n'
TWICE = b'{"metadata":{"name":"a"},"immutable":true,"immutable":false}'


async def test_an_unknown_field_is_dropped_with_a_warning_or_ignored(configmaps: Collection) -> None:
    answer = await configmaps.create({**configmap("a"), "bogus": 1})
    assert "bogus" not in answer.ok(201)
    assert answer.warnings == (UNKNOWN,)
    assert answer.headers["Warning"] == '299 - "unknown field \\"bogus\\""'
    answer = await configmaps.create({**configmap("b"), "bogus": 1}, fieldValidation="Ignore")
    assert "bogus" not in answer.ok(201)
    assert answer.warnings == ()


@pytest.mark.parametrize(
    ("obj", "complaint"),
    [
        (widget("a", bogus=1), 'unknown field "spec.bogus"'),
        ({**widget("a"), "metadata": {"name": "a", "bogus": 1}}, 'unknown field "metadata.bogus"'),
        (widget("a", bogus=1, wrong=2), 'unknown field "spec.bogus", unknown field "spec.wrong"'),
    ],
)
async def test_strict_validation_lists_all_unknown_fields(widgets: Collection, obj: Any, complaint: str) -> None:
    status = (await widgets.create(obj, fieldValidation="Strict")).refused(400, "BadRequest")
    assert status["message"].endswith(f"strict decoding error: {complaint}")


@pytest.mark.parametrize("validation", ["", "Warn"])
async def test_a_repeated_field_has_a_warning(configmaps: Collection, validation: str) -> None:
    """The last one counts."""
    options = {"fieldValidation": validation} if validation else {}
    answer = await configmaps.create(TWICE, **options)
    assert answer.ok(201)["immutable"] is False
    assert answer.warnings == ('duplicate field "immutable"',)


async def test_strict_validation_refuses_a_repeated_field(configmaps: Collection) -> None:
    """Together with the fields that it does not know."""
    body = TWICE.replace(b"}", b',"bogus":1}', 2).replace(b',"bogus":1}', b"}", 1)
    message = (await configmaps.create(body, fieldValidation="Strict")).refused(400, "BadRequest")["message"]
    assert message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'duplicate field "immutable", unknown field "bogus"'
    )


@pytest.mark.parametrize("validation", ["", "Warn", "Ignore"])
async def test_a_repeated_key_of_yaml_has_a_warning_or_is_ignored(configmaps: Collection, validation: str) -> None:
    """The last one counts."""
    options = {"fieldValidation": validation} if validation else {}
    answer = await configmaps.create(TWICE_IN_YAML, content_type="application/yaml", **options)
    assert answer.ok(201)["data"] == {"x": "2"}
    assert answer.warnings == (() if validation == "Ignore" else ('line 5: key "x" already set in map',))


async def test_strict_validation_refuses_a_repeated_key_of_yaml(configmaps: Collection) -> None:
    answer = await configmaps.create(TWICE_IN_YAML, content_type="application/yaml", fieldValidation="Strict")
    assert answer.refused(400, "BadRequest")["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'yaml: unmarshal errors:\n  line 5: key "x" already set in map'
    )


async def test_an_apply_tells_of_repeated_keys(configmaps: Collection) -> None:
    path = configmaps.at("a")
    options: dict[str, Any] = {"content_type": APPLY_PATCH, "fieldManager": "applier"}
    body = b"apiVersion: v1\nkind: ConfigMap\n" + TWICE_IN_YAML
    answer = await configmaps.client.send("PATCH", path, body, fieldValidation="Strict", **options)
    message = answer.refused(400, "BadRequest")["message"]
    assert message.startswith("error strict decoding YAML: ")
    assert message.endswith('yaml: unmarshal errors:\n  line 7: key "x" already set in map')
    (await configmaps.get("a")).refused(404)
    answer = await configmaps.client.send("PATCH", path, body, **options)
    assert answer.ok(201)["data"] == {"x": "2"}
    assert answer.warnings == ('line 7: key "x" already set in map',)


@pytest.mark.parametrize("patch_type", [MERGE_PATCH, STRATEGIC_PATCH])
async def test_a_patch_tells_of_repeated_fields(configmaps: Collection, patch_type: str) -> None:
    await configmaps.made(configmap("a"))
    body, text = b'{"data":{"x":"1","x":"2"}}', 'duplicate field "data.x"'
    answer = await configmaps.patch("a", body, form=patch_type, fieldValidation="Strict")
    assert answer.causes() == [("patch", "FieldValueInvalid")]
    assert answer.json["message"].endswith(f"strict decoding error: {text}")
    answer = await configmaps.patch("a", body, form=patch_type)
    assert (answer.ok(200)["data"], answer.warnings) == ({"x": "2"}, (text,))


async def test_a_json_patch_tells_of_repeated_and_unknown_members(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"x": "1"}))
    body = b'[{"op":"add","op":"replace","path":"/data/x","value":"2","why":"so"}]'
    texts = ('json patch duplicate field "[0].op"', 'json patch unknown field "[0].why"')
    answer = await configmaps.patch("a", body, form=JSON_PATCH, fieldValidation="Strict")
    assert answer.causes() == [("patch", "FieldValueInvalid")]
    assert all(text in answer.json["message"] for text in texts)
    answer = await configmaps.patch("a", body, form=JSON_PATCH)
    assert (answer.ok(200)["data"], sorted(answer.warnings)) == ({"x": "2"}, sorted(texts))


async def test_an_update_validates_fields(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    changed = {**configmap("a"), "bogus": 1}
    (await configmaps.put(changed, fieldValidation="Strict")).refused(400, "BadRequest")
    assert (await configmaps.put(changed)).warnings == (UNKNOWN,)


@pytest.mark.parametrize("patch_type", [MERGE_PATCH, STRATEGIC_PATCH])
async def test_a_patch_validates_fields(configmaps: Collection, patch_type: str) -> None:
    await configmaps.made(configmap("a"))
    answer = await configmaps.patch("a", {"bogus": 1}, form=patch_type, fieldValidation="Strict")
    assert answer.causes() == [("patch", "FieldValueInvalid")]
    assert answer.json["message"].endswith(f"strict decoding error: {UNKNOWN}")
    assert (await configmaps.patch("a", {"bogus": 1}, form=patch_type)).warnings == (UNKNOWN,)


async def test_a_json_patch_validates_fields(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    patch = [{"op": "add", "path": "/spec/bogus", "value": 1}]
    answer = await widgets.patch("a", patch, form=JSON_PATCH, fieldValidation="Strict")
    assert answer.causes() == [("patch", "FieldValueInvalid")]
    assert answer.json["message"].endswith('strict decoding error: unknown field "spec.bogus"')
    assert (await widgets.patch("a", patch, form=JSON_PATCH)).warnings == ('unknown field "spec.bogus"',)


async def test_an_unknown_kind_of_validation_or_dry_run_is_refused(configmaps: Collection) -> None:
    answer = await configmaps.create(configmap("a"), fieldValidation="Loose")
    assert answer.causes() == [("fieldValidation", "FieldValueNotSupported")]
    answer = await configmaps.create(configmap("a"), dryRun="Some")
    assert answer.causes() == [("dryRun", "FieldValueNotSupported")]
    assert answer.json["message"].startswith('CreateOptions.meta.k8s.io "" is invalid: dryRun: ')


async def test_preserved_fields_need_no_schema(widgets: Collection) -> None:
    answer = await widgets.create(widget("a", free={"any": {"thing": [1]}}), fieldValidation="Strict")
    assert answer.ok(201)["spec"]["free"] == {"any": {"thing": [1]}}


async def test_a_dry_run_of_a_creation_stores_nothing(configmaps: Collection) -> None:
    obj = (await configmaps.create(configmap("a", {"x": "1"}), dryRun="All")).ok(201)
    assert obj["data"] == {"x": "1"}
    assert obj["metadata"]["uid"]
    assert not obj["metadata"].get("resourceVersion")
    (await configmaps.get("a")).refused(404)
    assert (await configmaps.apply(configmap("a", {"x": "1"}), dryRun="All")).ok(201)["data"] == {"x": "1"}
    (await configmaps.get("a")).refused(404)


async def test_a_dry_run_validates(configmaps: Collection) -> None:
    (await configmaps.create(configmap("Bad"), dryRun="All")).refused(422, "Invalid")
    await configmaps.made(configmap("a"))
    (await configmaps.create(configmap("a"), dryRun="All")).refused(409, "AlreadyExists")


async def test_a_dry_run_of_a_change_stores_nothing(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    for answer in (
        await configmaps.put(configmap("a", {"x": "1"}), dryRun="All"),
        await configmaps.patch("a", {"data": {"x": "1"}}, dryRun="All"),
    ):
        assert answer.ok(200)["data"] == {"x": "1"}
        assert answer.json["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
    assert await configmaps.read("a") == old


@pytest.mark.parametrize("where", ["query", "body"])
async def test_a_dry_run_of_a_deletion_deletes_nothing(configmaps: Collection, where: str) -> None:
    await configmaps.made(configmap("a"))
    if where == "query":
        answer = await configmaps.delete("a", dryRun="All")
    else:
        answer = await configmaps.delete("a", {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})
    assert answer.status == 200
    assert "deletionTimestamp" not in (await configmaps.read("a"))["metadata"]


async def test_a_dry_run_of_a_collection_deletes_nothing(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", labels={"l": "1"}))
    assert (await configmaps.delete_many(labelSelector="l=1", dryRun="All")).status == 200
    assert await configmaps.names(labelSelector="l=1") == ["a"]


async def test_the_name_of_a_manager_has_at_most_128_bytes(configmaps: Collection) -> None:
    assert (await configmaps.create(configmap("a"), fieldManager="\u00e4" * 64)).status == 201
    answer = await configmaps.create(configmap("b"), fieldManager="m" * 129)
    assert answer.causes() == [("fieldManager", "FieldValueTooLong")]


async def test_a_parameter_that_nobody_knows_is_ignored(configmaps: Collection) -> None:
    assert (await configmaps.create(configmap("a"), nonsense="1")).status == 201
    assert (await configmaps.list(nonsense="1")).status == 200


async def test_the_type_of_a_patch_may_have_parameters(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    answer = await configmaps.patch("a", {"data": {"x": "1"}}, form=f"{MERGE_PATCH}; charset=utf-8")
    assert answer.ok(200)["data"] == {"x": "1"}
