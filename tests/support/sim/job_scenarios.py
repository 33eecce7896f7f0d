"""The lives of V1 jobs, by the example of a PyTorchJob with a master and two workers."""

from typing import Any

from support.sim.pods import PodFate
from support.sim.scenario import Scenario
from support.sim.world import World

from trainmaster.devcluster.apiserver.resources import PODS, SERVICES, VOLCANO_POD_GROUPS, GroupResource
from trainmaster.runtime.jsontree import JsonObject

PYTORCHJOBS = GroupResource("kubeflow.org", "pytorchjobs")
_WATCHED = ("pytorchjobs", "pods", "services")
_GANG = (*_WATCHED, "podgroups")

_ALONE = ("pytorchjob",)
"""The first life is played beside all other kinds of jobs, the others with managers that serve this one only."""

_MASTER, _WORKER_0, _WORKER_1 = "job-master-0", "job-worker-0", "job-worker-1"
_NAMES = (_MASTER, _WORKER_0, _WORKER_1)


def pytorchjob(*, policy: str = "OnFailure", **run_policy: Any) -> JsonObject:
    """A PyTorchJob."""
    container = {"name": "pytorch", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}

    def replicas(number: int) -> JsonObject:
        return {"replicas": number, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"runPolicy": run_policy, "pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(2)}},
    }


async def _holds(world: World, condition: str) -> None:
    await world.until(lambda: world.holds("job", condition, PYTORCHJOBS), f"PyTorchJob job is {condition}")


async def _run(world: World, *, number: int = 3) -> None:
    """Wait until so many pods run, and each has its Service: a job that goes before that is counted otherwise."""
    store = world.server.api.store

    def running() -> set[str]:
        pods = (record.object for record in store.list(PODS))
        return {pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Running"}

    def served() -> set[str]:
        return {record.object["metadata"]["name"] for record in store.list(SERVICES)}

    await world.until(lambda: len(running()) == number and running() <= served(), f"{number} pods run, each served")
    await _holds(world, "Running")


async def _gone(world: World, *names: str) -> None:
    await world.until(
        lambda: not any(world.user.find(PODS, "default", name) for name in names), f"{', '.join(names)} are gone"
    )


async def _gone_and_back(world: World, name: str) -> None:
    """Wait until there was a second pod of a name."""
    await world.until(lambda: len(world.pods_called(name)) > 1, f"{name} is another one")


async def _suspend(world: World, *, suspend: bool) -> None:
    await world.user.patch(PYTORCHJOBS, "default", "job", {"spec": {"runPolicy": {"suspend": suspend}}})


async def _live(world: World) -> None:
    """A life with everything in it: a gang, a worker that is replaced, a suspension, success, and the clean-up."""
    await world.user.create(PYTORCHJOBS, pytorchjob(policy="ExitCode", cleanPodPolicy="All"))
    await _run(world)
    await _gone_and_back(world, _WORKER_1)
    await _run(world)
    await _suspend(world, suspend=True)
    await _holds(world, "Suspended")
    await _gone(world, *_NAMES)
    await world.until(lambda: world.user.find(VOLCANO_POD_GROUPS, "default", "job") is None, "the PodGroup is gone")
    await _suspend(world, suspend=False)
    await _run(world)
    await _holds(world, "Succeeded")
    await _gone(world, *_NAMES)


async def _fail(world: World) -> None:
    await world.user.create(PYTORCHJOBS, pytorchjob(policy="Never", cleanPodPolicy="Running"))
    await _holds(world, "Failed")
    await _gone(world, _MASTER, _WORKER_0)


async def _fail_too_often(world: World) -> None:
    """Of one worker the container ends with a code that is worth another try, again and again; one is evicted."""
    await world.user.create(PYTORCHJOBS, pytorchjob(policy="ExitCode", backoffLimit=2, cleanPodPolicy="All"))
    await _holds(world, "Failed")
    await _gone(world, *_NAMES)


async def _expire(world: World) -> None:
    """The deadline passes, then the time to live: the job is deleted, and what it had is collected."""
    await world.user.create(PYTORCHJOBS, pytorchjob(activeDeadlineSeconds=300, ttlSecondsAfterFinished=120))
    await _holds(world, "Failed")
    await world.until(lambda: world.user.find(PYTORCHJOBS, "default", "job") is None, "the job is gone")
    await _gone(world, *_NAMES)


async def _recreate(world: World) -> None:
    await world.user.create(PYTORCHJOBS, pytorchjob())
    await _run(world)
    await world.user.delete(PYTORCHJOBS, "default", "job")
    await world.user.create(PYTORCHJOBS, pytorchjob())
    await _holds(world, "Succeeded")


async def _heal_and_scale(world: World) -> None:
    """Somebody deletes a pod: it comes back, and the job does not fail of it (V1-B5). Then it shrinks."""
    await world.user.create(PYTORCHJOBS, pytorchjob(policy="Never"))
    await _run(world)
    await world.user.delete(PODS, "default", _WORKER_0)
    await _gone_and_back(world, _WORKER_0)
    await _run(world)
    workers = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}
    await world.user.patch(PYTORCHJOBS, "default", "job", workers)
    await _gone(world, _WORKER_1)
    await _holds(world, "Succeeded")


# Long enough that each state is seen by a manager that was away for a minute in between.
_LONG = PodFate(seconds=1000)
_LONGER = PodFate(seconds=400)
"""Of the last master: it ends after the last workers."""

_SHORT = PodFate(seconds=300)
_TRY_AGAIN = PodFate(seconds=200, exit_code=137)

_FOR_EVER = PodFate(None)

JOB_SCENARIOS = (
    Scenario(
        "job-life",
        _live,
        pods={_MASTER: [_LONG, _LONGER], _WORKER_0: [_LONG, _SHORT], _WORKER_1: [_TRY_AGAIN, _LONG, _FOR_EVER]},
        gangs=True,
        gang_scheduler="volcano",
        watched=_GANG,
    ),
    Scenario(
        "job-fail",
        _fail,
        pods={_MASTER: [_FOR_EVER], _WORKER_0: [_FOR_EVER], _WORKER_1: [PodFate(200, exit_code=3)]},
        watched=_WATCHED,
        kinds=_ALONE,
    ),
    Scenario(
        "job-backoff",
        _fail_too_often,
        pods={_MASTER: [_FOR_EVER], _WORKER_0: [PodFate(300, exit_code=-1), _FOR_EVER], _WORKER_1: [_TRY_AGAIN]},
        watched=_WATCHED,
        kinds=_ALONE,
    ),
    Scenario("job-deadline", _expire, pods={name: [_FOR_EVER] for name in _NAMES}, watched=_WATCHED, kinds=_ALONE),
    Scenario(
        "job-recreate",
        _recreate,
        pods={_MASTER: [_LONG, _LONGER], _WORKER_0: [_LONG, _SHORT], _WORKER_1: [_LONG, _SHORT]},
        watched=_WATCHED,
        kinds=_ALONE,
    ),
    Scenario(
        "job-heal-scale",
        _heal_and_scale,
        pods={_MASTER: [_LONG], _WORKER_0: [_LONG, _SHORT], _WORKER_1: [_FOR_EVER]},
        watched=_WATCHED,
        kinds=_ALONE,
    ),
)
