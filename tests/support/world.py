"""Caches that a test fills, a client that answers at once and notes what it is asked, the reconciler between them."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from support.fakecluster import FakeCluster
from support.objects import runtime_object, trainjob_object
from support.virtualtime import VirtualClock

from trainmaster.controller.diagnosis.diagnosis import Diagnosis
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, KubeError, ServerError
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES, Resource
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, WorkQueue
from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.drift import strip_managed_fields
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_values
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.outcomes import (
    Done,
    ExpectationsPending,
    Outcome,
    RequeueAfter,
    next_outcome,
    to_requeue,
)
from trainmaster.controller.reconciling.reconciler import Reconciler
from trainmaster.controller.reconciling.trainjobs.decider import TrainJobDecider
from trainmaster.controller.reconciling.trainjobs.observe import DeletedWorkloads
from trainmaster.controller.reconciling.trainjobs.plugin_failures import SkippedPlugins
from trainmaster.controller.reconciling.trainjobs.status import only_counters
from trainmaster.controller.resilience.monitor import Monitor
from trainmaster.controller.resilience.resilience import Resilience
from trainmaster.controller.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOBSETS,
    TRAINING_RUNTIMES,
    TRAINJOBS,
    plugin_index,
    watched_resource,
)
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.resilience import PODS_BY_JOB, job_of_pod

KEY = "team/demo"


JOBSET_COMPLETED = {
    "conditions": [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}],
    "replicatedJobsStatus": [{"name": "node", "succeeded": 1}],
}


class World(FakeCluster):
    """One TrainJob, `team/demo`, and everything around it."""

    def __init__(
        self, *plugins: Any, guard: PluginGuard | None = None, failure_policies: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(VirtualClock())
        kinds = (TRAINJOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS, JOBSETS, NAMESPACES)
        self.framework = Framework([*load_plugins(), *plugins], guard=guard, failure_policies=failure_policies)
        self._plugin_threads = PluginThreads("planner", skips=self.framework.skips)
        watches = self.framework.watches()
        theirs = [watched_resource(each) for each in watches if any(each.declared_by == by.name for by in plugins)]
        self.resources = {(kind.api_version, kind.kind): kind for kind in (*kinds, *theirs)}
        self.stores = {kind: Store() for kind in self.resources}
        self.workloads = [(each.api_version, each.kind) for each in watches if each.workload]
        for kind in [*self.workloads, *self.framework.pruned]:
            self.stores[kind].add_indexer(OWNER_INDEX, owner_values)
        self.trainjobs = self.stores[TRAINJOBS.api_version, TRAINJOBS.kind]
        self.cluster_events: list[JsonObject] = []
        """What others recorded of the JobSet."""

        self.unreadable_events: KubeError | None = None
        """What the server answers to whoever reads them, if it refuses."""

        self.pods: list[JsonObject] = []
        self.pods_version = "0"
        """As of which resource version they are read."""

        self.unreadable_pods: KubeError | None = None
        """What the server answers to whoever reads them, if it refuses."""

        self.refusal: KubeError | None = None
        """What the server answers to each apply, if it refuses."""

        self.watched_pods = Store()
        self.watched_pods.add_indexer(plugin_index(PODS_BY_JOB), job_of_pod)
        self.logs: dict[str, list[str] | KubeError] = {}
        """What pods have written, each line with its time, or what the server answers to whoever reads that."""

        self._guarded = guard is not None
        self.queue = WorkQueue(clock=self.clock)
        self.restart()

    def restart(self) -> None:
        """Have another process reconcile, which remembers nothing."""
        self.deleted_workloads = DeletedWorkloads(self.trainjobs)
        self.diagnosis_queue = WorkQueue(clock=self.clock)
        self.diagnosis = Diagnosis(
            cast("KubeClient", self),
            self.diagnosis_queue,
            trainjobs=self.trainjobs,
            jobsets=self.stores[JOBSETS.api_version, JOBSETS.kind],
            recorder=cast("EventRecorder", self),
            clock=self.clock,
        )
        stores = {kind: (self.resources[kind], store) for kind, store in self.stores.items()}
        self.monitor_queue = WorkQueue(clock=self.clock)
        self.monitor = Monitor(
            cast("KubeClient", self),
            self.monitor_queue,
            trainjobs=self.trainjobs,
            jobsets=self.stores[JOBSETS.api_version, JOBSETS.kind],
            pods=self.watched_pods,
            recorder=cast("EventRecorder", self),
            clock=self.clock,
        )
        self.resilience = Resilience(self.clock, self.trainjobs, self.monitor)
        self.decider = TrainJobDecider(
            api_reader=self,
            trainjobs=self.trainjobs,
            listers=StoreListers(stores, workloads=self.workloads),
            framework=self.framework,
            plugin_threads=self._plugin_threads if self._guarded else None,
            clock=self.clock,
            deleted_workloads=self.deleted_workloads,
            diagnosis=self.diagnosis,
            resilience=self.resilience,
            skipped_plugins=SkippedPlugins(self, self.clock),
        )
        self.reconciler = Reconciler(
            self.decider,
            client=cast("KubeClient", self),
            resource=TRAINJOBS,
            jobs=self.trainjobs,
            stores=stores,
            queue=self.queue,
            recorder=cast("EventRecorder", self),
            clock=self.clock,
            only_counters=only_counters,
            is_quiet=True,
        )
        self.diagnosis.on_finding = lambda key: self.reconciler.event_filter.add(key, None, priority=CHANGE_PRIORITY)
        self.monitor.on_violation = self.diagnosis.on_finding

    def close(self) -> None:
        """End the threads of plugins, if there were any."""
        self._plugin_threads.close()

    async def reconcile(self) -> Outcome:
        """Reconcile, and once more whenever something was found; the outcome tells when that may be, too."""
        outcome = await self.reconciler.reconcile(KEY)
        while await self.diagnose():
            outcome = await self.reconciler.reconcile(KEY)
        look = self.diagnosis.next_due(KEY)
        if look is None or not isinstance(outcome, Done | RequeueAfter):
            return outcome
        dues = getattr(outcome, "seconds", None), to_requeue(look - self.clock.monotonic())
        return next_outcome(dues, failure=None, problem=None)

    async def diagnose(self) -> bool:
        """Read what is due; tells whether something was."""
        found: list[str] = []
        reconcile_again = self.diagnosis.on_finding
        self.diagnosis.on_finding = found.append
        while (key := self.diagnosis_queue.take()) is not None:
            due = await self.diagnosis.read(key)
            if due is not None:
                self.diagnosis_queue.add_after(key, due)
            self.diagnosis_queue.done(key)
        self.diagnosis.on_finding = reconcile_again
        for key in found:
            reconcile_again(key)
        return bool(found)

    async def reconcile_after(self, seconds: float) -> Outcome:
        """Let time pass, and reconcile."""
        self.clock.step(seconds)
        return await self.reconcile()

    async def work(self) -> int:
        """Reconcile for as long as anything has the key reconciled, as the controller does; returns how often."""
        reconciled = 0
        while (key := self.queue.take()) is not None or (await self.diagnose() and (key := self.queue.take())):
            outcome = await self.reconciler.reconcile(key)
            if isinstance(outcome, RequeueAfter | ExpectationsPending):
                self.queue.add_after(key, outcome.seconds)
            self.queue.done(key)
            reconciled += 1
        return reconciled

    async def watch(self, seconds: float) -> None:
        """Let time pass, second by second, with the monitor and the reconciler at work."""
        for _ in range(round(seconds)):
            while (key := self.monitor_queue.take()) is not None:
                due = await self.monitor.look(key)
                if due is not None:
                    self.monitor_queue.add_after(key, due)
                self.monitor_queue.done(key)
            await self.work()
            self.clock.step(1)

    # What others do

    def put(self, *objects: JsonObject) -> None:
        """Have the server and the caches hold these objects, as they are."""
        for obj in objects:
            self.server[obj["kind"], object_key(obj)] = copy_tree(obj)
            self.show(obj)

    def change(self, kind: str, *, name: str = "demo", **fields: Any) -> None:
        """Have somebody else change fields of an object at its top level."""
        self.store({**self.find(kind, name), **fields})

    def remove(self, kind: str, name: str = "demo", *, unseen: bool = False) -> None:
        """Have an object vanish from the server and the caches, which may notice only afterwards."""
        obj = self.server.pop((kind, f"team/{name}"))
        self._version += 1
        store = self.stores[obj["apiVersion"], kind]
        change = store.delete(object_key(obj), last=None if unseen else obj)
        change.final_state_unknown = unseen
        if (obj["apiVersion"], kind) in self.workloads:
            self.deleted_workloads.on_workload_event(change)
        store.update_resource_version(str(self._version))
        self._delay_of(change)
        self.reconciler.event_filter.add(KEY, None, anew=True)

    def _delay_of(self, change: Delta) -> float:
        """Have the reconciler take note of a change as the manager does, of JobSets."""
        kind = (change.new or change.old or {}).get("kind")
        waits = kind == JOBSETS.kind and self.decider.defer_counters([KEY], change)
        return self.reconciler.schedule_counters(KEY) if waits else 0.0

    def show_pod(self, pod: JsonObject, *, is_gone: bool = False, initial: bool = False) -> None:
        """Have the watch of pods with a resilience policy tell of one."""
        record = pod["metadata"]["uid"], "1", b"", ()
        key = object_key(pod)
        before = self.watched_pods.get(key)
        old = record if before is not None else None
        change = Delta(key, record, None, old=pod) if is_gone else Delta(key, old, record, old=before, new=pod)
        change.initial = initial
        if is_gone:
            self.watched_pods.delete(key)
        else:
            self.watched_pods.put(copy_tree(pod))
        self.resilience.attempts.on_pod_event(change)

    def show_as(self, key: str, kind: str) -> JsonObject:
        """Have the cache show an object of ours under another name too, and return it."""
        obj = self.find(kind)
        namespace, name = key.split("/")
        obj["metadata"] |= {"namespace": namespace, "name": name}
        self.stores[obj["apiVersion"], kind].put(copy_tree(obj))
        return obj

    def find(self, kind: str, name: str = "demo") -> JsonObject:
        """Read an object as the server has it."""
        return cast("JsonObject", copy_tree(self.server[kind, f"team/{name}"]))

    def show(self, obj: JsonObject) -> None:
        """Have the cache of its kind see an object."""
        store = self.stores[obj["apiVersion"], obj["kind"]]
        change = store.put(strip_managed_fields(copy_tree(obj)))
        store.update_resource_version(obj["metadata"].get("resourceVersion") or "1")
        looked_at = obj["kind"] == TRAINJOBS.kind or (obj["apiVersion"], obj["kind"]) in self.workloads
        self.reconciler.event_filter.add(KEY, change.version, anew=not looked_at, delay=self._delay_of(change))

    @property
    def conditions(self) -> dict[str, JsonObject]:
        status = self.find("TrainJob").get("status") or {}
        return {condition.get("type", ""): condition for condition in status.get("conditions") or []}

    # The client

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        field_selector: str | None = None,
        label_selector: str | None = None,
        limit: int | None,
        continue_token: str | None = None,
    ) -> JsonObject:
        if resource.kind == "Pod":
            assert namespace == "team"
            assert limit is not None
            self.requests.append(f"list Pod {label_selector}")
            if self.unreadable_pods is not None:
                raise self.unreadable_pods
            start = int(continue_token or 0)
            more = {"continue": str(start + limit)} if start + limit < len(self.pods) else {}
            metadata = {"resourceVersion": self.pods_version, **more}
            return {"items": copy_tree(self.pods[start : start + limit]), "metadata": metadata}
        assert (resource.kind, namespace, limit) == ("Event", "team", 20)
        self.requests.append(f"list {resource.kind} {field_selector}")
        if self.unreadable_events is not None:
            raise self.unreadable_events
        return {"items": copy_tree(self.cluster_events)}

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the log of a pod, as far as its parameters are honoured that tests need."""
        pod = path.split("/")[-2]
        self.requests.append(f"log {pod} {' '.join(f'{name}={params[name]}' for name in sorted(params))}")
        log = self.logs.get(pod, [])
        if isinstance(log, KubeError):
            raise log
        lines = [line for line in log if line[:19] >= params.get("sinceTime", "")[:19]]
        lines = lines[-int(params["tailLines"]) :] if "tailLines" in params else lines
        content = "".join(f"{line}\n" for line in lines).encode()[: int(params["limitBytes"])]

        async def chunks() -> AsyncIterator[bytes]:
            yield content

        yield chunks()

    def _ask(self, request: str) -> None:
        super()._ask(request)
        if self.refusal is not None and request.startswith("apply "):
            raise self.refusal


def refused(message: str) -> ApiError:
    """What a server says that fails."""
    return ServerError(status=500, reason="InternalError", message=message)


def world_with(*objects: JsonObject, **spec: Any) -> World:
    """A world with a TrainJob, its runtime, and these objects."""
    world = World()
    world.put(trainjob_object(**spec), runtime_object(), *objects)
    return world


def jobset_of(owner: str) -> JsonObject:
    """The JobSet of the TrainJob `demo` with the UID `owner`."""
    reference = {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "name": "demo", "uid": owner}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": "JobSet",
        "metadata": {
            "name": "demo",
            "namespace": "team",
            "uid": f"JobSet-of-{owner}",
            "resourceVersion": "90",
            "ownerReferences": [{**reference, "controller": True}],
        },
    }


@contextmanager
def guarded_world(plugin: Any) -> Iterator[World]:
    """A world with a plugin of somebody else, and a TrainJob."""
    world = World(plugin, guard=PluginGuard(time_limit=60.0, failures=99, period=60.0))
    world.put(trainjob_object(), runtime_object())
    try:
        yield world
    finally:
        world.close()
