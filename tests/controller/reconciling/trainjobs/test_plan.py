"""What is planned for odd runtimes, odd TrainJobs, and objects of somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.world import World, jobset_of, world_with

from trainmaster.runtime.api import parse_trainjob
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime
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
async def test_a_malformed_runtime_is_told_and_not_frozen(runtime: JsonObject, message: str) -> None:
    """Frozen, it would stay wrong for this job even after its author has corrected it."""
    world = World()
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
async def test_null_is_the_same_as_absent(runtime: JsonObject) -> None:
    """As for the API server, which decides whether what is left is a JobSet."""
    world = World()
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


async def test_a_snapshot_that_was_damaged_by_hand_is_told() -> None:
    """That of a TrainJob whose status has no digest; others are bound to what was frozen."""
    world = World()
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


async def test_a_snapshot_in_another_form_is_not_rewritten() -> None:
    """It was JSON in earlier versions, and may have been edited by hand."""
    world = World()
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
