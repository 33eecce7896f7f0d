"""One job of `kubeflow.org/v1`, a server that answers at once, caches that show it, and the reconciler between them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any, Self, cast

from support.virtualtime import VirtualClock
from support.world import applied_by

from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, KubeError, NotFound, TransportError
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


class JobWorld:
    """The server has what was put or written; the caches show it at once, unless they lag."""

    def __init__(self, job: JsonObject, *, gang: str = "", clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
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
        self.server: dict[tuple[str, str], JsonObject] = {}
        """What the server has, by kind and name."""

        self.requests: list[str] = []
        """The writes, and what else was asked, in order."""

        self.events: list[str] = []
        self.refusals: dict[str, KubeError] = {}
        """What the server answers to a request, by the text that `requests` has of it."""

        self._lost: dict[str, bool] = {}
        """Requests whose next answer is lost, and whether the server performs them."""

        self.lagging = False
        self.planner: Executor | None = None
        self._version = 100
        self.restart()
        self.put(job)

    def restart(self) -> None:
        """Have another process reconcile, which remembers nothing."""
        decider = JobDecider(
            self.kind,
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
            self._store(obj)

    def patch_spec(self, **fields: Any) -> None:
        self._store({**self.job, "spec": {**self.job["spec"], **fields}})

    def run(self, *names: str) -> None:
        """Have the kubelet run pods; by default all."""
        for name in names or self.names("Pod"):
            self.set_phase(name, "Running")

    def set_phase(
        self, name: str, phase: str, *, exit_code: int | None = None, restarts: int = 0, deleting: bool = False
    ) -> None:
        pod = copy_tree(self.pod(name))
        container = {"name": self.kind.container_name, "restartCount": restarts, "state": {}}
        if exit_code is not None:
            container["state"] = {"terminated": {"exitCode": exit_code, "finishedAt": "2030-01-01T00:00:00Z"}}
        pod["status"] = {"phase": phase, "containerStatuses": [container]}
        if deleting:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._store(pod)

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
            self._show(obj)

    def _store(self, obj: JsonObject) -> JsonObject:
        self._version += 1
        stored: JsonObject = copy_tree(obj)
        stored["metadata"].setdefault("namespace", "team")
        stored["metadata"]["resourceVersion"] = str(self._version)
        stored["metadata"].setdefault("uid", f"uid-of-{self._version}")
        self.server[stored["kind"], stored["metadata"]["name"]] = stored
        if not self.lagging:
            self._show(stored)
        return cast("JsonObject", copy_tree(stored))

    def _show(self, obj: JsonObject) -> None:
        kind, shown = obj["kind"], copy_tree(obj)
        if kind != self.kind.kind:
            ours = strip_foreign_objects((self.kind.group, self.kind.kind))
            trim = {PODS.kind: trim_pod, SERVICES.kind: trim_service}.get(kind, ours)
            shown = trim(shown)
        if isinstance(self._by_kind[kind], UnreadStore):
            return
        self._by_kind[kind].put(shown)
        self._by_kind[kind].update_resource_version(obj["metadata"]["resourceVersion"])

    # The client and the recorder

    def event(self, regarding: JsonObject, *, type: str, reason: str, action: str, note: str) -> None:  # noqa: A002
        assert regarding["metadata"]["name"] == "demo"
        assert action
        self.events.append(f"{type} {reason}: {note}")

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> JsonObject:
        self._ask(f"get {resource.kind} {name}")
        found = self.server.get((resource.kind, name))
        if found is None:
            raise NotFound(status=404)
        assert namespace == "team"
        return cast("JsonObject", copy_tree({"metadata": found["metadata"]} if metadata_only else found))

    async def create(self, resource: Resource, obj: JsonObject, *, field_manager: str) -> JsonObject:
        assert field_manager == "trainer"
        name = obj["metadata"]["name"]
        self._ask(f"create {resource.kind} {name}")
        if (resource.kind, name) in self.server:
            message = f'{resource.plural} "{name}" already exists'
            raise AlreadyExists(status=409, reason="AlreadyExists", message=message)
        return self._store({**obj, **({"status": {"phase": "Pending"}} if resource == PODS else {})})

    async def apply(self, resource: Resource, obj: JsonObject, *, field_manager: str) -> JsonObject:
        name = obj["metadata"]["name"]
        self._ask(f"apply {resource.kind} {name}")
        old = self.server.get((resource.kind, name))
        if old is not None and obj["metadata"].get("uid") != old["metadata"]["uid"]:
            raise Conflict(status=409, reason="Conflict")
        kept = {"managedFields": [applied_by(field_manager, obj)]}
        if old is not None:
            kept["uid"] = old["metadata"]["uid"]
        return self._store({**(old or {}), **obj, "metadata": {**obj["metadata"], **kept}})

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, patch: JsonObject, *, field_manager: str
    ) -> tuple[JsonObject, str]:
        assert (resource, namespace, field_manager) == (self.resource, "team", "trainer")
        self._ask("patch status")
        old = self.server.get((resource.kind, name))
        if old is None:
            raise NotFound(status=404)
        if any(old["metadata"][field] != value for field, value in patch["metadata"].items()):
            raise Conflict(status=409, reason="Conflict")
        if self._lost.get("patch status") is False:
            self._lose("patch status")
        answer = self._store({**old, "status": _merged(old.get("status") or {}, patch["status"])})
        self._lose("patch status")
        return answer["status"], answer["metadata"]["resourceVersion"]

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        foreground: bool = False,
    ) -> JsonObject:
        self._ask(f"delete {resource.kind} {name}")
        found = self.server.get((resource.kind, name))
        if found is None:
            raise NotFound(status=404)
        seen = found["metadata"]
        expected = {"uid": uid or seen["uid"], "resourceVersion": resource_version or seen["resourceVersion"]}
        if any(seen[field] != value for field, value in expected.items()):
            raise Conflict(status=409, reason="Conflict")
        assert namespace == "team"
        if self.lagging:
            del self.server[resource.kind, name]
        else:
            self.remove(resource.kind, name)
        return {}

    def lose_answer(self, request: str, *, performed: bool) -> None:
        """Have the connection end before the next answer to a request, which the server performs or not."""
        self._lost[request] = performed

    def _lose(self, request: str) -> None:
        if self._lost.pop(request, None) is not None:
            raise TransportError("the connection was closed")

    def _ask(self, request: str) -> None:
        self.requests.append(request)
        if request in self.refusals:
            raise self.refusals[request]


def _indexed(store: Store | None = None) -> Store:
    store = Store() if store is None else store
    store.add_indexer(OWNER_INDEX, owner_values)
    return store


def _merged(old: JsonObject, patch: JsonObject) -> JsonObject:
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def requests_of(world: JobWorld, verb: str) -> Iterable[str]:
    """The requests of one verb."""
    return [each for each in world.requests if each.startswith(verb)]
