"""Creating: what a server makes of a new object."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from support.conformance import Client, Collection
from support.samples import configmap, widget

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)


async def test_a_creation_answers_201_with_the_object(configmaps: Collection) -> None:
    answer = await configmaps.create(configmap("a", {"key": "value"}))
    obj = answer.ok(201)
    assert answer.headers["Content-Type"].startswith("application/json")
    assert (obj["apiVersion"], obj["kind"], obj["data"]) == ("v1", "ConfigMap", {"key": "value"})
    assert await configmaps.read("a") == obj


async def test_the_server_stamps_the_metadata(configmaps: Collection, namespace: str) -> None:
    """With a creation time in UTC and whole seconds."""
    metadata = (await configmaps.made(configmap("a")))["metadata"]
    assert metadata["namespace"] == namespace
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert metadata["resourceVersion"].isdigit()
    assert "generation" not in metadata, "nobody counts it for this kind"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    # Tolerance: the clocks of a real cluster and of this machine may differ.
    assert abs(datetime.now(UTC) - datetime.fromisoformat(metadata["creationTimestamp"])) < timedelta(minutes=10)


async def test_what_belongs_to_the_server_is_ignored(configmaps: Collection) -> None:
    obj = await configmaps.made(
        configmap(
            "a",
            uid="11111111-1111-1111-1111-111111111111",
            creationTimestamp="2001-01-01T00:00:00Z",
            deletionTimestamp="2001-01-01T00:00:00Z",
            deletionGracePeriodSeconds=5,
        )
    )
    metadata = obj["metadata"]
    assert metadata["uid"] != "11111111-1111-1111-1111-111111111111"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in metadata
    assert "deletionGracePeriodSeconds" not in metadata


async def test_a_resource_version_is_refused_on_creation(configmaps: Collection) -> None:
    """Who sends one believes that the object exists; the server has no reason for this refusal, just a text."""
    status = (await configmaps.create(configmap("a", resourceVersion="5"))).refused(500)
    assert status["message"] == "resourceVersion should not be set on objects to be created"


async def test_a_missing_namespace_is_not_found(client: Client) -> None:
    answer = await client.collection("v1", "configmaps", "no-such-namespace").create(configmap("a"))
    status = answer.refused(404, "NotFound")
    assert status["message"] == 'namespaces "no-such-namespace" not found'
    assert status["details"]["kind"] == "namespaces"


async def test_another_namespace_in_the_object_is_a_bad_request(configmaps: Collection) -> None:
    status = (await configmaps.create(configmap("a", namespace="other"))).refused(400, "BadRequest")
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert status["message"] == text


async def test_the_namespace_of_a_cluster_wide_object_is_dropped(client: Client) -> None:
    priorities = client.collection("scheduling.k8s.io/v1", "priorityclasses")
    obj = await priorities.made({"metadata": {"generateName": "conformance-", "namespace": "x"}, "value": 1})
    try:
        assert "namespace" not in obj["metadata"]
    finally:
        await priorities.delete(obj["metadata"]["name"])


async def test_a_built_in_object_need_not_say_what_it_is_and_null_is_absent(configmaps: Collection) -> None:
    """The path says it."""
    obj = await configmaps.made({"metadata": {"name": "a"}, "data": None, "binaryData": None})
    assert (obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap")
    assert "data" not in obj
    assert "binaryData" not in obj


async def test_generated_names_differ_in_a_suffix_of_five(configmaps: Collection) -> None:
    made = [(await configmaps.made({"metadata": {"generateName": "made-"}}))["metadata"] for _ in range(5)]
    assert re.fullmatch("made-[bcdfghjklmnpqrstvwxz2456789]{5}", made[0]["name"])
    assert made[0]["generateName"] == "made-"
    assert len({metadata["name"] for metadata in made}) == 5


@pytest.mark.parametrize("name", ["a.b", "x" * 64, "Upper"])
async def test_the_name_of_a_namespace_must_be_a_label(namespaces: Collection, name: str) -> None:
    assert ("metadata.name", "FieldValueInvalid") in (await namespaces.create({"metadata": {"name": name}})).causes()


async def test_the_name_of_a_custom_resource_must_be_a_subdomain(widgets: Collection) -> None:
    status = (await widgets.create(widget("Demo"))).refused(422, "Invalid")
    assert f'metadata.name: Invalid value: "Demo": {SUBDOMAIN}' in status["message"]


async def test_the_name_of_a_role_may_have_colons_and_capitals(client: Client, namespace: str) -> None:
    roles = client.collection("rbac.authorization.k8s.io/v1", "roles", namespace)
    obj = await roles.made({"metadata": {"name": "system:Reader_1"}, "rules": []})
    assert obj["metadata"]["name"] == "system:Reader_1"


async def test_annotations_have_at_most_256_kibibytes_and_only_their_keys_a_syntax(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", annotations={"Example.com/Key": "any thing\n at all é"}))
    answer = await configmaps.create(configmap("b", annotations={"a b": "x"}))
    assert set(answer.causes()) == {("metadata.annotations", "FieldValueInvalid")}
    answer = await configmaps.create(configmap("c", annotations={"a": "x" * 256 * 1024}))
    assert answer.causes() == [("metadata.annotations", "FieldValueTooLong")]


async def test_a_key_is_text_or_binary_not_both(configmaps: Collection) -> None:
    answer = await configmaps.create({**configmap("a", {"k": "x"}), "binaryData": {"k": "eA=="}})
    assert answer.status == 422
    assert "duplicate of key present in" in answer.json["message"]


async def test_a_custom_resource_starts_with_generation_one_and_without_a_status(widgets: Collection) -> None:
    obj = widget("a") | {"status": {"phase": "Done"}}
    obj["metadata"].update(generation=7, labels={}, annotations={}, finalizers=[], ownerReferences=[])
    made = await widgets.made(obj)
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    empty = {"labels", "annotations", "finalizers", "ownerReferences"}
    assert not empty & made["metadata"].keys(), "empty collections are dropped"


async def test_yaml_is_read_like_json(configmaps: Collection) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: |\n    two\n    lines\n"
    assert (await configmaps.create(body, content_type="application/yaml")).ok(201)["data"] == {"key": "two\nlines\n"}
