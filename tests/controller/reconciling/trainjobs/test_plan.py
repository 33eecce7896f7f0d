"""What is planned for odd runtimes and TrainJobs and objects of somebody else, and from which snapshot of a runtime."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.world import World, jobset_of, world_with

from trainmaster.controller.kube.rest.errors import TransportError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime, snapshot_digest
from trainmaster.runtime.yamltext import load_yaml


@pytest.mark.guarantee("E-5")
@pytest.mark.parametrize("owner", ["uid-0", "stranger"])
async def test_an_object_of_somebody_else_is_neither_read_nor_written(owner: str) -> None:
    other = jobset_of(owner)
    if owner == "stranger":
        other["metadata"]["ownerReferences"] = []
    other["status"] = {"conditions": [{"type": "Completed", "status": "True"}]}
    world = world_with(other)
    await world.reconcile()
    assert world.requests.count("apply JobSet") == 0
    assert "Complete" not in world.conditions


def _with_container(**fields: Any) -> JsonObject:
    return replicated_job(containers=[{"name": "node", "image": "i", **fields}])


def _spec(obj: JsonObject, **fields: Any) -> JsonObject:
    obj["spec"]["template"]["spec"] |= fields
    return obj


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (runtime_object(_with_container(resources={"limits": {"cpu": "abc"}})), "cpu: 'abc' is not a quantity"),
        (runtime_object(_with_container(resources="many")), "containers[0].resources: must be an object"),
        (runtime_object(_with_container(env=["A=1"])), "is not shaped like a JobSet"),
        (_spec(runtime_object(), replicatedJobs={}), "replicatedJobs: must be a list"),
        (_spec(runtime_object(), replicatedJobs=[None]), r"replicatedJobs[0]: must be an object"),
    ],
)
async def test_a_malformed_runtime_is_told_and_not_frozen(world: World, runtime: JsonObject, message: str) -> None:
    """Frozen, it would stay wrong for this job even after its author has corrected it."""
    world.put(trainjob_object(), runtime)
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeInvalid"
    assert message in world.conditions["Blocked"]["message"]
    assert world.applied == []
    world.put(runtime_object())
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]


@pytest.mark.parametrize(
    "runtime",
    [
        {**runtime_object(), "spec": None},
        {**runtime_object(), "spec": {"template": {"spec": None}}},
        runtime_object({"name": "node", "template": {"spec": {"template": {"spec": {"containers": None}}}}}),
        runtime_object({"name": "node", "template": {"spec": {"parallelism": None, "template": {"spec": None}}}}),
        runtime_object(_with_container(resources=None, env=None, ports=None), policy={"torch": {}}),
        runtime_object(_with_container(resources={"limits": None, "claims": None}), network=None),
        runtime_object({**_with_container(), "replicas": None}, volumeClaimPolicies=[{"templates": [{"spec": None}]}]),
    ],
)
async def test_null_is_the_same_as_absent(world: World, runtime: JsonObject) -> None:
    """As for the API server, which decides whether what is left is a JobSet."""
    resources = {"limits": {"cpu": 1}, "claims": [{"name": "a"}]}
    claim = {"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": None}
    world.put(trainjob_object(trainer={"resourcesPerNode": resources, "resourceClaimsPerNode": [claim]}))
    world.put(runtime)
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert None not in _leaves(world.applied[1])


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _leaves(value)
    else:
        yield tree


async def test_a_quantity_of_the_trainjob_that_nobody_can_read_is_told() -> None:
    """The pattern of the CRD lets this one pass."""
    world = world_with(trainer={"resourcesPerNode": {"limits": {"memory": "1e500"}}})
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"
    assert "resourcesPerNode: memory: '1e500' is not a quantity" in world.conditions["Blocked"]["message"]


async def test_a_snapshot_that_was_damaged_by_hand_is_told(world: World) -> None:
    """That of a TrainJob whose status has no digest; others are bound to what was frozen."""
    job = trainjob_object(
        status={"jobsStatus": [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0}]}
    )
    world.put(job)
    text = encode_runtime(runtime_object(_with_container(resources={"limits": {"cpu": "4"}}))).replace('"4"', '"four"')
    snapshot = build_snapshot(parse_trainjob(job), text)
    world.put(snapshot)
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeInvalid"
    assert "cpu: 'four' is not a quantity" in world.conditions["Blocked"]["message"]


async def test_an_orphaned_snapshot_is_told_with_its_remedy_which_helps() -> None:
    """`kubectl delete --cascade=orphan` of an earlier TrainJob leaves it behind, without an owner."""
    earlier, job = trainjob_object(), trainjob_object()
    earlier["metadata"]["uid"] = "uid-0"
    orphan = build_snapshot(parse_trainjob(earlier), encode_runtime(runtime_object()))
    orphan["metadata"].pop("ownerReferences", None)
    world = World()
    world.put(job, runtime_object(), orphan)
    await world.reconcile()
    namespace = job["metadata"]["namespace"]
    assert world.conditions["Blocked"]["message"] == (
        "unable to get runtime snapshot: invalid runtime snapshot: a snapshot configmap exists but is owned by another "
        f"object; if an earlier TrainJob left it behind, delete it (kubectl delete configmap -n {namespace} "
        "demo-runtime-snapshot), otherwise give this TrainJob another name"
    )
    assert world.applied == []
    world.remove("ConfigMap", "demo-runtime-snapshot")
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert "Blocked" not in world.conditions


async def test_a_snapshot_in_another_form_is_not_rewritten(world: World) -> None:
    """It was JSON in earlier versions, and may have been edited by hand."""
    job = trainjob_object()
    text = orjson.dumps(load_yaml(encode_runtime(runtime_object()))).decode()
    world.put(job, runtime_object(), build_snapshot(parse_trainjob(job), text))
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["JobSet"]


class Builder:
    """Builds whatever it is told to."""

    name = "Builder"

    def __init__(self, built: Any) -> None:
        self._built = built

    def build(self, info: Any, job: Any, listers: Any) -> list[Any]:
        return [Desired(self._built)]


@pytest.mark.parametrize(
    ("built", "message"),
    [
        ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}, "belongs to no namespace"),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "n"}}, "without declaring that kind"),
    ],
)
async def test_what_a_trainjob_cannot_own_is_refused(built: JsonObject, message: str) -> None:
    world = World(Builder(built))
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "PluginFailed"
    assert message in world.conditions["Blocked"]["message"]


SNAPSHOT = "demo-runtime-snapshot"


def runtime(image: str) -> JsonObject:
    return runtime_object(replicated_job(containers=[{"name": "node", "image": image}]))


def snapshot(image: str) -> JsonObject:
    return build_snapshot(parse_trainjob(trainjob_object()), encode_runtime(runtime(image)))


def image_of(world: World) -> str:
    pods = world.find("JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return str(pods["spec"]["containers"][0]["image"])


def replace(world: World, image: str) -> None:
    world.remove("ConfigMap", SNAPSHOT)
    world.put(snapshot(image))


async def suspended_world() -> World:
    """A TrainJob that is suspended, with the snapshot of a vetted runtime."""
    world = World()
    world.put(trainjob_object(suspend=True), runtime("vetted"))
    await world.reconcile()
    return world


def bound_to(world: World) -> str:
    return str(world.find("TrainJob")["status"].get("runtimeSnapshotDigest", ""))


def is_refused(world: World) -> bool:
    return world.conditions.get("Blocked", {}).get("reason") == "RuntimeSnapshotInvalid"


async def test_a_snapshot_is_immutable_and_its_digest_is_in_the_status() -> None:
    world = await suspended_world()
    written = world.find("ConfigMap", SNAPSHOT)
    assert written["immutable"] is True
    assert bound_to(world) == snapshot_digest(written["data"]["runtime"])


async def test_a_snapshot_counts_although_what_follows_has_no_answer_and_the_runtime_changes(world: World) -> None:
    world.put(trainjob_object(), runtime_object())
    apply = world.apply

    async def lose(resource: Resource, obj: JsonObject, *, field_manager: str) -> JsonObject:
        if resource.kind == "JobSet":
            raise TransportError("no answer")
        return await apply(resource, obj, field_manager=field_manager)

    world.apply = lose  # type: ignore[method-assign]
    with pytest.raises(TransportError):
        await world.reconcile()
    world.apply = apply  # type: ignore[method-assign]
    world.put(runtime_object(replicated_job(containers=[{"name": "node", "image": "another"}])))
    await world.reconcile()
    await world.reconcile()
    assert world.conditions == {}
    assert "another" not in str(world.find("JobSet"))


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_replaced_snapshot_is_never_built(restarted: bool) -> None:
    world = await suspended_world()
    replace(world, "evil")
    if restarted:
        world.restart()
    await world.reconcile()
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    assert is_refused(world)
    assert image_of(world) == "vetted"
    assert "kubectl delete configmap" in world.conditions["Blocked"]["message"]


async def test_a_snapshot_that_was_refused_is_frozen_anew_when_it_is_deleted() -> None:
    """With the runtime of today, also if the manager is killed before the status is written."""
    world = await suspended_world()
    replace(world, "evil")
    await world.reconcile()
    world.put(runtime("newer"))
    world.remove("ConfigMap", SNAPSHOT)
    world.put(snapshot("newer"))
    world.restart()
    await world.reconcile()
    assert not is_refused(world)
    assert image_of(world) == "newer"
    assert bound_to(world) == snapshot_digest(snapshot("newer")["data"]["runtime"])


async def test_a_snapshot_is_bound_before_the_status_is_first_written(world: World) -> None:
    """A TrainJob that runs has no status before its JobSet has one."""
    world.put(trainjob_object(), runtime("vetted"))
    await world.reconcile()
    assert "patch status" not in world.requests
    replace(world, "evil")
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})
    await world.reconcile()
    assert is_refused(world)
    assert bound_to(world) == snapshot_digest(snapshot("vetted")["data"]["runtime"])


@pytest.mark.parametrize("runtimes", [[runtime("vetted")], []])
async def test_a_snapshot_that_was_there_before_the_manager_must_hold_the_runtime(runtimes: list[JsonObject]) -> None:
    world = World()
    world.put(trainjob_object(), *runtimes, snapshot("evil"))
    await world.reconcile()
    assert is_refused(world)
    assert "apply JobSet" not in world.requests


async def test_a_snapshot_that_was_somebody_elses_must_hold_the_runtime_when_it_is_the_trainjobs(world: World) -> None:
    """The status that tells of the first one has no digest, and makes the TrainJob no older than digests."""
    claimed = snapshot("evil")
    foreign = {**claimed, "metadata": {**claimed["metadata"], "ownerReferences": []}}
    world.put(trainjob_object(), runtime("vetted"), foreign)
    await world.reconcile()
    assert is_refused(world)
    world.remove("ConfigMap", SNAPSHOT)
    world.put(claimed)
    await world.reconcile()
    assert is_refused(world)
    assert "apply JobSet" not in world.requests


async def test_a_snapshot_without_a_digest_is_taken_once_and_then_bound(world: World) -> None:
    """The Go original wrote it, or a version before there were digests; the runtime has changed since."""
    status = {"jobsStatus": [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 1}]}
    world.put(trainjob_object(suspend=True, status=status), runtime("newer"), snapshot("frozen"))
    await world.reconcile()
    assert image_of(world) == "frozen"
    assert bound_to(world) == snapshot_digest(snapshot("frozen")["data"]["runtime"])
    replace(world, "evil")
    await world.reconcile()
    assert is_refused(world)


async def test_the_digest_goes_when_the_job_has_ended() -> None:
    """Nothing is built any more, whichever process saw the end."""
    world = await suspended_world()
    jobset = world.find("JobSet")
    ended = [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}]
    world.change("JobSet", status={**jobset.get("status", {}), "conditions": ended})
    await world.reconcile()
    assert world.conditions["Complete"]["status"] == "True"
    assert bound_to(world) == ""


async def test_a_definition_without_the_field_costs_one_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server drops what the original's definition does not have."""
    store = world.store

    def pruning(obj: JsonObject) -> JsonObject:
        (obj.get("status") or {}).pop("runtimeSnapshotDigest", None)
        return store(obj)

    monkeypatch.setattr(world, "store", pruning)
    world.put(trainjob_object(suspend=True), runtime("vetted"))
    await world.reconcile()
    world.requests.clear()
    for _ in range(3):
        await world.reconcile()
    assert world.requests == []
    replace(world, "evil")
    await world.reconcile()
    assert is_refused(world)
