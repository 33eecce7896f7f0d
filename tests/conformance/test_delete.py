"""Deleting: what goes at once, what stays for a while, and preconditions."""

import pytest
from support.commands import eventually
from support.conformance import Client, Collection, new_namespace
from support.samples import configmap, job, pod, secret, service, widget

from trainmaster.runtime.jsontree import JsonObject

ORPHANS_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)


def _options(**fields: object) -> JsonObject:
    return {"kind": "DeleteOptions", "apiVersion": "v1", **fields}


@pytest.fixture
async def held(configmaps: Collection) -> Collection:
    """ConfigMaps with one, `a`, that a finalizer holds."""
    await configmaps.made(configmap("a", finalizers=["example.com/hold"]))
    return configmaps


async def _release(collection: Collection, name: str = "a") -> None:
    (await collection.patch(name, {"metadata": {"finalizers": None}})).ok(200)


async def test_a_deletion_answers_with_what_was_deleted(configmaps: Collection) -> None:
    uid = (await configmaps.made(configmap("a")))["metadata"]["uid"]
    status = (await configmaps.delete("a")).ok(200)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Success")
    assert status["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    (await configmaps.get("a")).refused(404)
    (await configmaps.delete("a")).refused(404, "NotFound")


async def test_the_deletion_of_a_custom_resource_answers_with_a_status(widgets: Collection) -> None:
    uid = (await widgets.made(widget("a")))["metadata"]["uid"]
    status = (await widgets.delete("a")).ok(200)
    assert status["status"] == "Success"
    assert (status["details"]["kind"], status["details"]["uid"]) == ("widgets", uid)


@pytest.mark.parametrize("kind", ["Pod", "Service", "ServiceAccount", "PersistentVolumeClaim"])
async def test_some_kinds_answer_with_the_deleted_object(client: Client, pods: Collection, kind: str) -> None:
    """Generated clients decode the answer by the kind that OpenAPI announces."""
    namespace = pods.path.split("/")[-2]
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none",
    }
    obj = {
        "Pod": pod("a"),
        "Service": service("a"),
        "ServiceAccount": {"metadata": {"name": "a"}},
        "PersistentVolumeClaim": {"metadata": {"name": "a"}, "spec": claim},
    }[kind]
    collection = client.collection("v1", f"{kind.lower()}s", namespace)
    uid = (await collection.made(obj))["metadata"]["uid"]
    deleted = (await collection.delete("a")).ok(200)
    assert (deleted["kind"], deleted["metadata"]["uid"]) == (kind, uid)


async def test_a_finalizer_holds_the_object(held: Collection) -> None:
    """Tolerance: taking the deletion back is refused, or ignored."""
    assert (await held.delete("a")).ok(200)["kind"] == "ConfigMap"
    before = await held.read("a")
    assert before["metadata"]["deletionTimestamp"].endswith("Z")
    assert before["metadata"]["deletionGracePeriodSeconds"] == 0
    (await held.delete("a")).ok(200)
    assert await held.read("a") == before, "a second deletion changes nothing"
    assert (await held.patch("a", {"data": {"x": "1"}})).ok(200)["data"] == {"x": "1"}
    assert (await held.patch("a", {"metadata": {"deletionTimestamp": None}})).status in {200, 422}
    assert (await held.read("a"))["metadata"]["deletionTimestamp"]
    await _release(held)
    (await held.get("a")).refused(404)


async def test_a_terminating_object_gets_no_new_finalizers(held: Collection) -> None:
    await held.delete("a")
    answer = await held.patch("a", {"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})
    assert answer.causes() == [("metadata.finalizers", "FieldValueForbidden")] * 2
    text = "no new finalizers can be added if the object is being deleted, found new finalizers []string{"
    assert f'{text}"example.com/new"}}' in answer.json["message"]
    await _release(held)


async def test_the_mark_raises_the_generation(widgets: Collection) -> None:
    obj = widget("a")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    await widgets.made(obj)
    assert (await widgets.delete("a")).ok(200)["metadata"]["generation"] == 2
    await _release(widgets)


async def test_an_update_without_the_finalizer_removes_the_object(held: Collection) -> None:
    await held.delete("a")
    (await held.put(configmap("a"))).ok(200)
    (await held.get("a")).refused(404)


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_precondition_that_does_not_hold_is_a_conflict(configmaps: Collection, field: str) -> None:
    metadata = (await configmaps.made(configmap("a")))["metadata"]
    (await configmaps.delete("a", _options(preconditions={field: "1"}))).refused(409, "Conflict")
    await configmaps.read("a")
    (await configmaps.delete("a", _options(preconditions={field: metadata[field]}))).ok(200)
    (await configmaps.get("a")).refused(404)


async def test_options_that_make_no_sense_are_refused(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    answer = await configmaps.delete("a", _options(propagationPolicy="Sometimes"))
    assert answer.causes() == [("propagationPolicy", "FieldValueNotSupported")]
    answer = await configmaps.delete("a", _options(propagationPolicy="Orphan", orphanDependents=True))
    assert answer.causes() == [("propagationPolicy", "FieldValueInvalid")]
    for options in ({"gracePeriodSeconds": "soon"}, {"preconditions": ["x"]}):
        (await configmaps.delete("a", _options(**options))).refused(400, "BadRequest")
    await configmaps.read("a")


@pytest.mark.parametrize("in_query", [False, True])
@pytest.mark.parametrize(
    ("policy", "finalizers"), [("Foreground", {"foregroundDeletion"}), ("Orphan", {"orphan"}), ("Background", set())]
)
async def test_a_policy_is_a_finalizer(held: Collection, policy: str, finalizers: set[str], in_query: bool) -> None:
    """The finalizer may be gone soon: nothing depends on the object. The answer shows it."""
    option: JsonObject = {"propagationPolicy": policy}
    answer = await (held.delete("a", **option) if in_query else held.delete("a", _options(**option)))
    assert set(answer.ok(200)["metadata"]["finalizers"]) == {"example.com/hold", *finalizers}
    await _release(held)


async def test_the_body_of_a_deletion_must_be_delete_options(configmaps: Collection) -> None:
    """Tolerance: by 400, or by 500 in older versions."""
    await configmaps.made(configmap("a"))
    answer = await configmaps.delete("a", configmap("a"))
    assert answer.status in {400, 500}
    assert 'no kind "ConfigMap" is registered for version "v1"' in answer.json["message"]
    (await configmaps.delete_many(configmap("a"))).refused(answer.status)
    assert "deletionTimestamp" not in (await configmaps.read("a"))["metadata"]


@pytest.mark.parametrize("version", ["v1", "meta.k8s.io/v1"])
async def test_delete_options_have_several_versions(configmaps: Collection, version: str) -> None:
    await configmaps.made(configmap("a"))
    assert (await configmaps.delete("a", {"kind": "DeleteOptions", "apiVersion": version})).status == 200


async def test_the_deletion_of_a_job_leaves_its_pods_and_says_so(jobs: Collection) -> None:
    await jobs.made(job("a"))
    answer = await jobs.delete("a")
    assert "orphan" in answer.ok(200)["metadata"]["finalizers"]
    assert answer.warnings == (ORPHANS_WARNING,)


@pytest.mark.parametrize("policy", ["Background", "Orphan"])
async def test_a_job_that_is_deleted_by_a_policy_has_no_warning(jobs: Collection, policy: str) -> None:
    await jobs.made(job("a"))
    assert (await jobs.delete("a", _options(propagationPolicy=policy))).warnings == ()


async def test_a_pod_that_was_never_started_goes_at_once(pods: Collection) -> None:
    await pods.made(pod("a"))
    (await pods.delete("a")).ok(200)
    (await pods.get("a")).refused(404)


async def test_a_finalizer_holds_a_pod(pods: Collection) -> None:
    obj = pod("a")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    await pods.made(obj)
    assert (await pods.delete("a", gracePeriodSeconds=7)).ok(200)["metadata"]["deletionTimestamp"]
    await _release(pods)
    (await pods.get("a")).refused(404)


async def test_a_collection_is_deleted_by_labels_and_fields(configmaps: Collection) -> None:
    for name, labels in (("a", {"l": "1"}), ("b", {"l": "1"}), ("c", {"l": "2"}), ("d", {"l": "2"})):
        await configmaps.made(configmap(name, labels=labels))
    (await configmaps.delete_many(labelSelector="l=1")).ok(200)
    assert await configmaps.names(labelSelector="l") == ["c", "d"]
    (await configmaps.delete_many(fieldSelector="metadata.name=c")).ok(200)
    assert await configmaps.names(labelSelector="l") == ["d"]


async def test_the_deletion_of_a_collection_answers_with_a_list(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", labels={"l": "1"}))
    deleted = (await configmaps.delete_many(labelSelector="l=1")).ok(200)
    assert deleted["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["a"]


async def test_the_deletion_of_a_collection_of_custom_resources_answers_with_a_list(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    assert (await widgets.delete_many()).ok(200)["kind"] == "WidgetList"
    assert await widgets.names() == []


async def test_the_deletion_of_a_collection_marks_what_is_held(held: Collection) -> None:
    (await held.delete_many(_options(propagationPolicy="Background"), fieldSelector="metadata.name=a")).ok(200)
    assert (await held.read("a"))["metadata"]["deletionTimestamp"]
    await _release(held)


async def test_the_deletion_of_a_collection_stays_in_its_namespace(client: Client, secrets: Collection) -> None:
    async with new_namespace(client) as name:
        other = client.collection("v1", "secrets", name)
        for each in (secrets, other):
            await each.made(secret("a"))
        (await secrets.delete_many()).ok(200)
        assert await secrets.names() == []
        await other.read("a")


async def test_a_deleted_name_is_free_again(configmaps: Collection) -> None:
    first = await configmaps.made(configmap("a"))
    await configmaps.delete("a")
    assert (await configmaps.made(configmap("a")))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_pending_deletion_keeps_the_name(held: Collection) -> None:
    """Tolerance: newer servers add to the message that the object is being deleted."""
    await held.delete("a")
    status = (await held.create(configmap("a"))).refused(409, "AlreadyExists")
    assert "already exists" in status["message"]
    await _release(held)

    async def free() -> bool:
        return (await held.create(configmap("a"))).status == 201

    await eventually(free)
