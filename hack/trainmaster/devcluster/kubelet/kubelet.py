"""The kubelet: watches the pods that are bound to its nodes and runs each of them; keeps the Node objects Ready.

Guarantees:
- A pod is run by one worker at a time, found by its uid: a pod that replaces another of its name is a different pod.
- A failing pod, also one that trips over a mistake in this code, affects no other pod.
- When `run` ends, for whatever reason, all processes of all pods have ended.
- What a deleted pod left on disk is removed, also if it was deleted while the kubelet was not running.
- Of a node that fails nothing runs any more, and nothing is told, until it is back: then it is as after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook import Address
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WatchEvent, WriteOptions
from trainmaster.devcluster.apiserver.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS, GroupResource
from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container_logs import PodLogs
from trainmaster.devcluster.kubelet.directories import RootDirectory
from trainmaster.devcluster.kubelet.execution import ContainerExecution
from trainmaster.devcluster.kubelet.former_pods import FormerPods
from trainmaster.devcluster.kubelet.gpus import DeviceManager, find_gpus
from trainmaster.devcluster.kubelet.network.addresses import PortTable, job_key
from trainmaster.devcluster.kubelet.network.hosts import HostsTable
from trainmaster.devcluster.kubelet.network.mode import REWRITING, Networking
from trainmaster.devcluster.kubelet.network.service_names import ServiceNames
from trainmaster.devcluster.kubelet.node_status import host_capacity, is_ready, node_object, with_readiness
from trainmaster.devcluster.kubelet.pod_lifecycle import FINAL_PHASES
from trainmaster.devcluster.kubelet.pod_worker import FIELD_MANAGER, Dependencies, PodWorker
from trainmaster.devcluster.kubelet.supervisor_client import Report, SupervisorClient
from trainmaster.devcluster.kubelet.virtual_environment import BaseEnvironment
from trainmaster.devcluster.kubelet.volumes import claim_directory, provisioning_problem
from trainmaster.devcluster.settings import FAILED_ANNOTATION, KubeletSettings
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)

_RETRY_DELAY = 1.0
_HEARTBEAT_INTERVAL = 60.0
"""Seconds between checks that the Node objects exist and say Ready."""


class Kubelet:
    """The node agent of the node `node_name`, and of others that are called like it but for a number.

    `logs` reads the logs of its pods; without `tokens` no pod gets a token of its account.
    """

    def __init__(
        self,
        api: Api,
        *,
        node_name: str,
        root_dir: Path,
        server_url: str,
        networking: Networking = REWRITING,
        clock: Callable[[], datetime],
        settings: KubeletSettings | None = None,
        tokens: ServiceAccountTokens | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._settings = settings or KubeletSettings()
        self._node_name = node_name
        self._root = RootDirectory(root_dir)
        self.gpus = find_gpus(self._settings.fake_gpus)
        names = [node_name, *(f"{node_name}-{number}" for number in range(2, self._settings.nodes + 1))]
        shares = host_capacity(root_dir, gpus=len(self.gpus.ids), nodes=len(names))
        capacity = dict(zip(names, shares, strict=True))
        self._nodes = {name: node_object(name, capacity=share) for name, share in capacity.items()}
        self._failed: set[str] = set()
        """Nodes that have failed, also those whose Node has been deleted since."""
        self._supervisor = SupervisorClient(on_report=self._report, clock=clock)
        self._events = EventBroadcaster(api, FIELD_MANAGER)
        self._volumes = EventBroadcaster(api, "persistentvolume-controller")
        self._dependencies = Dependencies(
            api=api,
            settings=self._settings,
            root=self._root,
            supervisor=self._supervisor,
            networking=networking,
            hosts=HostsTable(self._root.hosts, lookup=self._lookup),
            ports=PortTable(self._root.ports),
            events=self._events,
            devices=DeviceManager(self.gpus, cluster=root_dir.parent),
            python=BaseEnvironment.of_this_process(self._root.python),
            cluster=str(root_dir.absolute()),
            capacity=capacity,
            server_url=server_url,
            clock=clock,
            tokens=tokens,
        )
        self._service_names = ServiceNames(api, self._dependencies.hosts, cluster=self.cluster)
        self._workers: dict[str, PodWorker] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        """The tasks of the workers."""
        self._jobs: dict[str, str] = {}
        """The job of each pod on this node, by uid."""
        self._former = FormerPods(api, self._root)
        self.logs = PodLogs(self._former, is_active=self._supervisor.is_active, clock=clock)
        self.routes = self._former.routes()

    @property
    def cluster(self) -> str:
        """What tells addresses of this cluster from those of others on this machine."""
        return self._dependencies.cluster

    @property
    def supervisor_pid(self) -> int | None:
        """The process id of the supervisor, while it runs."""
        return self._supervisor.pid

    async def run(self) -> None:
        """Be the node until cancelled."""
        self._root.prepare()
        self._dependencies.python.refresh()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._supervisor.run(), name="kubelet-supervisor")
                tasks.create_task(self._events.run(), name="kubelet-events")
                tasks.create_task(self._volumes.run(), name="kubelet-volume-events")
                tasks.create_task(self._follow(NODES, self._on_node, tasks), name="kubelet-nodes")
                tasks.create_task(self._keep_nodes(), name="kubelet-node")
                tasks.create_task(self._service_names.run(), name="kubelet-service-names")
                tasks.create_task(self._follow(PERSISTENT_VOLUME_CLAIMS, self._on_claim, tasks), name="kubelet-claims")
                tasks.create_task(self._follow(PODS, self._on_pod, tasks), name="kubelet-pods")
        finally:
            self._root.remove_temporary()

    def _lookup(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        return self._dependencies.lookup(resource, namespace, name)

    def locate(self, namespace: str, name: str, address: Address) -> Address:
        """Tell where a pod of this node really listens that says it listens at an address."""
        pod = self._lookup(PODS, namespace, name)
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return address
        dependencies = self._dependencies
        port = address.port
        if not dependencies.isolates(pod):
            port = dependencies.ports.local(job_key(pod), port)
        return Address(dependencies.address_of(pod), port)

    def execute(
        self, pod: JsonObject, container: str, argv: list[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[ContainerExecution]:
        """Run a program in a container of this node while the block runs.

        Raises:
            StatusError: The container does not run.
        """
        try:
            return self._workers[pod["metadata"]["uid"]].execute(container, argv, stdin=stdin, tty=tty)
        except LookupError:
            raise errors.bad_request(f"container {container} of pod {pod['metadata']['name']} does not run") from None

    # Watching

    async def _follow(
        self,
        resource: GroupResource,
        handle: Callable[[WatchEvent, asyncio.TaskGroup], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Handle every change of a resource, starting over when the history does not reach back far enough."""
        while True:
            records, revision = self._api.list(resource)
            if resource == PODS:
                self._forget_all_but({record.object["metadata"]["uid"] for record in records}, tasks)
            for record in records:
                handle(WatchEvent("ADDED", record.object, record.revision), tasks)
            if resource == PODS:
                self._keep_jobs()
            try:
                async with self._api.watch(resource, since=revision) as changes:
                    async for change in changes:
                        handle(change, tasks)
            except StatusError as error:
                if error.code != 410:
                    raise
            await asyncio.sleep(_RETRY_DELAY)

    def _on_node(self, event: WatchEvent, tasks: asyncio.TaskGroup) -> None:
        """Have a node fail, or come back."""
        metadata = event.object["metadata"] if event.object else {}
        name = metadata.get("name")
        if name not in self._nodes:
            return
        if event.type == "DELETED":
            tasks.create_task(self._sync_node(name))
        elif FAILED_ANNOTATION in (metadata.get("annotations") or ()):
            self._failed.add(name)
            for uid, worker in list(self._workers.items()):
                if worker.node == name:
                    worker.lose_power()
                    self._running.pop(uid).cancel()
                    del self._workers[uid]
        elif name in self._failed:
            self._failed.discard(name)
            tasks.create_task(self._sync_node(name))
            for record in self._api.list(PODS)[0]:
                self._on_pod(WatchEvent("ADDED", record.object, record.revision), tasks)

    def _on_pod(self, event: WatchEvent, tasks: asyncio.TaskGroup) -> None:
        pod = event.object
        if pod is None or pod["spec"].get("nodeName") not in self._nodes:
            return
        uid = pod["metadata"]["uid"]
        if event.type == "DELETED":
            self._former.observe(pod)
            self._forget(uid, tasks)
            return
        self._jobs[uid] = job_key(pod)
        self._former.observe(pod)
        if worker := self._workers.get(uid):
            worker.update(pod)
        elif pod["spec"]["nodeName"] not in self._failed and _has_work(pod):
            self._workers[uid] = worker = PodWorker(pod, self._dependencies)
            self._running[uid] = tasks.create_task(self._run(worker), name=f"pod-{pod['metadata']['name']}")

    async def _run(self, worker: PodWorker) -> None:
        while not worker.is_done:  # its deletion may be asked for while files are removed
            try:
                await worker.run()
            except Exception:  # whatever it is, it must not stop the other pods
                _log.exception("running pod %s/%s failed; trying again", worker.namespace, worker.name)
                await asyncio.sleep(_RETRY_DELAY)
                continue
            self._dependencies.hosts.forget(worker.uid)
            if worker.uid in self._jobs:  # its logs are read on; what it installed may be several GB
                await _remove(self._root.pod(worker.uid).drop_virtual_environments)
        # Not before: who finds none removes the directory, which one thread does.
        del self._workers[worker.uid], self._running[worker.uid]
        if worker.uid not in self._jobs:
            await _remove(self._former.remover(worker.uid))

    def _forget(self, uid: str, tasks: asyncio.TaskGroup) -> None:
        """The pod is gone: end what runs, then remove what it left."""
        job = self._jobs.pop(uid, None)
        if job is not None and job not in self._jobs.values():
            self._keep_jobs()
        if worker := self._workers.get(uid):
            worker.removed()
        else:
            tasks.create_task(_remove(self._former.remover(uid)))

    def _keep_jobs(self) -> None:
        """Forget the ports and hosts files of jobs that have no pod here any more."""
        self._dependencies.ports.keep(self._jobs.values())
        self._dependencies.hosts.keep(self._jobs.values())

    def _forget_all_but(self, uids: set[str], tasks: asyncio.TaskGroup) -> None:
        for uid in self._jobs.keys() - uids:
            self._forget(uid, tasks)
        self._root.remove_all_but(uids | self._workers.keys())

    def _on_claim(self, event: WatchEvent, tasks: asyncio.TaskGroup) -> None:
        claim = event.object
        if claim is None:
            return
        if event.type == "DELETED":
            directory = claim_directory(self._root.claims, claim)
            if directory.is_dir():
                # Out of the way at once, for a claim of the same name may follow.
                trash = directory.with_name(f".{claim['metadata']['uid']}")
                directory.rename(trash)
                tasks.create_task(asyncio.to_thread(shutil.rmtree, trash, ignore_errors=True))
        elif (claim.get("status") or {}).get("phase") != "Bound":
            if problem := provisioning_problem(claim):
                self._volumes.warning(claim, *problem)
            else:
                tasks.create_task(self._bind(claim))

    # Writing

    async def _bind(self, claim: JsonObject) -> None:
        """Bind a claim to a directory of the host."""
        spec = claim["spec"]
        status = {
            "phase": "Bound",
            "accessModes": spec.get("accessModes") or [],
            "capacity": (spec.get("resources") or {}).get("requests") or {},
        }
        bound = {**claim, "status": {**(claim.get("status") or {}), **status}}
        while True:
            if await self._update(PERSISTENT_VOLUME_CLAIMS, bound):
                return
            await asyncio.sleep(_RETRY_DELAY)

    async def _keep_nodes(self) -> None:
        """Register the nodes, and again if somebody deletes them; those that are no more are removed."""
        for record in self._api.list(NODES)[0]:
            name = record.object["metadata"]["name"]
            if name not in self._nodes and re.fullmatch(rf"{re.escape(self._node_name)}-\d+", name):
                await self._api.delete(NODES, None, name)
        while True:
            done = [await self._sync_node(name) for name in self._nodes]
            self._former.remove_orphans()
            await asyncio.sleep(_HEARTBEAT_INTERVAL if all(done) else _RETRY_DELAY)

    async def _sync_node(self, name: str) -> bool:
        """Bring a Node up to date; False: the API cannot take it now."""
        if name in self._failed:
            return True
        wanted, live = self._nodes[name], self._dependencies.lookup(NODES, "", name)
        if live is None:
            try:
                live = await self._api.create(NODES, wanted, options=WriteOptions(field_manager=FIELD_MANAGER))
            except StatusError as error:
                if error.code < 500:  # of a full disk the store tells, once
                    _log.warning("the node cannot be registered; trying again: %s", error)
                return False
        if is_ready(live, wanted=wanted):
            return True
        return await self._update(NODES, with_readiness(live, wanted=wanted, now=self._clock()))

    async def _update(self, resource: GroupResource, obj: JsonObject) -> bool:
        """Write a status; whoever was faster causes another look at the object anyway.

        Returns:
            False if the API cannot take it now.
        """
        try:
            await self._api.update(
                resource, obj, subresource="status", options=WriteOptions(field_manager=FIELD_MANAGER)
            )
        except StatusError as error:
            if error.code >= 500:
                return False
            if error.code not in {404, 409}:
                _log.warning("the status of %s %s is not written: %s", resource, obj["metadata"]["name"], error)
        return True

    def _report(self, report: Report) -> None:
        uid, container, attempt = report.identity.split("/")
        if worker := self._workers.get(uid):
            worker.report(container, int(attempt), report)


def _has_work(pod: JsonObject) -> bool:
    """Say whether a pod without a worker needs one: it may run, or its deletion waits for the kubelet."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        return bool(metadata.get("deletionGracePeriodSeconds") != 0)
    return (pod.get("status") or {}).get("phase") not in FINAL_PHASES


async def _remove(remove: Callable[[], None]) -> None:
    """Remove files of a pod in a thread; what prevents it, such as a tree without end, must not stop the other pods."""
    try:
        await asyncio.to_thread(remove)
    except Exception:
        _log.exception("cannot remove what a pod left")
