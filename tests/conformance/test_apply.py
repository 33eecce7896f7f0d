"""Server-side apply: ownership, conflicts, and what goes when nobody wants it any more."""

import pytest
from support.conformance import APPLY_PATCH, Collection, managers
from support.samples import configmap, job, lease, pod, pod_spec, service, widget


async def test_an_apply_creates_changes_and_takes_away(configmaps: Collection) -> None:
    obj = (await configmaps.apply(configmap("a", {"x": "1", "y": "2"}))).ok(201)
    assert obj["data"] == {"x": "1", "y": "2"}
    [entry] = obj["metadata"]["managedFields"]
    assert (entry["apiVersion"], entry["fieldsType"], entry["operation"]) == ("v1", "FieldsV1", "Apply")
    assert entry["time"].endswith("Z")
    assert managers(obj) == {("applier", "Apply", ""): {"f:data": {"f:x": {}, "f:y": {}}}}
    assert (await configmaps.apply(configmap("a", {"x": "1", "y": "2"}))).ok(200) == obj, "nothing is changed"
    assert (await configmaps.apply(configmap("a", {"x": "2"}))).ok(200)["data"] == {"x": "2"}


NO_VERSION = "1"
"""A resource version that no object has."""


async def test_an_apply_with_another_resource_version_only_creates(configmaps: Collection, widgets: Collection) -> None:
    """For a kind of the server's own and for a custom one: where nothing is, no version is compared."""
    for collection, obj in ((configmaps, configmap("a")), (widgets, widget("a"))):
        sent = {**obj, "metadata": {**obj["metadata"], "labels": {"by": "one"}, "resourceVersion": NO_VERSION}}
        made = (await collection.apply(sent, force="true")).ok(201)
        assert made["metadata"]["resourceVersion"] != NO_VERSION
        sent["metadata"]["labels"] = {"by": "two"}
        status = (await collection.apply(sent, force="true")).refused(409, "Conflict")
        assert "the object has been modified" in status["message"]
        assert (await collection.get("a")).ok() == made


async def test_what_others_own_or_nobody_applied_stays(configmaps: Collection) -> None:
    await configmaps.apply(configmap("a", {"x": "1", "y": "2"}))
    await configmaps.apply(configmap("a", {"y": "2"}), manager="other")
    assert (await configmaps.apply(configmap("a", {"x": "1"}))).ok(200)["data"] == {"x": "1", "y": "2"}
    await configmaps.made(configmap("b", {"z": "1"}))
    assert (await configmaps.apply(configmap("b", {"x": "1"}))).ok(200)["data"] == {"x": "1", "z": "1"}


async def test_equal_values_are_owned_together(configmaps: Collection) -> None:
    await configmaps.apply(configmap("a", {"x": "1"}), manager="one")
    obj = (await configmaps.apply(configmap("a", {"x": "1"}), manager="two")).ok(200)
    assert managers(obj).keys() == {("one", "Apply", ""), ("two", "Apply", "")}


async def test_changing_what_another_applied_is_a_conflict_unless_it_is_forced(configmaps: Collection) -> None:
    await configmaps.apply(configmap("a", {"x": "1", "y": "1"}), manager="one")
    status = (await configmaps.apply(configmap("a", {"x": "2"}), manager="two")).refused(409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    assert status["details"]["causes"] == [cause]
    status = (await configmaps.apply(configmap("a", {"x": "2", "y": "2"}), manager="two")).refused(409)
    assert status["message"].startswith("Apply failed with 2 conflicts: conflicts with")
    assert [cause["field"] for cause in status["details"]["causes"]] == [".data.x", ".data.y"]
    obj = (await configmaps.apply(configmap("a", {"x": "2"}), manager="two", force="true")).ok(200)
    assert obj["data"] == {"x": "2", "y": "1"}
    assert managers(obj) == {
        ("one", "Apply", ""): {"f:data": {"f:y": {}}},
        ("two", "Apply", ""): {"f:data": {"f:x": {}}},
    }


async def test_a_conflict_with_an_update_names_its_version(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"x": "1"}), fieldManager="writer")
    status = (await configmaps.apply(configmap("a", {"x": "2"}))).refused(409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "writer" using v1: .data.x'


async def test_an_update_takes_what_it_changes_and_no_equal_values(configmaps: Collection) -> None:
    applied = (await configmaps.apply(configmap("a", {"x": "1", "y": "1"}))).ok(201)
    assert (await configmaps.put(configmap("a", {"x": "1", "y": "1"}), fieldManager="writer")).ok(200) == applied
    owned = managers((await configmaps.patch("a", {"data": {"x": "2"}}, fieldManager="writer")).ok(200))
    assert owned["applier", "Apply", ""] == {"f:data": {"f:y": {}}}
    assert owned["writer", "Update", ""] == {"f:data": {"f:x": {}}}


async def test_a_creator_owns_what_it_sent(configmaps: Collection) -> None:
    obj = await configmaps.made(configmap("a", {"x": "1"}, labels={"l": "1"}), fieldManager="writer")
    owned = managers(obj)["writer", "Update", ""]
    assert owned["f:data"] == {".": {}, "f:x": {}}
    assert owned["f:metadata"] == {"f:labels": {".": {}, "f:l": {}}}


async def test_a_manager_without_a_name_is_known_by_its_program(configmaps: Collection) -> None:
    obj = (await configmaps.create(configmap("a", {"x": "1"}), headers={"User-Agent": "program/1.2 (x)"})).ok(201)
    assert managers(obj).keys() == {("program", "Update", "")}


async def test_an_apply_needs_a_manager_whose_name_has_at_most_128_characters(configmaps: Collection) -> None:
    """Tolerance: a longer name is too long or invalid, by version."""
    answer = await configmaps.client.send("PATCH", configmaps.at("a"), configmap("a"), content_type=APPLY_PATCH)
    assert answer.causes() == [("fieldManager", "FieldValueRequired")]
    (await configmaps.apply(configmap("a"), manager="m" * 129)).refused(422, "Invalid")


async def test_force_is_for_apply_only(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    assert (await configmaps.patch("a", {}, force="true")).causes() == [("force", "FieldValueForbidden")]


async def test_an_applied_object_must_say_what_it_is(configmaps: Collection) -> None:
    assert (await configmaps.apply({"metadata": {"name": "a"}})).status in {400, 422}


async def test_an_apply_for_another_name_is_a_bad_request(configmaps: Collection) -> None:
    path = configmaps.at("b")
    answer = await configmaps.client.send(
        "PATCH", path, configmap("a"), content_type=APPLY_PATCH, fieldManager="applier"
    )
    answer.refused(400, "BadRequest")


async def test_an_apply_with_a_stale_resource_version_is_a_conflict(configmaps: Collection) -> None:
    old = (await configmaps.apply(configmap("a", {"x": "1"}))).ok(201)
    await configmaps.apply(configmap("a", {"x": "2"}))
    stale = configmap("a", {"x": "3"}, resourceVersion=old["metadata"]["resourceVersion"])
    (await configmaps.apply(stale)).refused(409, "Conflict")


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
async def test_an_applied_field_must_be_in_the_schema(configmaps: Collection, validation: str) -> None:
    """Whatever the validation of fields says: a field without a schema cannot have an owner.

    Tolerance: the code is 500 without a reason, and may become 400.
    """
    answer = await configmaps.apply({**configmap("a"), "bogus": "x"}, fieldValidation=validation)
    assert answer.status in {400, 500}
    assert "failed to create typed patch object" in answer.json["message"]
    assert ".bogus: field not declared in schema" in answer.json["message"]


async def test_an_applied_field_of_a_custom_resource_must_be_in_the_schema(widgets: Collection) -> None:
    """Tolerance: the code is 500 without a reason, and may become 400."""
    answer = await widgets.apply(widget("a", bogus="x"))
    assert answer.status in {400, 500}
    assert ".spec.bogus: field not declared in schema" in answer.json["message"]


async def test_yaml_may_be_applied(configmaps: Collection) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: '1'\n"
    answer = await configmaps.client.send(
        "PATCH", configmaps.at("a"), body, content_type=APPLY_PATCH, fieldManager="applier"
    )
    assert answer.ok(201)["data"] == {"x": "1"}


async def test_the_elements_of_a_keyed_list_have_owners(widgets: Collection) -> None:
    await widgets.apply(widget("a", parts=[{"name": "one"}]), manager="one")
    obj = widget("a", parts=[{"name": "two", "count": 2}])
    merged = (await widgets.apply(obj, manager="two")).ok(200)
    assert merged["spec"]["parts"] == [{"name": "one", "count": 1}, {"name": "two", "count": 2}]
    keys = managers(merged)["two", "Apply", ""]["f:spec"]["f:parts"]
    assert keys == {'k:{"name":"two"}': {".": {}, "f:name": {}, "f:count": {}}}


async def test_the_elements_of_a_set_have_owners(widgets: Collection) -> None:
    await widgets.apply(widget("a", tags=["one"]), manager="one")
    merged = (await widgets.apply(widget("a", tags=["two"]), manager="two")).ok(200)
    assert set(merged["spec"]["tags"]) == {"one", "two"}
    assert managers(merged)["two", "Apply", ""]["f:spec"]["f:tags"] == {'v:"two"': {}}


async def test_an_element_that_is_no_longer_applied_goes(widgets: Collection) -> None:
    await widgets.apply(widget("a", parts=[{"name": "one"}, {"name": "two"}]))
    obj = (await widgets.apply(widget("a", parts=[{"name": "two"}]))).ok(200)
    assert [part["name"] for part in obj["spec"]["parts"]] == ["two"]


async def test_an_ordinary_list_and_an_atomic_map_are_one_field_each(widgets: Collection) -> None:
    obj = (await widgets.apply(widget("a", steps=["a"], point={"x": 1}))).ok(201)
    fields = managers(obj)["applier", "Apply", ""]["f:spec"]
    assert (fields["f:steps"], fields["f:point"]) == ({}, {})
    status = (await widgets.apply(widget("a", steps=["b"]), manager="other")).refused(409, "Conflict")
    assert [cause["field"] for cause in status["details"]["causes"]] == [".spec.steps"]
    (await widgets.apply(widget("a", point={"y": 2}), manager="other")).refused(409, "Conflict")


async def test_defaults_have_no_owner(widgets: Collection) -> None:
    obj = (await widgets.apply(widget("a"))).ok(201)
    assert obj["spec"]["color"] == "red"
    assert managers(obj)["applier", "Apply", ""] == {"f:spec": {"f:size": {}}}


async def test_an_element_that_is_applied_twice_is_refused(widgets: Collection) -> None:
    """Tolerance: the code is 500 without a reason, and may become 400."""
    answer = await widgets.apply(widget("a", parts=[{"name": "one"}, {"name": "one"}]))
    assert answer.status in {400, 422, 500}


async def test_the_status_has_its_own_owners_and_does_not_create(widgets: Collection) -> None:
    (await widgets.apply({**widget("a"), "status": {"phase": "A"}}, subresource="status")).refused(404, "NotFound")
    await widgets.apply(widget("a"))
    head = {field: widget("a")[field] for field in ("apiVersion", "kind", "metadata")}
    obj = (await widgets.apply({**head, "status": {"phase": "A"}}, manager="one", subresource="status")).ok(200)
    assert obj["status"] == {"phase": "A"}
    assert managers(obj)["one", "Apply", "status"] == {"f:status": {"f:phase": {}}}
    answer = await widgets.apply({**head, "status": {"phase": "B"}}, manager="two", subresource="status")
    assert 'conflict with "one" with subresource "status"' in answer.refused(409)["message"]


async def test_an_applied_job_gets_its_containers_by_name(jobs: Collection) -> None:
    template = {"spec": pod_spec(restartPolicy="Never", containers=[{"name": "a", "image": "a"}])}
    obj = (await jobs.apply(job("a", template=template))).ok(201)
    spec = managers(obj)["applier", "Apply", ""]["f:spec"]["f:template"]["f:spec"]
    assert spec["f:containers"] == {'k:{"name":"a"}': {".": {}, "f:image": {}, "f:name": {}}}


async def test_finalizers_and_owners_are_merged(configmaps: Collection) -> None:
    await configmaps.apply(configmap("a", finalizers=["example.com/one"]), manager="one")
    obj = (await configmaps.apply(configmap("a", finalizers=["example.com/two"]), manager="two")).ok(200)
    assert set(obj["metadata"]["finalizers"]) == {"example.com/one", "example.com/two"}
    obj = (await configmaps.apply(configmap("a"), manager="one")).ok(200)
    assert obj["metadata"]["finalizers"] == ["example.com/two"]
    await configmaps.patch("a", {"metadata": {"finalizers": None}})


async def test_an_apply_to_another_uid_is_refused(configmaps: Collection) -> None:
    """Tolerance: as a change of what cannot change, or as a conflict."""
    await configmaps.made(configmap("a"))
    answer = await configmaps.apply(configmap("a", {"x": "1"}, uid="00000000-0000-0000-0000-000000000000"))
    assert answer.status in {409, 422}
    assert "data" not in await configmaps.read("a")


async def test_an_apply_to_a_uid_does_not_create(configmaps: Collection) -> None:
    uid = "00000000-0000-0000-0000-000000000000"
    status = (await configmaps.apply(configmap("a", uid=uid))).refused(409, "Conflict")
    assert (
        f"uid mismatch: the provided object specified uid {uid}, and no existing object was found" in status["message"]
    )


async def test_managed_fields_may_be_cleared(configmaps: Collection) -> None:
    empty: list[list[dict[str, str]]] = [[], [{}]]
    for cleared in empty:
        await configmaps.apply(configmap("a", {"x": "1"}))
        obj = (await configmaps.patch("a", {"metadata": {"managedFields": cleared}})).ok(200)
        assert "managedFields" not in obj["metadata"]
    obj = (await configmaps.apply(configmap("b", {"x": "1"}))).ok(201)
    obj["metadata"]["managedFields"] = []
    assert "managedFields" not in (await configmaps.put(obj)).ok(200)["metadata"]


async def test_the_first_apply_of_an_untracked_object_finds_an_owner(configmaps: Collection) -> None:
    """Otherwise the first applier would silently take everything."""
    await configmaps.made(configmap("a", {"x": "1"}))
    await configmaps.patch("a", {"metadata": {"managedFields": [{}]}})
    status = (await configmaps.apply(configmap("a", {"x": "2"}))).refused(409, "Conflict")
    assert 'conflict with "before-first-apply" using v1: .data.x' in status["message"]


async def test_an_update_that_leaves_out_the_managed_fields_keeps_them(configmaps: Collection) -> None:
    """Otherwise clients that do not know the field would take it away."""
    obj = (await configmaps.apply(configmap("a", {"x": "1"}))).ok(201)
    kept = obj["metadata"].pop("managedFields")
    assert (await configmaps.put(obj)).ok(200)["metadata"]["managedFields"] == kept


async def test_the_status_endpoint_leaves_managed_fields_alone(widgets: Collection) -> None:
    """They are edited on the main endpoint only."""
    kept = (await widgets.made(widget("a")))["metadata"]["managedFields"]
    edits: list[list[dict[str, str]]] = [[], [{}]]
    for edit in edits:
        obj = (await widgets.patch("a", {"metadata": {"managedFields": edit}}, subresource="status")).ok(200)
        assert obj["metadata"]["managedFields"] == kept


async def test_an_applied_lease_is_renewed(leases: Collection) -> None:
    await leases.apply(lease("a", renewTime="2026-01-01T00:00:00.000000Z"))
    obj = (await leases.apply(lease("a", renewTime="2026-01-01T00:00:01.000000Z"))).ok(200)
    assert obj["spec"]["renewTime"] == "2026-01-01T00:00:01.000000Z"


async def test_a_creator_owns_lists_and_maps_but_not_the_structures_of_a_built_in_kind(pods: Collection) -> None:
    """What is always there, as the spec of a pod and the list of its containers, has no owner itself."""
    obj = pod("a", containers=[{"name": "main", "image": "i", "env": [{"name": "A", "value": "1"}]}])
    obj["metadata"]["labels"] = {"l": "1"}
    [fields] = managers(await pods.made(obj)).values()
    assert "f:status" not in fields, "the first status is the server's own"
    assert fields["f:metadata"]["f:labels"] == {".": {}, "f:l": {}}
    assert "." not in fields["f:spec"]
    assert fields["f:spec"]["f:containers"].keys() == {'k:{"name":"main"}'}
    container = fields["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert container["."] == {}
    assert container["f:env"] == {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}


async def test_a_creator_owns_the_ports_of_a_service(services: Collection) -> None:
    made = await services.made(service("a", ports=[{"port": 80}], selector={"a": "b"}))
    spec = next(iter(managers(made).values()))["f:spec"]
    assert "." not in spec
    assert spec["f:selector"] == {}
    assert spec["f:ports"]["."] == {}
    assert spec["f:ports"]['k:{"port":80,"protocol":"TCP"}']["."] == {}


async def test_a_creator_owns_the_spec_of_a_custom_resource_itself(widgets: Collection) -> None:
    """The server knows no structure that would be there without it."""
    spec = next(iter(managers(await widgets.made(widget("a"))).values()))["f:spec"]
    assert (spec["."], spec["f:size"]) == ({}, {})


async def test_whoever_adds_the_first_label_owns_the_labels(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"k": "v"}), fieldManager="creator")
    await configmaps.patch("a", {"metadata": {"labels": {"x": "1"}}}, fieldManager="first")
    obj = (await configmaps.patch("a", {"metadata": {"labels": {"y": "1"}}}, fieldManager="second")).ok(200)
    owned = managers(obj)
    assert owned["first", "Update", ""] == {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}
    assert owned["second", "Update", ""] == {"f:metadata": {"f:labels": {"f:y": {}}}}
