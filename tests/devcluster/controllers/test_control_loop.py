"""The loop of controllers: what it promises whatever they do, also with writes that fail and restarts in between."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator

import pytest
from structlog.testing import capture_logs
from support.commands import TIMEOUT
from support.devcluster.stepper import Stepper
from support.disk import BrittleStore
from support.workloads import add_node

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, CRDS, JOBS, JOBSETS, PODS, SECRETS, SERVICES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, ExponentialBackoff
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject, copy_tree

BACKOFF = ExponentialBackoff(base=1, cap=4)


def key(name: str) -> ObjectKey:
    return ObjectKey(CONFIGMAPS, "default", name)


class Recorder:
    """A controller that notes what it is asked to look at."""

    def __init__(
        self, cluster: Stepper, reconcile: Callable[[ObjectKey], Awaitable[float | None]] | None = None
    ) -> None:
        self.seen: list[str] = []
        self._inner = reconcile
        self.loop = ControlLoop("recorder", self.reconcile, api=cluster.api, backoff=BACKOFF)
        self.loop.watch_keys(CONFIGMAPS)

    @property
    def loops(self) -> tuple[ControlLoop, ...]:
        return (self.loop,)

    async def run(self) -> None:
        await self.loop.run()

    async def reconcile(self, key: ObjectKey) -> float | None:
        self.seen.append(key.name)
        return await self._inner(key) if self._inner else None


async def make(cluster: Stepper, name: str) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await cluster.api.create(CONFIGMAPS, obj, namespace="default")


async def test_existing_objects_are_offered_at_the_start(cluster: Stepper) -> None:
    await make(cluster, "old")
    recorder = Recorder(cluster)
    cluster.start(recorder)
    await make(cluster, "new")
    await cluster.settle()
    assert recorder.seen == ["old", "new"]


async def test_many_events_are_one_reconcile(cluster: Stepper) -> None:
    recorder = Recorder(cluster)
    for _ in range(5):
        recorder.loop.add(key("a"))
    recorder.loop.add(key("b"))
    await recorder.loop.run_ready()
    assert recorder.seen == ["a", "b"]


async def test_an_event_during_a_reconcile_causes_one_more(cluster: Stepper) -> None:
    """Otherwise the change that arrives just then would be missed."""

    async def touch(touched: ObjectKey) -> None:
        if len(recorder.seen) == 1:
            recorder.loop.add(touched)
            recorder.loop.add(touched)

    recorder = Recorder(cluster, touch)
    recorder.loop.add(key("a"))
    await recorder.loop.run_ready()
    assert recorder.seen == ["a", "a"]


async def test_an_error_is_logged_and_retried_with_doubling_pauses(cluster: Stepper) -> None:
    async def fail(_: ObjectKey) -> None:
        raise RuntimeError("boom")

    recorder = Recorder(cluster, fail)
    cluster.start(recorder)
    with capture_logs() as logs:
        recorder.loop.add(key("a"))
        await cluster.settle()
        pauses = []
        for _ in range(4):
            due = recorder.loop.next_due
            assert due is not None
            pauses.append((due - cluster.now).total_seconds())
            await cluster.advance(pauses[-1])
    assert pauses == [1, 2, 4, 4]
    assert logs[0]["log_level"] == "error"
    assert logs[0]["event"] == "reconcile failed"


async def test_one_failing_key_does_not_hold_up_the_others(cluster: Stepper) -> None:
    async def fail_a(failing: ObjectKey) -> None:
        if failing.name == "a":
            raise RuntimeError("boom")

    recorder = Recorder(cluster, fail_a)
    with capture_logs():
        recorder.loop.add(key("a"))
        recorder.loop.add(key("b"))
        await recorder.loop.run_ready()
    assert recorder.seen == ["a", "b"]


async def test_a_conflict_is_no_news(cluster: Stepper) -> None:
    async def conflict(_: ObjectKey) -> None:
        if len(recorder.seen) == 1:
            raise StatusError(409, "Conflict", "modified")

    recorder = Recorder(cluster, conflict)
    cluster.start(recorder)
    with capture_logs() as logs:
        recorder.loop.add(key("a"))
        await cluster.advance(1)
    assert recorder.seen == ["a", "a"]
    assert [entry["log_level"] for entry in logs] == ["debug"]
    assert recorder.loop.next_due is None


async def test_a_delayed_key_becomes_due_at_its_time_unless_an_event_overtakes_it(cluster: Stepper) -> None:
    recorder = Recorder(cluster)
    cluster.start(recorder)
    recorder.loop.add_after(key("a"), 10)
    recorder.loop.add_after(key("a"), 20)
    await cluster.advance(9)
    assert recorder.seen == []
    await cluster.advance(1)
    assert recorder.seen == ["a"]
    await cluster.advance(30)
    assert recorder.seen == ["a"], "the later of two delays is dropped"
    recorder.loop.add_after(key("b"), 10)
    recorder.loop.add(key("b"))
    await recorder.loop.run_ready()
    assert recorder.seen == ["a", "b"]
    assert recorder.loop.next_due is None


async def test_run_works_until_cancelled_and_lets_go_of_the_store(cluster: Stepper) -> None:
    reconciled = asyncio.Event()

    async def note(_: ObjectKey) -> None:
        reconciled.set()

    recorder = Recorder(cluster, note)
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    await make(cluster, "a")
    async with asyncio.timeout(TIMEOUT):
        await reconciled.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await make(cluster, "b")
    assert await recorder.loop.run_ready() == 0


@pytest.fixture
def quiet() -> Iterator[None]:
    """Hundreds of failures are logged, and all of them are meant."""
    with capture_logs():
        yield


def manifest() -> JsonObject:
    pod: JsonObject = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 1, "template": {"spec": pod}}
    node = {"name": "node", "replicas": 2, "template": {"spec": copy_tree(job)}}
    node["dependsOn"] = [{"name": "init", "status": "Complete"}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {
            "replicatedJobs": [{"name": "init", "replicas": 1, "template": {"spec": copy_tree(job)}}, node],
            "failurePolicy": {"maxRestarts": 2},
        },
    }


def start(cluster: Stepper) -> None:
    for controller in (GarbageCollector, JobController, JobSetController, Scheduler):
        cluster.start(controller(cluster.api))


async def unsteady(cluster: Stepper, store: BrittleStore) -> None:
    """Let a minute pass in which much goes wrong, then one in which nothing does."""
    store.failure_rate = 0.3
    for _ in range(3):
        await cluster.advance(20)
        cluster.stop()
        start(cluster)
    store.failure_rate = 0.0
    for pod in cluster.objects(PODS):
        if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
            await cluster.end_pod(pod)
    await cluster.advance(60)


async def end_pods(cluster: Stepper, store: BrittleStore, job: str, phase: str, *, limit: int | None = None) -> None:
    pods = [
        pod
        for pod in cluster.objects(PODS)
        if pod["metadata"]["labels"]["job-name"] == job and pod["status"]["phase"] == "Pending"
    ]
    assert pods, f"{job} has no pods"
    for pod in pods[:limit]:
        cluster.stop()  # so that the change is not dealt with before things begin to fail
        await cluster.set_pod(pod, phase)
        start(cluster)
        await unsteady(cluster, store)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", range(5))
async def test_the_end_is_the_same_whatever_fails_on_the_way(seed: int, jobset_definition: JsonObject) -> None:
    store = BrittleStore(random.Random(seed))
    cluster = Stepper(store=store)
    await cluster.namespace("default")
    await cluster.api.create(CRDS, jobset_definition)
    await add_node(cluster, "n", {"cpu": "64"})
    start(cluster)
    await cluster.api.create(JOBSETS, manifest(), namespace="default")
    await unsteady(cluster, store)

    await end_pods(cluster, store, "js-init-0", "Failed", limit=1)
    assert cluster.api.get(JOBS, "default", "js-init-0")["status"]["failed"] == 1
    await end_pods(cluster, store, "js-init-0", "Succeeded")
    assert [job["metadata"]["name"] for job in cluster.objects(JOBS)] == ["js-init-0", "js-node-0", "js-node-1"]

    await end_pods(cluster, store, "js-node-1", "Failed")
    jobset = cluster.api.get(JOBSETS, "default", "js")
    assert (jobset["status"]["restarts"], jobset["status"]["restartsCountTowardsMax"]) == (1, 1)

    for job in ("js-init-0", "js-node-0", "js-node-1"):
        await end_pods(cluster, store, job, "Succeeded")
    jobset = cluster.api.get(JOBSETS, "default", "js")
    assert jobset["status"]["terminalState"] == "Completed"
    assert jobset["status"]["restarts"] == 1
    assert [job["status"].get("failed", 0) for job in cluster.objects(JOBS)] == [0, 0, 0]

    cluster.stop()
    await cluster.delete(JOBSETS, "js", propagation="Foreground")
    start(cluster)
    await unsteady(cluster, store)
    assert (cluster.objects(JOBS), cluster.objects(PODS), cluster.objects(SERVICES)) == ([], [], [])


@pytest.mark.usefixtures("quiet")
async def test_a_collector_finds_what_was_deleted_before_it_started(cluster: Stepper) -> None:
    root = await cluster.api.create(CONFIGMAPS, {"metadata": {"name": "root"}}, namespace="default")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
    child = {"metadata": {"name": "child", "ownerReferences": [owner]}}
    await cluster.api.create(SECRETS, child, namespace="default")
    await cluster.api.delete(CONFIGMAPS, "default", "root")
    cluster.start(GarbageCollector(cluster.api))
    await cluster.settle()
    assert cluster.objects(SECRETS) == []
