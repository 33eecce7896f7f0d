"""One job of `kubeflow.org/v1`, a server that answers at once, caches that show it, and the reconciler between them."""

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any, Self, cast

import orjson
from support.fakecluster import FakeCluster
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import TransportError
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_values, strip_foreign_objects
from trainmaster.controller.reconciling.expectations import UnreadStore
from trainmaster.controller.reconciling.jobs.decider import JobDecider
from trainmaster.controller.reconciling.jobs.observe import JobStores, OwnedKind, trim_pod, trim_service
from trainmaster.controller.reconciling.jobs.status import only_counters
from trainmaster.controller.reconciling.outcomes import Outcome
from trainmaster.controller.reconciling.reconciler import Reconciler
from trainmaster.controller.resources import job_resource, watched_resource
from trainmaster.runtime.api.constants import POD_GROUP_KIND
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.podgroup import gang_scheduler
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import Watch

KEY = "team/demo"
KINDS: dict[str, JobKind] = {kind.kind: kind for kind in load_job_kinds()}


def replicas(count: int | None = None, policy: str | None = None, *, container: str = "pytorch") -> JsonObject:
    """Replicas of one type."""
    spec: JsonObject = {"template": {"spec": {"containers": [{"name": container, "image": "image"}]}}}
    if count is not None:
        spec["replicas"] = count
    if policy is not None:
        spec["restartPolicy"] = policy
    return spec


def pytorchjob(
    *,
    master: JsonObject | None = None,
    worker: JsonObject | None = None,
    policy: JsonObject | None = None,
    uid: str = "uid-1",
) -> JsonObject:
    """The PyTorchJob `team/demo`; `policy` is its runPolicy."""
    types = {"Master": master, "Worker": worker}
    return job_object("PyTorchJob", {name: each for name, each in types.items() if each}, uid=uid, policy=policy)


def job_object(
    kind: str, types: JsonObject, *, uid: str = "uid-1", policy: JsonObject | None = None, **spec: Any
) -> JsonObject:
    """A job `team/demo` of some kind with replicas by type."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "demo", "namespace": "team", "uid": uid, "resourceVersion": "1"},
        "spec": {KINDS[kind].replica_specs_field: types, **({"runPolicy": policy} if policy else {}), **spec},
    }


def with_policy(job: JsonObject, **policy: Any) -> JsonObject:
    """A job with a resilience policy."""
    annotations = {"trainmaster.dev/resilience-policy": orjson.dumps(policy).decode()}
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


class JobWorld(FakeCluster):
    """One job, `team/demo`, with what belongs to it; the server has objects by name."""

    def __init__(self, job: JsonObject, *, gang: str = "", clock: VirtualClock | None = None) -> None:
        super().__init__(clock or VirtualClock())
        self.kind = KINDS[job["kind"]]
        self.resource = job_resource(self.kind)
        self._scheduler = gang_scheduler(gang)
        watches = list(self.kind.watches())
        if self._scheduler is not None:
            watches.append(Watch(self._scheduler.api_version, POD_GROUP_KIND, "podgroups", writes=True))
        others = {
            (each.api_version, each.kind): OwnedKind(
                watched_resource(each), _indexed(Store() if each.reads else UnreadStore()), each.creates_only
            )
            for each in watches
        }
        self.stores = JobStores(Store(), _indexed(), _indexed(), others, _indexed())
        self._by_kind = {
            self.kind.kind: self.stores.jobs,
            PODS.kind: self.stores.pods,
            SERVICES.kind: self.stores.services,
            **{kind: other.store for (_, kind), other in others.items()},
        }
        self._lost: dict[str, bool] = {}
        """Requests whose next answer is lost, and whether the server performs them."""

        self.planner: Executor | None = None
        self.restart()
        self.put(job)

    def restart(self) -> None:
        """Have another process reconcile, which remembers nothing."""
        decider = JobDecider(
            kind=self.kind,
            stores=self.stores,
            gang=self._scheduler,
            recorder=self,
            clock=self.clock,
            planner=self.planner,
        )
        self.reconciler = Reconciler(
            decider,
            client=cast("KubeClient", self),
            resource=self.resource,
            jobs=self.stores.jobs,
            stores=self.stores.written(),
            queue=WorkQueue(clock=self.clock),
            recorder=self,
            clock=self.clock,
            only_counters=only_counters,
        )

    @classmethod
    async def settled(cls, job: JsonObject, **options: Any) -> Self:
        """A world in which the job has what it wants."""
        world = cls(job, **options)
        await world.settle()
        return world

    async def reconcile(self) -> Outcome:
        return await self.reconciler.reconcile(KEY)

    async def settle(self) -> Outcome:
        """Reconcile until nothing is written any more; the outcome of the last one."""
        for _ in range(20):
            before = len(self.requests)
            outcome = await self.reconcile()
            if len(self.requests) == before:
                return outcome
        raise AssertionError(f"it does not settle: {self.requests[-10:]}")

    async def run_and_settle(self) -> Outcome:
        """Have all pods run, and reconcile."""
        self.run()
        return await self.settle()

    async def see_phase(self, name: str, phase: str, **more: Any) -> Outcome:
        """Have a pod change its phase, and reconcile."""
        self.set_phase(name, phase, **more)
        return await self.settle()

    async def edit(self, **spec: Any) -> Outcome:
        """Have the author of the job change its spec, and reconcile."""
        self.patch_spec(**spec)
        return await self.settle()

    # What is there

    @property
    def job(self) -> JsonObject:
        return self.server[self.kind.kind, "demo"]

    @property
    def status(self) -> JsonObject:
        status: JsonObject = self.job.get("status") or {}
        return status

    @property
    def conditions(self) -> list[tuple[str, str]]:
        """Types and statuses, in order."""
        return [(each["type"], each["status"]) for each in self.status.get("conditions") or []]

    @property
    def state(self) -> str:
        """What `kubectl get` shows."""
        return self.conditions[-1][0] if self.conditions else ""

    def names(self, kind: str) -> list[str]:
        return sorted(name for each, name in self.server if each == kind)

    def pod(self, name: str) -> JsonObject:
        return self.server["Pod", name]

    # What others do

    def put(self, *objects: JsonObject) -> None:
        for obj in objects:
            self.store({**obj, "metadata": {"namespace": "team", **obj["metadata"]}})

    def patch_spec(self, **fields: Any) -> None:
        self.store({**self.job, "spec": {**self.job["spec"], **fields}})

    def run(self, *names: str) -> None:
        """Have the kubelet run pods; by default all."""
        for name in names or self.names("Pod"):
            self.set_phase(name, "Running")

    def set_phase(
        self,
        name: str,
        phase: str,
        *,
        exit_code: int | None = None,
        restarts: int = 0,
        deleting: bool = False,
        said: str = "",
        at: str = "2030-01-01T00:00:00Z",
        **status: Any,
    ) -> None:
        """Have the kubelet tell of a pod; `said` are the last words of its container, which ended `at`."""
        pod = copy_tree(self.pod(name))
        container = {"name": self.kind.container_name, "restartCount": restarts, "state": {}}
        if exit_code is not None:
            container["state"] = {"terminated": {"exitCode": exit_code, "finishedAt": at, "message": said}}
        pod["status"] = {"phase": phase, "containerStatuses": [container], **status}
        if deleting:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.store(pod)

    def remove(self, kind: str, *names: str) -> None:
        for name in names:
            obj = self.server.pop((kind, name))
            self._version += 1
            self._by_kind[kind].delete(object_key(obj))
            self._by_kind[kind].update_resource_version(str(self._version))

    def catch_up(self) -> None:
        """Have the caches show what the server has."""
        self.lagging = False
        for obj in self.server.values():
            self.show(obj)

    def show(self, obj: JsonObject) -> None:
        kind, shown = obj["kind"], copy_tree(obj)
        if kind != self.kind.kind:
            ours = strip_foreign_objects((self.kind.group, self.kind.kind))
            shown = {PODS.kind: trim_pod, SERVICES.kind: trim_service}.get(kind, ours)(shown)
        if isinstance(self._by_kind[kind], UnreadStore):
            return
        self._by_kind[kind].put(shown)
        self._by_kind[kind].update_resource_version(obj["metadata"]["resourceVersion"])

    # The client and the recorder

    def event(self, regarding: JsonObject, *, note: str, **arguments: Any) -> None:
        assert regarding["metadata"]["name"] == "demo"
        assert arguments["action"]
        super().event(regarding, note=f"{arguments['type']} {arguments['reason']}: {note}")

    def key(self, namespace: str | None, name: str) -> str:
        return name

    def text(self, verb: str, resource: Resource, name: str) -> str:
        return f"{verb} {resource.kind} {name}"

    async def patch_status(self, *arguments: Any, **options: Any) -> tuple[JsonObject, str]:
        if self._lost.get("patch status") is False:
            self.requests.append("patch status")
            self._lose("patch status")
        answer = await super().patch_status(*arguments, **options)
        self._lose("patch status")
        return answer

    def lose_answer(self, request: str, *, performed: bool) -> None:
        """Have the connection end before the next answer to a request, which the server performs or not."""
        self._lost[request] = performed

    def _lose(self, request: str) -> None:
        if self._lost.pop(request, None) is not None:
            raise TransportError("the connection was closed")


def _indexed(store: Store | None = None) -> Store:
    store = Store() if store is None else store
    store.add_indexer(OWNER_INDEX, owner_values)
    return store


def requests_of(world: JobWorld, verb: str) -> Iterable[str]:
    """The requests of one verb."""
    return [each for each in world.requests if each.startswith(verb)]
