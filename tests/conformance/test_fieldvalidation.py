"""Field validation, dry runs and warnings."""

from __future__ import annotations

import pytest
from support.conformance import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Collection
from support.samples import configmap, job, widget

UNKNOWN = 'unknown field "bogus"'
TWICE = b'{"metadata":{"name":"a"},"immutable":true,"immutable":false}'


async def test_an_unknown_field_is_dropped_with_a_warning(configmaps: Collection) -> None:
    answer = await configmaps.create({**configmap("a"), "bogus": 1})
    assert "bogus" not in answer.ok(201)
    assert answer.warnings == (UNKNOWN,)
    assert answer.headers["Warning"] == '299 - "unknown field \\"bogus\\""'


async def test_unknown_fields_may_be_ignored(configmaps: Collection) -> None:
    answer = await configmaps.create({**configmap("a"), "bogus": 1}, fieldValidation="Ignore")
    assert "bogus" not in answer.ok(201)
    assert answer.warnings == ()


async def test_strict_validation_refuses_an_unknown_field(configmaps: Collection) -> None:
    answer = await configmaps.create({**configmap("a"), "bogus": 1}, fieldValidation="Strict")
    text = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "bogus"'
    assert answer.refused(400, "BadRequest")["message"] == text
    (await configmaps.get("a")).refused(404)


async def test_strict_validation_names_the_path_of_a_nested_field(jobs: Collection) -> None:
    obj = job("a")
    obj["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    status = (await jobs.create(obj, fieldValidation="Strict")).refused(400, "BadRequest")
    path = "spec.template.spec.containers[0].comand"
    assert status["message"].endswith(f'strict decoding error: unknown field "{path}"')


async def test_strict_validation_refuses_an_unknown_field_of_a_custom_resource(widgets: Collection) -> None:
    status = (await widgets.create(widget("a", bogus=1), fieldValidation="Strict")).refused(400, "BadRequest")
    assert status["message"].endswith('strict decoding error: unknown field "spec.bogus"')


async def test_strict_validation_refuses_an_unknown_field_of_metadata(widgets: Collection) -> None:
    obj = widget("a")
    obj["metadata"]["bogus"] = 1
    status = (await widgets.create(obj, fieldValidation="Strict")).refused(400, "BadRequest")
    assert status["message"].endswith('strict decoding error: unknown field "metadata.bogus"')


async def test_strict_validation_lists_all_unknown_fields(widgets: Collection) -> None:
    answer = await widgets.create(widget("a", bogus=1, wrong=2), fieldValidation="Strict")
    message = answer.refused(400, "BadRequest")["message"]
    assert message.endswith('strict decoding error: unknown field "spec.bogus", unknown field "spec.wrong"')


async def test_each_unknown_field_has_a_warning(widgets: Collection) -> None:
    answer = await widgets.create(widget("a", bogus=1, nested={"wrong": 2}))
    assert answer.ok(201)["spec"]["nested"] == {"mode": "auto"}
    assert set(answer.warnings) == {'unknown field "spec.bogus"', 'unknown field "spec.nested.wrong"'}


@pytest.mark.parametrize("validation", ["", "Warn"])
async def test_a_repeated_field_has_a_warning(configmaps: Collection, validation: str) -> None:
    """The last one counts."""
    options = {"fieldValidation": validation} if validation else {}
    answer = await configmaps.create(TWICE, **options)
    assert answer.ok(201)["immutable"] is False
    assert answer.warnings == ('duplicate field "immutable"',)


async def test_strict_validation_refuses_a_repeated_field(configmaps: Collection) -> None:
    answer = await configmaps.create(TWICE, fieldValidation="Strict")
    assert 'strict decoding error: duplicate field "immutable"' in answer.refused(400, "BadRequest")["message"]


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


async def test_an_unknown_kind_of_validation_is_refused(configmaps: Collection) -> None:
    answer = await configmaps.create(configmap("a"), fieldValidation="Loose")
    assert answer.causes() == [("fieldValidation", "FieldValueNotSupported")]


async def test_preserved_fields_need_no_schema(widgets: Collection) -> None:
    answer = await widgets.create(widget("a", free={"any": {"thing": [1]}}), fieldValidation="Strict")
    assert answer.ok(201)["spec"]["free"] == {"any": {"thing": [1]}}


async def test_a_dry_run_of_a_creation_stores_nothing(configmaps: Collection) -> None:
    answer = await configmaps.create(configmap("a", {"x": "1"}), dryRun="All")
    obj = answer.ok(201)
    assert obj["data"] == {"x": "1"}
    assert obj["metadata"]["uid"]
    assert not obj["metadata"].get("resourceVersion")
    (await configmaps.get("a")).refused(404)


async def test_a_dry_run_validates(configmaps: Collection) -> None:
    (await configmaps.create(configmap("Bad"), dryRun="All")).refused(422, "Invalid")
    await configmaps.made(configmap("a"))
    (await configmaps.create(configmap("a"), dryRun="All")).refused(409, "AlreadyExists")


async def test_a_dry_run_of_an_update_stores_nothing(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    new = (await configmaps.put(configmap("a", {"x": "1"}), dryRun="All")).ok(200)
    assert new["data"] == {"x": "1"}
    assert await configmaps.read("a") == old


async def test_a_dry_run_of_a_patch_stores_nothing(configmaps: Collection) -> None:
    old = await configmaps.made(configmap("a"))
    new = (await configmaps.patch("a", {"data": {"x": "1"}}, dryRun="All")).ok(200)
    assert new["data"] == {"x": "1"}
    assert new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
    assert await configmaps.read("a") == old


async def test_a_dry_run_of_an_apply_stores_nothing(configmaps: Collection) -> None:
    assert (await configmaps.apply(configmap("a", {"x": "1"}), dryRun="All")).ok(201)["data"] == {"x": "1"}
    (await configmaps.get("a")).refused(404)


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


async def test_an_unknown_dry_run_is_refused(configmaps: Collection) -> None:
    answer = await configmaps.create(configmap("a"), dryRun="Some")
    assert answer.causes() == [("dryRun", "FieldValueNotSupported")]
