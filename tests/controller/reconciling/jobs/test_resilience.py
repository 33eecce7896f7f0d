"""Jobs whose pods are restarted together by a resilience policy: what ends an attempt, what is charged and made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.jobworld import JobWorld, job_object, pytorchjob, replicas, requests_of, with_policy

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.job_fields import JobFields
from trainmaster.controller.kube.rest.errors import RequestTimeout
from trainmaster.controller.reconciling.outcomes import DONE, RequeueAfter
from trainmaster.runtime.jsontree import JsonObject

MASTER, WORKER_0, WORKER_1 = ALL = ["demo-master-0", "demo-worker-0", "demo-worker-1"]
LOST_PEER: JsonObject = {"exit_code": 1, "said": "[gloo] Connection closed by peer"}
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}


async def running(run_policy: JsonObject | None = None, *, restart: str = "OnFailure", **policy: Any) -> JobWorld:
    """A PyTorchJob with a master and two workers that run."""
    job = pytorchjob(master=replicas(1, restart), worker=replicas(2, restart), policy=run_policy)
    return await run(await JobWorld.settled(with_policy(job, **policy)))


async def run(world: JobWorld) -> JobWorld:
    """Have the pods run, each on a node of its own."""
    for name in world.names("Pod"):
        world.store({**world.pod(name), "spec": {**world.pod(name)["spec"], "nodeName": f"node-of-{name}"}})
    await world.run_and_settle()
    return world


def ledger(world: JobWorld) -> JsonObject:
    found: JsonObject = orjson.loads(world.job["metadata"]["annotations"]["trainmaster.dev/resilience-status"])
    return found


def told(world: JobWorld) -> list[tuple[int, str, bool]]:
    return [(each["number"], each["reason"], each["charged"]) for each in ledger(world).get("attempts", ())]


def uids(world: JobWorld) -> set[str]:
    return {world.pod(name)["metadata"]["uid"] for name in world.names("Pod")}


async def test_a_failure_restarts_all_pods_and_is_charged_once_though_its_peers_fail_too() -> None:
    world = await running(maxRestarts=1, gracePeriod="90s")
    before = uids(world)
    assert {world.pod(name)["spec"]["restartPolicy"] for name in ALL} == {"Never"}
    assert world.pod(MASTER)["spec"]["terminationGracePeriodSeconds"] == 90
    world.set_phase(MASTER, "Failed", **LOST_PEER)
    world.set_phase(WORKER_1, "Failed", exit_code=1, said="ValueError: my loss is NaN")
    world.requests.clear()
    await world.settle()
    assert world.requests[0] == "patch PyTorchJob demo"  # before anything is deleted
    assert world.names("Pod") == ALL
    assert not before & uids(world)
    assert {world.pod(name)["metadata"]["labels"]["trainmaster.dev/attempts-before"] for name in ALL} == {"1"}
    [attempt] = ledger(world)["attempts"]
    assert (attempt["charged"], attempt["pod"], attempt["node"]) == (True, WORKER_1, f"node-of-{WORKER_1}")
    assert attempt["message"].startswith("worker 1 (pod demo-worker-1, container pytorch) failed at ")
    assert attempt["message"].endswith("with exit code 1: ValueError: my loss is NaN")
    assert world.state == "Restarting"
    assert "ValueError: my loss is NaN" in world.status["conditions"][-1]["message"]
    assert JobFields(world.job).restarts({}) == 1
    await world.run_and_settle()
    assert world.state == "Running"
    world.set_phase(WORKER_0, "Failed", exit_code=7)
    await world.settle()
    assert told(world) == [(0, "Failed", True), (1, "Failed", True)]
    assert (world.state, world.status["conditions"][-1]["reason"]) == ("Failed", "PyTorchJobFailed")
    message = world.status["conditions"][-1]["message"]
    assert message.startswith("Job demo has failed because it failed 2 times, maxRestarts is 1: worker 0 (pod demo-")
    assert JobFields(world.job).restarts({}) == 1


async def test_an_earlier_job_of_the_name_has_left_nothing_to_pay_for() -> None:
    """Its manifest was saved with all annotations."""
    world = await running(maxRestarts=0)
    await world.see_phase(WORKER_1, "Failed", exit_code=1)
    assert (world.state, told(world)) == ("Failed", [(0, "Failed", True)])
    job = {**world.job, "metadata": {**world.job["metadata"], "uid": "uid-2"}, "status": {}}
    again = await run(await JobWorld.settled(job))
    assert (again.state, told(again)) == ("Running", [])


@pytest.mark.parametrize(
    "spoilt",
    [
        {"chargedRestarts": None, "attempts": [{"number": 0, "endedAt": None, "charged": None}]},
        {"attempts": [{"number": 0}], "avoidedNodes": None, "failure": None},
        {"pods": "3"},
    ],
    ids=str,
)
async def test_a_ledger_that_somebody_has_spoilt_stands_in_no_way(spoilt: JsonObject) -> None:
    world = await running(maxRestarts=2, restartWindow="1h", nodes={"avoidAfter": 1})
    text = orjson.dumps(ledger(world) | spoilt).decode()
    world.job["metadata"]["annotations"]["trainmaster.dev/resilience-status"] = text
    world.store(world.job)
    await run(world)
    await world.see_phase(WORKER_1, "Failed", exit_code=1)
    assert told(world)[-1][1:] == ("Failed", True)
    assert (world.state, world.names("Pod")) == ("Restarting", ALL)


async def test_new_pods_are_made_when_all_old_ones_are_gone() -> None:
    world = await running(maxRestarts=1)
    world.set_phase(MASTER, "Running", deleting=True)  # its node takes its time
    world.set_phase(WORKER_0, "Failed", exit_code=1)
    await world.settle()
    assert world.names("Pod") == [MASTER]
    assert world.state == "Restarting"
    world.remove("Pod", MASTER)
    await world.settle()
    assert world.names("Pod") == ALL


def evict(world: JobWorld) -> None:
    world.set_phase(WORKER_1, "Running", deleting=True, conditions=[EVICTED])


def kill(world: JobWorld) -> None:
    world.set_phase(WORKER_1, "Failed", exit_code=143, conditions=[EVICTED])


def delete(world: JobWorld) -> None:
    world.set_phase(WORKER_1, "Running", deleting=True)


def vanish(world: JobWorld) -> None:
    world.remove("Pod", WORKER_1)


def vanish_first(world: JobWorld) -> None:
    vanish(world)
    world.set_phase(MASTER, "Failed", **LOST_PEER)


@pytest.mark.parametrize("happens", [evict, kill, delete, vanish, vanish_first])
@pytest.mark.parametrize(("disruptions", "charged"), [("Ignore", False), ("Count", True)])
async def test_a_disruption_is_charged_only_if_the_policy_says_so(
    happens: Callable[[JobWorld], None], disruptions: str, charged: bool
) -> None:
    world = await running(maxRestarts=1, disruptions=disruptions)
    before = uids(world)
    world.restart()  # nobody remembers that there was a pod
    happens(world)
    await world.settle()
    for name in world.names("Pod"):
        if world.pod(name)["metadata"].get("deletionTimestamp"):
            world.remove("Pod", name)
    await world.settle()
    assert told(world) == [(0, "Disrupted", charged)]
    assert ledger(world)["attempts"][0]["pod"] == WORKER_1
    assert world.names("Pod") == ALL
    assert not before & uids(world)


@pytest.mark.parametrize(
    ("code", "end", "attempts"),
    [
        (2, "Failed", [(0, "Failed", True)]),
        (75, "Running", [(0, "Retry", False)]),
        (1, "Failed", [(0, "Failed", True)]),
    ],
)
async def test_exit_codes_say_whether_the_job_goes_on(code: int, end: str, attempts: list[Any]) -> None:
    world = await running(maxRestarts=int(code == 2), exitCodes={"fail": [2], "retry": [75]})
    world.set_phase(WORKER_1, "Failed", exit_code=code)
    await world.settle()
    await world.run_and_settle()
    assert (world.state, told(world)) == (end, attempts)


async def test_who_lost_a_peer_waits_for_the_peer_to_tell() -> None:
    world = await running(maxRestarts=1)
    world.set_phase(MASTER, "Failed", at="2026-01-01T00:00:00Z", **LOST_PEER)
    world.requests.clear()
    assert await world.settle() == RequeueAfter(3)
    assert world.requests == []
    world.set_phase(WORKER_1, "Failed", exit_code=137, conditions=[EVICTED])
    await world.settle()
    assert told(world) == [(0, "Disrupted", False)]


async def test_a_worker_of_mpi_is_charged_and_not_its_launcher() -> None:
    types = {"Launcher": replicas(1, container="mpi"), "Worker": replicas(2, container="mpi")}
    world = await run(await JobWorld.settled(with_policy(job_object("MPIJob", types), maxRestarts=1)))
    world.set_phase("demo-launcher", "Failed", exit_code=1, said="lost a daemon", at="2026-01-01T00:00:00Z")
    assert await world.settle() == RequeueAfter(3)
    world.set_phase(WORKER_0, "Failed", exit_code=137, at="2026-01-01T00:00:01Z")
    await world.settle()
    assert [(each["pod"], each["charged"]) for each in ledger(world)["attempts"]] == [(WORKER_0, True)]
    assert world.names("Pod") == ["demo-launcher", WORKER_0, WORKER_1]


async def test_a_node_on_which_the_job_failed_is_avoided() -> None:
    world = await running(maxRestarts=3, nodes={"avoidAfter": 1, "for": "1h"})
    world.set_phase(WORKER_1, "Failed", exit_code=1)
    await world.settle()
    affinity = world.pod(MASTER)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = affinity["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == [f"node-of-{WORKER_1}"]


async def test_only_failures_within_the_window_count() -> None:
    world = await running(maxRestarts=1, restartWindow="1h")
    for at in ("2025-12-31T22:00:00Z", "2026-01-01T00:00:00Z"):
        world.set_phase(WORKER_1, "Failed", exit_code=1, at=at)
        await world.settle()
        await world.run_and_settle()
    assert (world.state, len(told(world)), ledger(world)["chargedRestarts"]) == ("Running", 2, 1)


async def test_the_budget_outlives_a_suspension_which_is_no_disruption() -> None:
    world = await running(maxRestarts=1)
    world.set_phase(WORKER_1, "Failed", exit_code=1)
    await world.settle()
    await world.run_and_settle()
    await world.edit(runPolicy={"suspend": True})
    assert (world.state, world.names("Pod")) == ("Suspended", [])
    await world.edit(runPolicy={"suspend": False})
    assert world.names("Pod") == ALL
    assert told(world) == [(0, "Failed", True)]
    await world.run_and_settle()
    world.set_phase(WORKER_1, "Failed", exit_code=1)
    await world.settle()
    assert world.state == "Failed"


async def test_scaling_and_what_is_deleted_before_all_pods_were_there_is_no_disruption() -> None:
    job = with_policy(pytorchjob(worker=replicas(2, "Never")), maxRestarts=0)
    world = await JobWorld.settled(job)
    await world.run_and_settle()
    for count in (4, 1, 3):
        await world.edit(pytorchReplicaSpecs={"Worker": replicas(count, "Never")})
        await world.run_and_settle()
        assert len(world.names("Pod")) == count
    world = JobWorld(job)
    world.refusals["create Pod demo-worker-1"] = RequestTimeout("lost")
    with pytest.raises(RequestTimeout):
        await world.reconcile()
    world.set_phase(WORKER_0, "Running", deleting=True)
    world.refusals.clear()
    await world.settle()
    world.remove("Pod", WORKER_0)
    world.refusals["create Pod demo-worker-0"] = RequestTimeout("lost")
    with pytest.raises(RequestTimeout):
        await world.reconcile()
    assert "trainmaster.dev/resilience-status" not in world.job["metadata"]["annotations"]
    evict(world)
    world.refusals.clear()
    await world.reconcile()
    assert told(world) == [(0, "Disrupted", False)]


async def test_a_job_that_has_succeeded_charges_nothing_and_a_settled_one_costs_nothing() -> None:
    world = await running(maxRestarts=1, restart="ExitCode")
    world.restart()
    world.requests.clear()
    assert await world.reconcile() == DONE
    assert world.requests == []
    world.set_phase(MASTER, "Succeeded", exit_code=0)
    world.set_phase(WORKER_1, "Failed", exit_code=1)
    await world.settle()
    assert (world.state, told(world)) == ("Succeeded", [])


async def test_an_invalid_policy_is_told_and_nothing_is_done_until_it_is_corrected() -> None:
    world = await running(maxRestarts=1)
    job = world.job
    world.put(with_policy(job, maxRestarts=1, restartWindow="soon"))
    world.set_phase(WORKER_1, "Failed", exit_code=1)
    await world.settle()
    assert (world.state, world.names("Pod")) == (BLOCKED, ALL)
    assert "trainmaster.dev/resilience-policy].restartWindow" in world.status["conditions"][-1]["message"]
    world.put({**job, "status": world.status})
    await world.settle()
    assert (world.state, told(world)) == ("Restarting", [(0, "Failed", True)])


async def test_a_policy_that_counts_no_failures_leaves_restarts_to_the_replicas() -> None:
    world = await running(restart="ExitCode", gracePeriod="90s")
    world.set_phase(WORKER_1, "Failed", exit_code=137)
    before = uids(world)
    await world.settle()
    assert len(before & uids(world)) == 2
    assert world.pod(WORKER_1)["spec"]["terminationGracePeriodSeconds"] == 90
    assert not list(requests_of(world, "patch PyTorchJob"))
