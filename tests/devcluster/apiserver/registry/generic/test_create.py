"""Creation: what the server fills in, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import (
    CONFIGMAPS,
    JOBS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SECRETS,
    GroupResource,
)

WIDGETS = GroupResource("example.com", "widgets")


def config_map(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def test_the_server_stamps_what_belongs_to_it(api: Api) -> None:
    sent = config_map(name="a", uid="mine", generation=9, creationTimestamp=None)
    made = await api.create(CONFIGMAPS, sent, namespace="default", options=WriteOptions(field_manager="me"))
    metadata = made["metadata"]
    assert metadata["uid"] not in ("", "mine")
    assert metadata["creationTimestamp"] == "2026-01-02T03:04:05Z"
    assert metadata["namespace"] == "default"
    assert metadata["resourceVersion"] == str(api.revision)
    assert metadata["generation"] == 9, "nobody counts it for this kind"
    assert [entry["manager"] for entry in metadata["managedFields"]] == ["me"]
    assert sent["metadata"]["uid"] == "mine", "the caller's tree must stay as it is"
    assert api.get(CONFIGMAPS, "default", "a") is made


async def test_a_name_is_generated(api: Api) -> None:
    made = await api.create(CONFIGMAPS, config_map(generateName="x" * 60 + "-"), namespace="default")
    name = made["metadata"]["name"]
    assert name[:58] == "x" * 58
    assert len(name) == 63
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_without_any_name_the_object_is_invalid(api: Api) -> None:
    with pytest.raises(StatusError, match=r"metadata\.name: Required value: name or generateName is required"):
        await api.create(CONFIGMAPS, config_map(), namespace="default")


async def test_creating_twice_is_a_conflict(api: Api) -> None:
    await api.create(CONFIGMAPS, config_map(name="a"), namespace="default")
    with pytest.raises(StatusError) as caught:
        await api.create(CONFIGMAPS, config_map(name="a"), namespace="default")
    assert caught.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


@pytest.mark.parametrize(
    ("obj", "namespace", "code", "text"),
    [
        (config_map(name="a"), "nowhere", 404, 'namespaces "nowhere" not found'),
        (
            config_map(name="a", namespace="kube-system"),
            "default",
            400,
            "does not match the namespace sent on the request",
        ),
        (config_map(name="a"), None, 400, "an empty namespace"),
        ({**config_map(name="a"), "kind": "Secret"}, "default", 400, "kind in the data (Secret)"),
        ({**config_map(name="a"), "apiVersion": "v2"}, "default", 400, "API version in the data (v2)"),
        ({**config_map(name="a"), "data": ["x"]}, "default", 400, 'ConfigMap in version "v1" cannot be handled'),
        ({**config_map(name="a"), "metadata": []}, "default", 400, "metadata must be an object, not an array"),
        (config_map(name="a", labels=["x"]), "default", 400, "metadata.labels"),
        ([], "default", 400, "must be an object, not an array"),
        (config_map(name="A_b"), "default", 422, "a lowercase RFC 1123 subdomain must consist of"),
        (config_map(name="a", labels={"a b": "c"}), "default", 422, 'metadata.labels: Invalid value: "a b"'),
        (config_map(name="a", labels={"a": "-"}), "default", 422, 'metadata.labels: Invalid value: "-"'),
        (config_map(name="a", finalizers=["a/b/c"]), "default", 422, "metadata.finalizers"),
        ({**config_map(name="a"), "data": {"a/b": ""}}, "default", 422, "a valid config key"),
    ],
)
async def test_bad_input_is_refused(api: Api, obj: Any, namespace: str | None, code: int, text: str) -> None:
    with pytest.raises(StatusError) as caught:
        await api.create(CONFIGMAPS, obj, namespace=namespace)
    assert caught.value.code == code
    assert text in caught.value.message
    assert api.list(CONFIGMAPS)[0] == []


async def test_unknown_resources_are_not_found(api: Api) -> None:
    with pytest.raises(StatusError, match="could not find the requested resource"):
        await api.create(GroupResource("nobody.io", "things"), {}, namespace="default")


async def test_what_would_have_no_effect_is_answered_with_501(api: Api) -> None:
    webhook = {
        "name": "hook.example.com",
        "clientConfig": {"url": "https://localhost"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1beta1"],
    }
    with pytest.raises(StatusError) as caught:
        await api.create(MUTATING_WEBHOOKS, {"metadata": {"name": "x"}, "webhooks": [webhook]})
    assert caught.value.code == 501


@pytest.mark.parametrize(("mode", "warnings"), [("Warn", ['unknown field "bogus"']), ("Ignore", [])])
async def test_unknown_fields_are_dropped(api: Api, mode: Any, warnings: list[str]) -> None:
    options = WriteOptions(field_validation=mode)
    made = await api.create(CONFIGMAPS, {**config_map(name="a"), "bogus": 1}, namespace="default", options=options)
    assert "bogus" not in made
    assert options.warnings == warnings


async def test_strict_validation_refuses_unknown_fields(api: Api) -> None:
    obj = {**config_map(name="a", nickname="x"), "bogus": 1}
    with pytest.raises(StatusError) as caught:
        await api.create(CONFIGMAPS, obj, namespace="default", options=WriteOptions(field_validation="Strict"))
    assert caught.value.code == 400
    assert caught.value.message.endswith(
        'strict decoding error: unknown field "metadata.nickname", unknown field "bogus"'
    )


async def test_a_dry_run_stores_nothing(api: Api) -> None:
    before = api.revision
    made = await api.create(CONFIGMAPS, config_map(name="a"), namespace="default", options=WriteOptions(dry_run=True))
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert api.revision == before


async def test_a_terminating_namespace_takes_no_content(api: Api) -> None:
    await api.delete(NAMESPACES, None, "kubeflow")
    with pytest.raises(StatusError) as caught:
        await api.create(CONFIGMAPS, config_map(name="a"), namespace="kubeflow")
    assert caught.value.code == 403
    assert caught.value.details is not None
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"


async def test_secrets_encode_plain_strings(api: Api) -> None:
    secret = {"metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "y"}}
    made = await api.create(SECRETS, secret, namespace="default")
    assert made["data"] == {"a": "eA==", "b": "eQ=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


async def test_pods_get_the_defaults_of_a_real_server(api: Api) -> None:
    containers = [{"name": "a", "image": "x:1", "resources": {"limits": {"cpu": "1"}}}, {"name": "b", "image": "r:5/y"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers, "volumes": [{"name": "v"}]}}
    made = await api.create(PODS, pod, namespace="default")
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["dnsPolicy"], spec["schedulerName"]) == (
        "Always",
        "ClusterFirst",
        "default-scheduler",
    )
    assert (spec["terminationGracePeriodSeconds"], spec["enableServiceLinks"]) == (30, True)
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert [each["imagePullPolicy"] for each in spec["containers"]] == ["IfNotPresent", "Always"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert made["metadata"]["generation"] == 1
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]
    assert "f:status" not in owned, "the first status is the server's own"


async def test_jobs_own_their_pods_by_a_generated_selector(api: Api) -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]},
    }
    job = {"metadata": {"name": "j"}, "spec": {"template": template}, "status": {"active": 5}}
    made = await api.create(JOBS, job, namespace="default")
    uid, spec = made["metadata"]["uid"], made["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {
        "app": "x",
        "controller-uid": uid,
        "job-name": "j",
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
    }
    assert spec["template"]["metadata"]["labels"] == made["metadata"]["labels"] == labels
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert made["status"] == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"completionMode": "Indexed", "parallelism": 2},
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        ({"parallelism": -1}, "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
        ({"restart": "Always"}, 'Required value: valid values: "OnFailure", "Never"'),
        ({"completionMode": "Odd"}, 'spec.completionMode: Unsupported value: "Odd"'),
    ],
)
async def test_jobs_that_cannot_run_are_refused(api: Api, change: dict[str, Any], text: str) -> None:
    restart = change.pop("restart", "Never")
    template = {"spec": {"restartPolicy": restart, "containers": [{"name": "a", "image": "x"}]}}
    with pytest.raises(StatusError) as caught:
        await api.create(
            JOBS, {"metadata": {"name": "j"}, "spec": {"template": template, **change}}, namespace="default"
        )
    assert caught.value.code == 422
    assert text in caught.value.message


async def test_custom_resources_are_defaulted_pruned_and_validated(api: Api, define: Any) -> None:
    await define()
    made = await api.create(WIDGETS, {**widget(size=3, extra=1), "status": {"x": 1}}, namespace="default")
    assert made["spec"] == {"size": 3, "mode": "fast"}
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    with pytest.raises(StatusError) as caught:
        await api.create(WIDGETS, widget("v", size="x", mode="odd"), namespace="default")
    assert caught.value.code == 422
    assert caught.value.details is not None
    # The third one says that the rules of the definition were not checked.
    assert {cause["field"] for cause in caught.value.details["causes"]} == {"spec.mode", "spec.size", "<nil>"}


async def test_custom_resources_must_say_what_they_are(api: Api, define: Any) -> None:
    await define()
    with pytest.raises(StatusError, match="'kind' is missing"):
        await api.create(WIDGETS, {"apiVersion": "example.com/v1", "metadata": {"name": "w"}}, namespace="default")


async def test_admission_hooks_run_after_defaults_and_may_be_async(api: Api, define: Any) -> None:
    await define()
    seen: list[Any] = []

    def first(operation: str, obj: dict[str, Any], old: Any) -> dict[str, Any]:
        seen.append((operation, obj["spec"]["mode"], old))
        obj["spec"] = {"size": 5, "unknown": True}
        return obj

    async def second(operation: str, obj: dict[str, Any], old: Any) -> dict[str, Any]:
        seen.append(obj["spec"]["size"])
        return obj

    api.add_admission(WIDGETS, first)
    api.add_admission(WIDGETS, second)
    made = await api.create(WIDGETS, widget(size=1), namespace="default")
    assert seen == [("CREATE", "fast", None), 5]
    assert made["spec"] == {"size": 5, "mode": "fast"}, "what hooks return is pruned and defaulted again"


async def test_names_that_a_hook_takes_meanwhile_are_a_conflict(api: Api) -> None:
    """The hook is awaited: another creation may finish in between."""

    async def intrude(operation: str, obj: dict[str, Any], old: Any) -> dict[str, Any]:
        if obj["data"] != {"late": "yes"}:
            await api.create(CONFIGMAPS, {**config_map(name="a"), "data": {"late": "yes"}}, namespace="default")
        return obj

    api.add_admission(CONFIGMAPS, intrude)
    with pytest.raises(StatusError) as caught:
        await api.create(CONFIGMAPS, config_map(name="a"), namespace="default")
    assert caught.value.reason == "AlreadyExists"


async def test_empty_lists_and_maps_of_the_metadata_are_dropped(api: Api) -> None:
    empty: dict[str, Any] = {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    made = await api.create(CONFIGMAPS, config_map(name="a", **empty), namespace="default")
    assert not made["metadata"].keys() & empty.keys()
    made["metadata"] |= empty
    assert not (await api.update(CONFIGMAPS, made))["metadata"].keys() & empty.keys()


@pytest.mark.parametrize("count", [2**31, 1.0, 1.5, "1"])
async def test_a_number_that_is_no_int32_is_refused(api: Api, count: object) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template, "parallelism": count}}
    with pytest.raises(StatusError) as caught:
        await api.create(JOBS, job, namespace="default")
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"generateName": "Ab-"}, {"metadata.generateName", "metadata.name"}),
        ({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}, {"metadata.finalizers"}),
        ({"name": "a", "finalizers": ["keep"]}, {"metadata.finalizers[0]"}),
        ({"name": "a", "generation": -1}, {"metadata.generation"}),
        (
            {"name": "a", "ownerReferences": [{}]},
            {f"metadata.ownerReferences.{field}" for field in ("apiVersion", "kind", "name", "uid")},
        ),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]},
            {"metadata.ownerReferences"},
        ),
    ],
)
async def test_metadata_that_a_real_server_refuses_is_refused(
    api: Api, metadata: dict[str, Any], fields: set[str]
) -> None:
    with pytest.raises(StatusError) as caught:
        await api.create(CONFIGMAPS, {"metadata": metadata}, namespace="default")
    assert {field for field, _ in mistakes_of(caught.value)} == fields


async def test_an_owner_that_is_named_twice_is_kept_once_and_told(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    options = WriteOptions()
    metadata = {"name": "a", "ownerReferences": [owner, dict(owner), {**owner, "uid": "v"}]}
    made = await api.create(CONFIGMAPS, {"metadata": metadata}, namespace="default", options=options)
    assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == ["u", "v"]
    assert len(options.warnings) == 1
    assert options.warnings[0].endswith("duplicate UID(s) observed: u")
