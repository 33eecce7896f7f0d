"""Rows of the table in docs/guides/resilience.md: a TrainJob of two nodes that trains on after something happened."""

from support.sim.pods import PodFate
from support.sim.scenario import Scenario
from support.sim.world import World

from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, NODES, PODS, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

_API_VERSION = "trainer.kubeflow.org/v1alpha1"
_SECONDS = 60
_ENDS = PodFate(_SECONDS, writes=_SECONDS)
_FIRST, _SECOND = "job-node-0-0", "job-node-0-1"
_KILLED = PodFate(20, exit_code=137, writes=20)
_HANGS = PodFate(None, writes=20)


async def _submit(world: World, **policy: object) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "train:1"}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    runtime: JsonObject = {
        "apiVersion": _API_VERSION,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    await world.user.create(CLUSTER_TRAINING_RUNTIMES, runtime)
    spec = {"runtimeRef": {"name": "torch"}, "resiliencePolicy": {"maxRestarts": 1, **policy}}
    metadata = {"name": "job", "namespace": "default"}
    trainjob: JsonObject = {"apiVersion": _API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}
    await world.user.create(TRAINJOBS, trainjob)


def _running(world: World, *, attempt: int = 0) -> bool:
    """Whether all pods of an attempt run."""
    pods = [record.object for record in world.server.api.store.list(PODS)]
    number = [each["metadata"]["labels"].get("jobset.sigs.k8s.io/restart-attempt") for each in pods]
    phases = [(each.get("status") or {}).get("phase") for each in pods]
    return list(zip(number, phases, strict=True)).count((str(attempt), "Running")) == 2


async def _completes(world: World) -> None:
    await world.until(lambda: world.holds("job", "Complete"), "TrainJob job is Complete")


async def _pod_killed(world: World) -> None:
    await _submit(world)
    await _completes(world)


async def _rank_hangs(world: World) -> None:
    await _submit(world, progress={"within": "60s"}, gracePeriod="10s")
    await _completes(world)


async def _node_lost(world: World) -> None:
    for name in ("node-0", "node-1", "spare"):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": [ready]}}
        await world.user.create(NODES, node)
    await _submit(world, nodes={"lostAfter": "2m"})
    await world.until(lambda: _running(world), "the pods run")
    assert world.nodes is not None
    world.nodes.lost.add("node-1")
    await world.user.lose_node("node-1")
    await _completes(world)


async def _manager_away(world: World) -> None:
    """A rank is killed while no manager runs."""
    await _submit(world)
    await world.until(lambda: _running(world), "the pods run")
    world.wanted = 0
    for process in world.living:
        await world.stop(process)
    await world.until(lambda: _running(world, attempt=1), "the pods run again")
    world.ensure(1)
    await _completes(world)


RESILIENCE_SCENARIOS = tuple(
    Scenario(
        f"survives-{name}",
        play,
        attempts=True,
        pods={_FIRST: (PodFate(None, writes=_SECONDS), _ENDS), _SECOND: (fate, _ENDS)},
        watched=("trainjobs", "jobsets", "pods"),
    )
    for name, play, fate in (
        ("pod-killed", _pod_killed, _KILLED),
        ("node-lost", _node_lost, PodFate(None)),
        ("rank-hangs", _rank_hangs, _HANGS),
        ("manager-away", _manager_away, _KILLED),
    )
)
"""Those of the table that the manager has a part in, or is away from."""
