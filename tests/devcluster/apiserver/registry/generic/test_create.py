"""How objects begin and end: what the server fills in, refuses, and marks."""

from typing import Any

import pytest
from support.apiserver import assert_refused, mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PODS, GroupResource
from trainmaster.runtime.jsontree import copy_tree

WIDGETS = GroupResource("example.com", "widgets")


def config_map(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("metadata", "namespace", "text"),
    [({"name": "a"}, None, "an empty namespace"), ([], "default", "metadata must be an object, not an array")],
)
async def test_bad_input_is_refused(api: Api, metadata: Any, namespace: str | None, text: str) -> None:
    await assert_refused(api.create(CONFIGMAPS, {"metadata": metadata}, namespace=namespace), 400, text)


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


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"name": "a", "generation": -1}, {"metadata.generation"}),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]},
            {"metadata.ownerReferences"},
        ),
    ],
)
async def test_metadata_that_a_real_one_refuses_is_told(api: Api, metadata: dict[str, Any], fields: set[str]) -> None:
    found = await mistakes_of(api.create(CONFIGMAPS, {"metadata": metadata}, namespace="default"))
    assert {field for field, _ in found} == fields


async def test_an_owner_that_is_named_twice_is_kept_once_and_told(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    options = WriteOptions()
    metadata = {"name": "a", "ownerReferences": [owner, dict(owner), {**owner, "uid": "v"}]}
    made = await api.create(CONFIGMAPS, {"metadata": metadata}, namespace="default", options=options)
    assert [each["uid"] for each in made["metadata"]["ownerReferences"]] == ["u", "v"]
    assert len(options.warnings) == 1
    assert options.warnings[0].endswith("duplicate UID(s) observed: u")


async def create_config_map(api: Api, name: str = "a", **metadata: Any) -> dict[str, Any]:
    return await api.create(CONFIGMAPS, {"metadata": {"name": name, **metadata}}, namespace="default")


async def pod(api: Api, *, phase: str = "Running") -> dict[str, Any]:
    spec = {"nodeName": "node-1", "containers": [{"name": "a", "image": "x"}]}
    made = copy_tree(await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default"))
    made["status"]["phase"] = phase
    return await api.update(PODS, made, namespace="default", subresource="status")


async def test_a_later_deletion_may_change_its_mind_about_dependents(api: Api) -> None:
    await create_config_map(api)
    await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Foreground"))
    marked, _ = await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Orphan"))
    assert marked["metadata"]["finalizers"] == ["orphan"]
    before = api.revision
    await api.delete(CONFIGMAPS, "default", "a")
    assert api.revision == before, "a deletion that says nothing leaves things as they are"
    _, gone = await api.delete(CONFIGMAPS, "default", "a", options=DeleteOptions(propagation="Background"))
    assert gone


async def test_a_running_pod_stays_for_its_grace_period(api: Api) -> None:
    await pod(api)
    marked, gone = await api.delete(PODS, "default", "p")
    assert not gone
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:35Z"
    marked, _ = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=60))
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30, "a grace period never grows"
    marked, _ = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=5))
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:10Z"
    _, gone = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    assert gone


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_nobody_waits_for_a_pod_without_processes(api: Api, phase: str) -> None:
    await pod(api, phase=phase)
    assert (await api.delete(PODS, "default", "p"))[1]


async def test_a_pod_with_a_finalizer_outlives_its_processes(api: Api) -> None:
    """The job controller counts a pod before it lets it go."""
    made = copy_tree(await pod(api))
    made["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    await api.update(PODS, made, namespace="default")
    await api.delete(PODS, "default", "p")
    marked, gone = await api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    assert not gone
    marked = copy_tree(marked)
    marked["metadata"]["finalizers"] = []
    await api.update(PODS, marked, namespace="default")
    assert api.list(PODS)[0] == []


async def test_a_pod_in_its_grace_period_survives_the_loss_of_its_finalizers(api: Api) -> None:
    made = copy_tree(await pod(api))
    made["metadata"]["finalizers"] = ["example.com/x"]
    await api.update(PODS, made, namespace="default")
    marked = copy_tree((await api.delete(PODS, "default", "p"))[0])
    marked["metadata"]["finalizers"] = []
    await api.update(PODS, marked, namespace="default")
    assert api.get(PODS, "default", "p")
