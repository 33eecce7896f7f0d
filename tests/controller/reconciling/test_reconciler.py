"""The reconciler of TrainJobs: what it makes of what the caches show, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.world import World, refused

from trainmaster.controller.reconciling.outcomes import DONE, NotYet, RequeueAfter, Retry
from trainmaster.controller.reconciling.trainjobs.problems import Problem
from trainmaster.controller.reconciling.trainjobs.reconciler import LONGEST_REQUEUE
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.api import parse_trainjob
from trainmaster.runtime.extension import Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime


async def test_a_message_that_changes_on_every_try_is_not_written_on_every_try() -> None:
    """Each write of the status is an event that wakes the job up at once, past every backoff: a hot loop."""
    world = World()
    world.put(trainjob_object(), runtime_object())
    for port in range(41000, 41050):
        world.refusal = refused(f"failed calling webhook: read tcp 10.0.0.1:{port}->10.0.0.2:443: connection reset")
        assert isinstance(await world.reconcile(), Retry)
    assert len(world.patches) == len(world.events) == 1
    world.clock.step(60)
    await world.reconcile()
    assert len(world.patches) == len(world.events) == 2
    assert ":41049->" in world.conditions["Blocked"]["message"]


async def test_b23_the_first_reconcile_is_no_error() -> None:
    """There is no JobSet yet whose status could be read; the original fails there, and tries again."""
    world = World()
    world.put(trainjob_object(), runtime_object())
    assert await world.reconcile() == DONE
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert world.events == []


async def test_a_runtime_that_the_cache_has_not_seen_is_asked_for_before_it_is_missing() -> None:
    """Two watches have no common order: the TrainJob may be seen before the runtime that was created first."""
    world = World()
    world.put(trainjob_object())
    world.server["TrainingRuntime", "team/rt"] = runtime_object()
    assert await world.reconcile() == DONE
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert (world.events, world.patches) == ([], [])


async def test_a_finished_trainjob_asks_for_no_runtime() -> None:
    world = World()
    condition = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "done"}
    world.put(trainjob_object(status={"conditions": [condition]}))
    await world.reconcile()
    assert "get TrainingRuntime" not in world.requests


async def test_b25_a_percent_sign_is_told_as_it_is() -> None:
    world = World()
    world.put(trainjob_object(), runtime_object())
    world.refusal = refused("100%s of 5%d%%")
    await world.reconcile()
    (note,) = world.events
    assert note.endswith("100%s of 5%d%%")
    assert "100%s of 5%d%%" in world.conditions["Blocked"]["message"]


async def test_another_reason_is_told_at_once() -> None:
    world = World()
    world.put(trainjob_object())
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeNotFound"
    world.put(runtime_object())
    world.refusal = refused("no")
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "ApplyFailed"


async def test_c4_waiting_for_own_writes_is_no_success() -> None:
    """The caches have not seen the write yet; that says nothing about the tries before."""
    world = World()
    world.put(trainjob_object())
    world.lagging = True
    await world.reconcile()
    assert isinstance(await world.reconcile(), NotYet)


async def test_e5_the_jobset_of_an_earlier_trainjob_of_the_name_says_nothing() -> None:
    """Created again before garbage collection came: the new job is not complete because the old one was."""
    world = World()
    condition = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "demo",
        "uid": "uid-0",
        "controller": True,
    }
    jobset = {
        "apiVersion": JOBSETS.api_version,
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "team", "uid": "old", "ownerReferences": [owner]},
        "status": {"conditions": [condition], "replicatedJobsStatus": [{"name": "node", "succeeded": 1}]},
    }
    world.put(trainjob_object(), runtime_object(), jobset)
    await world.reconcile()
    assert world.patches == []


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
        _spec(runtime_object(), replicatedJobs=None),
        {**runtime_object(), "spec": None},
        {**runtime_object(), "spec": {"template": None}},
        {**runtime_object(), "spec": {"template": {"spec": None}}},
        runtime_object({"name": "node", "template": None}),
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
    world = World()
    world.put(trainjob_object(trainer={"resourcesPerNode": {"limits": {"memory": "1e500"}}}), runtime_object())
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"
    assert "resourcesPerNode: memory: '1e500' is not a quantity" in world.conditions["Blocked"]["message"]


async def test_a_snapshot_that_was_damaged_by_hand_is_told() -> None:
    world = World()
    job = trainjob_object()
    world.put(job)
    text = encode_runtime(runtime_object(_with_container(resources={"limits": {"cpu": "4"}}))).replace('"4"', '"four"')
    snapshot = build_snapshot(parse_trainjob(job), text)
    world.put(snapshot)
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeInvalid"
    assert "cpu: 'four' is not a quantity" in world.conditions["Blocked"]["message"]


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


async def test_an_unreadable_trainjob_of_another_controller_is_left_alone() -> None:
    """Whoever manages it writes its status; two writers would fight."""
    world = World()
    world.put(trainjob_object(managedBy="kueue.x-k8s.io/multikueue", suspend="yes"))
    await world.reconcile()
    assert not world.patches
    assert not world.events
    world.put(trainjob_object(suspend="yes"))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"


@pytest.mark.parametrize("status", [{"conditions": [{"message": "odd"}]}, {"conditions": None}, {"conditions": {}}])
async def test_an_odd_status_is_no_reason_to_fail(status: JsonObject) -> None:
    world = World()
    world.put(trainjob_object(suspend="yes", status=status))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"


async def test_a_blocked_job_is_looked_at_again_at_its_deadline() -> None:
    """The backoff of what blocks it may be much longer."""
    world = World()
    world.refusal = refused("no")
    world.put(trainjob_object(activeDeadlineSeconds=60), runtime_object())
    outcome = await world.reconcile()
    assert isinstance(outcome, Retry)
    assert outcome.at_latest == 60
    world.clock.step(60)
    await world.reconcile()
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"


async def test_a_deadline_beyond_the_calendar_is_no_deadline_soon() -> None:
    """activeDeadlineSeconds is any 64-bit number; it is looked at now and then, because clocks are set."""
    world = World()
    world.put(trainjob_object(activeDeadlineSeconds=2**63 - 1), runtime_object())
    outcome = await world.reconcile()
    assert isinstance(outcome, RequeueAfter)
    assert outcome.seconds == LONGEST_REQUEUE


@pytest.mark.parametrize("message", ["x" * 5000, "é" * 5000, "short"])
def test_a_note_fits_its_event(message: str) -> None:
    """The limit of the API is 1024 bytes, not characters."""
    note = Problem("ApplyFailed", message).note()
    assert len(note.encode()) <= 1024
    assert note.endswith(("short", " ..."))
