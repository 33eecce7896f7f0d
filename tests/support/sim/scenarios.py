"""What happens in the cluster: the lives of TrainJobs, step by step. Those of V1 jobs are in `job_scenarios`.

A step waits for the state that it needs and not for a time, so that a disturbed run takes the same way as the
reference.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from support.sim.actors import FAILURE, Fate
from support.sim.faults.lasting import LASTING_FAULTS, LATE
from support.sim.faults.writes import WRITE_FAULTS
from support.sim.job_scenarios import JOB_SCENARIOS
from support.sim.resilience_scenarios import RESILIENCE_SCENARIOS
from support.sim.scenario import Scenario
from support.sim.world import World

from trainmaster.devcluster.apiserver.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOBS,
    JOBSETS,
    POD_GROUPS,
    TRAINING_RUNTIMES,
    TRAINJOBS,
    GroupResource,
)
from trainmaster.devcluster.controllers.jobset.status import COMPLETED, FAILED, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

_API_VERSION = "trainer.kubeflow.org/v1alpha1"


def runtime(kind: str = "ClusterTrainingRuntime") -> JsonObject:
    """A runtime for PyTorch."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "train:1"}]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": pod}},
        },
    }
    metadata = {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "torch"}}
    if kind == "TrainingRuntime":
        metadata["namespace"] = "default"
    spec = {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def trainjob(name: str, **spec: Any) -> JsonObject:
    """A TrainJob on that runtime."""
    metadata = {"name": name, "namespace": "default"}
    spec = {"runtimeRef": {"name": "torch"}, **spec}
    return {"apiVersion": _API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


async def _submit(world: World, name: str = "job", **spec: Any) -> None:
    if world.user.find(CLUSTER_TRAINING_RUNTIMES, "", "torch") is None:
        await world.user.create(CLUSTER_TRAINING_RUNTIMES, runtime())
    await world.user.create(TRAINJOBS, trainjob(name, **spec))


async def _ended(world: World, name: str = "job", *, condition: str = "Complete") -> None:
    await world.until(lambda: world.holds(name, condition), f"TrainJob {name} is {condition}")


async def _running(world: World, name: str = "job") -> None:
    await world.until(lambda: world.runs(name), f"JobSet {name} runs")


async def _gone(world: World, name: str = "job") -> None:
    await world.until(lambda: world.jobset(name) is None, f"JobSet {name} is collected")


async def _set(world: World, name: str = "job", **spec: Any) -> None:
    await world.user.patch(TRAINJOBS, "default", name, {"spec": spec})


async def _complete(world: World) -> None:
    await _submit(world)
    await _ended(world)


async def _fail(world: World) -> None:
    await _submit(world)
    await _ended(world, condition="Failed")


async def _submit_failing(world: World, *names: str, pods_take: float = 0.0) -> None:
    """TrainJobs of which a container has failed, while their JobSets run."""
    world.server.network.pods_take = pods_take
    for name in names:
        await _submit(world, name)
    for name in names:
        await _running(world, name)
        await world.user.fail_pod(name)


async def _fail_late(world: World) -> None:
    """More fail at once than are looked at at once: the causes of the last are found when their ends are told."""
    names = ("a", "b", "c", "d", "e", "f")
    await _submit_failing(world, *names, pods_take=2.0)
    for name in names:
        await _ended(world, name, condition="Failed")
    await world.until(lambda: all(_has_cause(world, name) for name in names), "the TrainJobs tell why they failed")


async def _fail_twice(world: World) -> None:
    """The same failure is found when ranks are lost, when all have had time to tell of it, and at the end."""
    await _submit_failing(world, "job")
    await _ended(world, condition="Failed")
    await world.until(lambda: _has_cause(world, "job"), "the TrainJob tells why it failed")


async def _fail_and_delete(world: World) -> None:
    """Nobody needs what is found of it any more."""
    await _submit_failing(world, "job", pods_take=2.0)
    await world.until(lambda: world.jobset_holds("job", FAILED), "the JobSet fails")
    await asyncio.sleep(0.5)
    await world.user.delete(TRAINJOBS, "default", "job")
    await _gone(world)


async def _fail_and_recreate(world: World) -> None:
    """What is found of the first one says nothing of the second."""
    await _submit_failing(world, "job", pods_take=2.0)
    await world.until(lambda: world.jobset_holds("job", FAILED), "the JobSet fails")
    await asyncio.sleep(0.5)
    await world.user.delete(TRAINJOBS, "default", "job")
    await _submit(world)
    await _ended(world, condition="Failed")
    if _has_cause(world, "job"):
        world.violations.append("the second TrainJob tells of a failure of the first")


def _has_cause(world: World, name: str) -> bool:
    status = (world.user.find(TRAINJOBS, "default", name) or {}).get("status") or {}
    told = {each["type"]: each["message"] for each in status.get("conditions") or ()}
    return FAILURE in told.get("Failed", "") and FAILURE in told.get("ContainerFailed", "")


async def _suspend_and_resume(world: World) -> None:
    await _submit(world)
    await _running(world)
    await _set(world, suspend=True)
    await world.until(lambda: world.jobset_holds("job", SUSPENDED), "the JobSet is suspended")
    await world.until(lambda: world.holds("job", "Suspended"), "the TrainJob is suspended")
    await _set(world, suspend=False)
    await _ended(world)


async def _patch_while_suspended(world: World) -> None:
    await _submit(world, suspend=True)
    await world.until(lambda: world.jobset_holds("job", SUSPENDED), "the JobSet is suspended")
    await world.until(lambda: world.holds("job", "Suspended"), "the TrainJob is suspended")
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}}
    patch = {"manager": "queue.example.org", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    await _set(world, runtimePatches=[patch])
    await world.until(
        lambda: '"zone"' in str(world.jobset("job")).replace("'", '"'), "the JobSet has the patched node selector"
    )
    await _set(world, suspend=False)
    await _ended(world)


async def _delete_in_flight(world: World) -> None:
    await _submit(world)
    await _running(world)
    await world.user.delete(TRAINJOBS, "default", "job")
    await _gone(world)


async def _delete_at_once(world: World) -> None:
    await _submit(world)
    await asyncio.sleep(world.chooser.uniform(0.01, 0.1))
    await world.user.delete(TRAINJOBS, "default", "job")
    await asyncio.sleep(10)


async def _exceed_deadline(world: World) -> None:
    await _submit(world, activeDeadlineSeconds=300)
    await _ended(world, condition="Failed")
    await _gone(world)


async def _recreate(world: World) -> None:
    await _submit(world)
    await _running(world)
    await world.user.delete(TRAINJOBS, "default", "job")
    await _submit(world)
    await _ended(world)


async def _late_runtime(world: World) -> None:
    await _submit(world, "other")
    await world.user.create(TRAINJOBS, trainjob("job", runtimeRef={"kind": "TrainingRuntime", "name": "torch"}))
    await _ended(world, "other")
    await world.user.create(TRAINING_RUNTIMES, runtime("TrainingRuntime"))
    await _ended(world)


async def _restart(world: World) -> None:
    await _submit(world)
    await _running(world)
    world.wanted = 0
    for process in world.living:
        await world.stop(process)
    await world.until(lambda: world.jobset_holds("job", COMPLETED), "the JobSet completes")
    world.ensure(1)
    await _ended(world)


async def _change_leader(world: World) -> None:
    await _submit(world)
    await _running(world)
    leader = world.leader()
    if leader is not None:
        await world.stop(leader)
        world.ensure(2)
    await _ended(world)
    await _submit(world, "second")
    await _ended(world, "second")


async def _release(world: World, resource: GroupResource, *, after: float) -> None:
    """Let an object go that is held, if it is still that one."""
    await asyncio.sleep(after)
    if (world.user.find(resource, "default", "job") or {"metadata": {}})["metadata"].get("finalizers"):
        await world.user.patch(resource, "default", "job", {"metadata": {"finalizers": None}})


def _replaced(moment: str) -> Callable[[World], Awaitable[None]]:
    """A TrainJob is deleted and made again, and another manager comes to lead `moment` that."""

    async def fail_over(world: World) -> None:
        leader = world.leader()
        if leader is not None:
            await world.stop(leader)
            world.ensure(2)

    async def play(world: World) -> None:
        gang = runtime()
        gang["spec"]["podGroupPolicy"] = {"coscheduling": {}}
        await world.user.create(CLUSTER_TRAINING_RUNTIMES, gang)
        await _submit(world)
        await _running(world)
        # As while they are deleted in the foreground: these two outlast the snapshot, which is collected with them.
        held = ((POD_GROUPS, 18.0), (JOBSETS, 15.0))
        for resource, _ in held:
            await world.user.patch(resource, "default", "job", {"metadata": {"finalizers": ["example.org/hold"]}})
        if moment == "before":
            await fail_over(world)
        await world.user.delete(TRAINJOBS, "default", "job")
        if moment == "during":
            await fail_over(world)
        await _submit(world)
        if moment == "after":
            await fail_over(world)
        for resource, seconds in held:
            world.server.spawn(_release(world, resource, after=seconds))
        await _ended(world)

    return play


async def _several(world: World) -> None:
    for name in ("a", "b", "c", "d"):
        await _submit(world, name)
    await _submit(world, "e", suspend=True)
    for name, condition in {"a": "Complete", "b": "Failed", "c": "Complete", "d": "Complete", "e": "Suspended"}.items():
        await _ended(world, name, condition=condition)
    await world.until(lambda: world.jobset_holds("e", SUSPENDED), "the JobSet e is suspended")
    await _set(world, "e", suspend=False)
    await _ended(world, "e")


async def _heal(world: World) -> None:
    """Somebody deletes the JobSet: it comes back."""
    await _submit(world)
    await _running(world)
    await world.user.delete(JOBSETS, "default", "job")
    await _ended(world)


async def _expire(world: World) -> None:
    """The time to live of the JobSet is over as soon as it has ended."""
    limited = runtime()
    limited["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 0
    await world.user.create(CLUSTER_TRAINING_RUNTIMES, limited)
    await _submit(world)
    await world.until(lambda: world.jobset_holds("job", COMPLETED), "the JobSet completes")
    await world.user.delete(JOBSETS, "default", "job")
    await world.until(lambda: world.holds("job", "Complete") or world.holds("job", "Blocked"), "the TrainJob knows")


_PLAIN = "job-node-0"
"""What the Job of the TrainJob `job` is called."""


def _plain_job(world: World) -> JsonObject:
    return world.user.find(JOBS, "default", _PLAIN) or {}


async def _plain_running(world: World) -> None:
    await world.until(lambda: _plain_job(world).get("status", {}).get("active"), "the Job runs")


async def _plain_suspend_and_resume(world: World) -> None:
    await _submit(world)
    await _plain_running(world)
    await _set(world, suspend=True)
    await world.until(lambda: _plain_job(world)["spec"].get("suspend"), "the Job is suspended")
    await world.until(lambda: world.holds("job", "Suspended"), "the TrainJob is suspended")
    await _set(world, suspend=False)
    await _ended(world)


async def _plain_deadline(world: World) -> None:
    await _submit(world, activeDeadlineSeconds=300)
    await _ended(world, condition="Failed")
    await world.until(lambda: not _plain_job(world), "the Job is collected")


async def _plain_heal(world: World) -> None:
    """Somebody deletes the Job: it comes back."""
    await _submit(world)
    await _plain_running(world)
    await world.user.delete(JOBS, "default", _PLAIN)
    await _ended(world)


_PLAIN_WATCHED = ("trainjobs", "jobs", "configmaps", "services")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("complete", _complete),
        Scenario("fail", _fail, {"job": Fate(end=FAILED)}),
        Scenario(
            "fail-late",
            _fail_late,
            {name: Fate(seconds=20, end=FAILED) for name in ("a", "b", "c", "d", "e", "f")},
            # Whoever starts after an end was told does not look for its cause.
            faults=("none", "duplicates", "coalesced", "short-watches", "no-bookmarks", "conflict", "throttled", LATE),
        ),
        Scenario(
            "fail-twice",
            _fail_twice,
            {"job": Fate(seconds=20, end=FAILED, unready=5)},
            faults=(*WRITE_FAULTS, *LASTING_FAULTS, LATE),
        ),
        Scenario("fail-delete", _fail_and_delete, {"job": Fate(seconds=20, end=FAILED)}),
        Scenario("fail-recreate", _fail_and_recreate, {"job": Fate(seconds=20, end=FAILED)}),
        Scenario("suspend-resume", _suspend_and_resume, {"job": Fate(seconds=300)}),
        Scenario("patch-suspended", _patch_while_suspended),
        Scenario("delete", _delete_in_flight, {"job": Fate(seconds=None)}),
        # Whether the objects of the job are made before it goes is a matter of who is faster.
        Scenario("delete-at-once", _delete_at_once, {"job": Fate(seconds=None)}, counted=False),
        Scenario("deadline", _exceed_deadline, {"job": Fate(seconds=None)}),
        Scenario("recreate", _recreate, {"job": Fate(seconds=20)}),
        Scenario("late-runtime", _late_runtime),
        Scenario("restart", _restart),
        Scenario("several", _several, {"b": Fate(end=FAILED)}),
        Scenario("heal", _heal, {"job": Fate(seconds=20)}),
        Scenario("ttl", _expire, {"job": Fate(seconds=120)}),
        Scenario("leader", _change_leader, managers=2),
        *(
            Scenario(
                f"failover-{moment}-replacement",
                _replaced(moment),
                {"job": Fate(seconds=20)},
                managers=2,
                gangs=True,
                collected_after=8.0,
                faults=(LATE, "slow", "chaos", "crash-after", "answer-lost", "cut-after", "pause"),
            )
            for moment in ("before", "during", "after")
        ),
        *(
            Scenario(f"plain-{name}", play, {_PLAIN: Fate(seconds)}, plain_jobs=True, watched=_PLAIN_WATCHED)
            for name, play, seconds in (
                ("suspend-resume", _plain_suspend_and_resume, 300),
                ("deadline", _plain_deadline, None),
                ("heal", _plain_heal, 20),
            )
        ),
        *JOB_SCENARIOS,
        *RESILIENCE_SCENARIOS,
    )
}
