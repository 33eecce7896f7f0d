"""TrainJobs on a running manager: what requests it makes, restarts, and trouble on the way."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.installations import create_namespace
from support.objects import COMPLETE, runtime_object, trainjob_object
from support.series import series
from support.stack import Stack, manager
from support.training import found, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.apiserver.errors import bad_request, unprocessable
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

NAMESPACE = "team"
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@pytest.fixture(autouse=True)
async def namespace(stack: Stack, impatient: None) -> None:
    await create_namespace(stack.client, NAMESPACE)


async def create(client: KubeClient, **spec: Any) -> JsonObject:
    """Create a TrainJob as a user would, without what the server decides."""
    obj = trainjob_object(**spec)
    obj["metadata"] = {key: obj["metadata"][key] for key in ("name", "namespace")}
    return await client.create(TRAINJOBS, obj)


async def job_status(client: KubeClient) -> JsonObject:
    """Everything but what binds the snapshot of the runtime: that is in reconciling/trainjobs/test_snapshots."""
    status = (await client.get(TRAINJOBS, NAMESPACE, "demo")).get("status") or {}
    return {field: value for field, value in status.items() if field != "runtimeSnapshotDigest"}


async def conditions(client: KubeClient) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in (await job_status(client)).get("conditions", [])}


async def jobset(client: KubeClient, name: str = "demo") -> JsonObject | None:
    return await found(client, JOBSETS, name, namespace=NAMESPACE)


def requests() -> Counter[str]:
    """Requests of this process so far, by method."""
    counted: Counter[str] = Counter()
    for sample in series("rest_client_requests_total"):
        counted[sample.labels["method"]] += int(sample.value)
    return counted


def metric(name: str, **labels: str) -> float:
    """The sum of all samples of that name that have these labels."""
    return sum(sample.value for sample in series(name) if labels.items() <= sample.labels.items())


async def settled(stack: Stack) -> None:
    """Wait until the manager has seen everything that there is and has worked on everything that it has seen."""

    async def idle() -> bool:
        for resource in (TRAINJOBS, TRAINING_RUNTIMES, CONFIGMAPS, JOBSETS):
            items = (await stack.client.list(resource))["items"]
            newest = max((int(item["metadata"]["resourceVersion"]) for item in items), default=0)
            if metric("trainmaster_informer_resource_version", resource=resource.name) < newest:
                return False
        labels = {"controller": "trainjob_controller"}
        return not (metric("workqueue_depth", **labels) or metric("controller_runtime_active_workers", **labels))

    # Twice, because a write of the manager may have come between the first looks at two kinds.
    await until(idle)
    await until(idle)


@pytest.mark.guarantee("C-12")
async def test_creation_takes_two_writes_and_a_whole_life_four(stack: Stack) -> None:
    """The budget: snapshot and JobSet; then at most two changes of status."""
    client = stack.client
    await client.create(TRAINING_RUNTIMES, runtime_object(policy={"torch": {}}))
    async with manager(stack.access):
        await settled(stack)
        before = requests()
        await create(client)
        await until(lambda: jobset(client))
        await settled(stack)
        created = requests() - before
        assert {method: created[method] for method in WRITES if created[method]} == {"POST": 1, "PATCH": 2}
        assert await job_status(client) == {}
        entry = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        for active, ready in ((1, 0), (2, 1), (0, 1), (1, 1)):
            status: JsonObject = {"replicatedJobsStatus": [entry | {"active": active, "ready": ready}]}
            await client.patch(JOBSETS, NAMESPACE, "demo", {"status": status}, subresource="status")
        await until(lambda: _equals(lambda: job_status(client), {"jobsStatus": [entry]}))
        ended = entry | {"ready": 0, "active": 0, "succeeded": 1}
        status = {"replicatedJobsStatus": [ended], "conditions": [COMPLETE | {"type": "Completed"}]}
        await client.patch(JOBSETS, NAMESPACE, "demo", {"status": status}, subresource="status")
        await until(lambda: _equals(lambda: conditions(client), {"Complete": "AllJobsCompleted"}))
        assert (await job_status(client))["jobsStatus"] == [ended]
        await settled(stack)
        lived = requests() - before
        # One POST and five of the PATCHes are this test's.
        assert (lived["POST"], lived["PATCH"], lived["PUT"], lived["DELETE"]) == (1, 5 + 4, 0, 0)


@pytest.mark.guarantee("C-12")
async def test_a_restart_writes_nothing(stack: Stack) -> None:
    """Also without the memory of what was applied, and also for suspended jobs, which are always compared."""
    client = stack.client
    await client.create(TRAINING_RUNTIMES, runtime_object(policy={"torch": {}}))
    patch = {"template": {"metadata": {"labels": {"a": "b"}}}}
    patches = [{"manager": "acme.io/x", "time": "2026-01-01T00:00:00Z", "trainingRuntimeSpec": patch}]
    async with manager(stack.access):
        for name in ("demo", "suspended"):
            spec = {"suspend": name == "suspended", "runtimePatches": patches, "trainer": {"numNodes": 3}}
            await create(client, name=name, **spec)
            await until(lambda name=name: jobset(client, name))  # type: ignore[misc] # mypy cannot infer it
        await settled(stack)
    before, jobsets = requests(), (await client.list(JOBSETS, NAMESPACE))["items"]
    async with manager(stack.access):
        await settled(stack)
        assert not any((requests() - before)[method] for method in WRITES)
    assert (await client.list(JOBSETS, NAMESPACE))["items"] == jobsets


@pytest.mark.guarantee("A-2")
async def test_what_a_suspended_job_no_longer_wants_is_removed(stack: Stack) -> None:
    """Kueue takes its patch back after an eviction: the node selector has to go, also right after a restart."""
    client = stack.client
    await client.create(TRAINING_RUNTIMES, runtime_object())
    node = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}

    async def node_selector() -> JsonObject:
        job = (await jobset(client) or {"spec": {}})["spec"].get("replicatedJobs", [{}])[0]
        pod: JsonObject = job["template"]["spec"]["template"]["spec"] if job else {}
        selector: JsonObject = pod.get("nodeSelector", {"none": "left"})
        return selector

    async with manager(stack.access):
        await create(client, suspend=True, runtimePatches=[{"manager": "acme.io/x", "trainingRuntimeSpec": spec}])
        await until(lambda: jobset(client))
        assert await node_selector() == {"pool": "gpu"}
        await settled(stack)
    await client.patch(TRAINJOBS, NAMESPACE, "demo", {"spec": {"runtimePatches": None}})
    async with manager(stack.access):
        await until(lambda: _equals(node_selector, {"none": "left"}))


@pytest.mark.guarantee("A-3", "A-5")
async def test_what_is_ours_is_taken_back_under_one_name(stack: Stack) -> None:
    """Whoever else sets a field of ours loses it and keeps what is theirs; our name is the same everywhere."""
    client = stack.client
    await client.create(TRAINING_RUNTIMES, runtime_object())

    def image(jobset: JsonObject) -> str:
        (job,) = jobset["spec"]["replicatedJobs"]
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        return str(container["image"])

    async with manager(stack.access):
        await create(client, suspend=True)
        ours = await until(lambda: jobset(client))
        pod = {"containers": [{"name": "node", "image": "theirs"}]}
        taken = await client.apply(
            JOBSETS,
            {
                "apiVersion": JOBSETS.api_version,
                "kind": "JobSet",
                "metadata": {"name": "demo", "namespace": NAMESPACE, "labels": {"acme.io/queue": "a"}},
                "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]},
            },
            field_manager="acme",
        )
        assert image(taken) == "theirs" != image(ours)

        async def taken_back() -> bool:
            return image(await jobset(client) or {}) == image(ours)

        await until(taken_back)
        found = await jobset(client) or {}
        assert found["metadata"]["labels"]["acme.io/queue"] == "a"
        managers = [(entry["manager"], entry["operation"]) for entry in found["metadata"]["managedFields"]]
        assert sorted(managers) == [("acme", "Apply"), ("trainer", "Apply")]
        await until(lambda: _equals(lambda: conditions(client), {"Suspended": "Suspended"}))
        trainjob = await client.get(TRAINJOBS, NAMESPACE, "demo")
        names = {entry["manager"] for entry in trainjob["metadata"]["managedFields"] if entry.get("subresource")}
        assert names == {"trainer"}


@pytest.mark.defect("B14", "B24")
async def test_the_workload_of_an_expired_job_is_deleted_and_none_is_built_for_a_deleted_one(stack: Stack) -> None:
    """B14: the delete was tried once; when it failed, the pods ran on for ever."""
    client = stack.client
    await client.create(TRAINING_RUNTIMES, runtime_object())
    async with manager(stack.access):
        await create(client, activeDeadlineSeconds=3600)
        await until(lambda: jobset(client))
        await settled(stack)
    # The manager stopped between the write of the status and the delete.
    failed = COMPLETE | {"type": "Failed", "reason": "DeadlineExceeded", "message": "it exceeded its active deadline"}
    await client.patch(TRAINJOBS, NAMESPACE, "demo", {"status": {"conditions": [failed]}}, subresource="status")
    leaving = {"name": "leaving", "namespace": NAMESPACE, "finalizers": ["acme.io/keep"]}
    await client.create(TRAINJOBS, {**trainjob_object(), "metadata": leaving})
    await client.delete(TRAINJOBS, NAMESPACE, "leaving")
    async with manager(stack.access):
        await until(lambda: _equals(lambda: jobset(client), None))
        await settled(stack)
    assert await conditions(client) == {"Failed": "DeadlineExceeded"}
    assert await jobset(client, "leaving") is None


async def _equals(ask: Callable[[], Any], value: Any) -> bool:
    return bool(await ask() == value)


@pytest.mark.guarantee("E-5")
async def test_a_job_waits_for_the_leftovers_of_its_predecessor(stack: Stack) -> None:
    """Deleted and created again under the same name, faster than garbage collection: the old JobSet stays alone."""
    client = stack.client
    await client.create(TRAINING_RUNTIMES, runtime_object())
    async with manager(stack.access):
        await create(client)
        old = await until(lambda: jobset(client))
        await settled(stack)
        await client.delete(TRAINJOBS, NAMESPACE, "demo")
        new = await create(client, trainer={"numNodes": 2})
        await settled(stack)
        assert (await jobset(client) or {})["metadata"]["uid"] == old["metadata"]["uid"]
        assert await conditions(client) == {}
        # There is no garbage collector here: the test is.
        await client.delete(CONFIGMAPS, NAMESPACE, "demo-runtime-snapshot")
        await client.delete(JOBSETS, NAMESPACE, "demo")

        async def owner() -> str | None:
            found = await jobset(client)
            return found["metadata"]["ownerReferences"][0]["uid"] if found else None

        await until(lambda: _equals(owner, new["metadata"]["uid"]))


async def test_a_missing_runtime_is_told_and_waited_for(stack: Stack) -> None:
    client = stack.client
    async with manager(stack.access):
        await create(client)
        await until(lambda: _equals(lambda: conditions(client), {"Blocked": "RuntimeNotFound"}))
        await settled(stack)
        (event,) = (await client.list(EVENTS, NAMESPACE))["items"]
        assert "TrainingRuntime specified in TrainJob is not found" in event["note"]
        before = requests()
        await client.create(TRAINING_RUNTIMES, runtime_object())
        await until(lambda: jobset(client))
        await until(lambda: _equals(lambda: job_status(client), {}))
        assert (requests() - before)["PATCH"] == 3


async def test_a_refused_object_is_told_with_the_servers_words_and_tried_again(stack: Stack) -> None:
    """U5: JobSet's webhook refuses what nobody else noticed; the owner hears of it, and no restart is needed."""
    client = stack.client
    assert stack.cluster is not None
    refusing = True

    async def refuse(operation: str, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        if refusing:
            raise bad_request("JobSet name is too long")
        return obj

    stack.cluster.api.add_admission(GroupResource(JOBSETS.group, JOBSETS.plural), refuse)
    await client.create(TRAINING_RUNTIMES, runtime_object())
    async with manager(stack.access):
        await create(client)
        await until(lambda: _equals(lambda: conditions(client), {"Blocked": "ApplyFailed"}))
        (condition,) = (await job_status(client))["conditions"]
        assert condition["message"] == "400 BadRequest: JobSet name is too long"
        refusing = False
        await until(lambda: jobset(client))
        await until(lambda: _equals(lambda: job_status(client), {}))


@pytest.mark.defect("B29")
async def test_a_job_can_be_suspended_although_its_jobset_takes_nothing_else(stack: Stack) -> None:
    """A new version builds another environment, and most of a JobSet is immutable; its owner hears of it."""

    class Later:
        name = "Later"

        def enforce_pod_spec(self, info: Any, job: Any) -> None:
            for pods in info.pod_sets:
                pods.container("node").setdefault("env", []).append({"name": "VERSION", "value": "2"})

    async def refuse(operation: str, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        if old is not None and obj["spec"] != {**old["spec"], "suspend": obj["spec"].get("suspend")}:
            raise unprocessable("field is immutable")
        return obj

    client = stack.client
    assert stack.cluster is not None
    stack.cluster.api.add_admission(GroupResource(JOBSETS.group, JOBSETS.plural), refuse)
    await client.create(TRAINING_RUNTIMES, runtime_object())
    async with manager(stack.access):
        await create(client)
        await until(lambda: jobset(client))
        await settled(stack)

    async def is_suspended() -> bool:
        return bool((await jobset(client) or {})["spec"].get("suspend"))

    async with manager(stack.access, framework=Framework([*load_plugins(), Later()])):
        await settled(stack)
        assert await conditions(client) == {}
        await client.patch(TRAINJOBS, NAMESPACE, "demo", {"spec": {"suspend": True}})
        await until(is_suspended)
        expected = {"Blocked": "ApplyFailed", "Suspended": "Suspended"}
        await until(lambda: _equals(lambda: conditions(client), expected))
        # Nothing runs any more, so nothing is lost: it is made again as it is built now.
        await client.delete(JOBSETS, NAMESPACE, "demo")
        await until(lambda: _equals(lambda: conditions(client), {"Suspended": "Suspended"}))
        assert await is_suspended()
