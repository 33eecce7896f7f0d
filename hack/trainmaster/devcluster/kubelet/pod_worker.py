"""The pod worker: carries out what the lifecycle of its pod decides and keeps the status in the API up to date.

The lifecycle is pure; this module does its I/O. Observations (reports of processes, changes of the pod) arrive
synchronously and wake the worker, which then syncs: it computes the actions, performs them and updates the status.
Status writes that pile up while one is under way become one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.resources import PODS, SECRETS, GroupResource
from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container import (
    LOST_REASON,
    OOM_KILLED,
    CreateContainerError,
    PodRejectedError,
    Termination,
)
from trainmaster.devcluster.kubelet.container_config import (
    ContainerConfig,
    command_of,
    generate_container_config,
    start_error,
)
from trainmaster.devcluster.kubelet.container_logs import termination_message
from trainmaster.devcluster.kubelet.directories import RootDirectory
from trainmaster.devcluster.kubelet.environment import PodInfo
from trainmaster.devcluster.kubelet.execution import ContainerExecution
from trainmaster.devcluster.kubelet.gpus import DeviceManager
from trainmaster.devcluster.kubelet.image_manager import ImageManager, is_unreachable
from trainmaster.devcluster.kubelet.network.addresses import PortTable, has_own_ports, job_key, pod_address
from trainmaster.devcluster.kubelet.network.hosts import HostsTable
from trainmaster.devcluster.kubelet.network.mode import Networking
from trainmaster.devcluster.kubelet.network.rewriter import LOCAL_ADDRESS, Rewriter, job_ports, pod_names
from trainmaster.devcluster.kubelet.pod_lifecycle import FINAL_PHASES, PodActions, PodLifecycle
from trainmaster.devcluster.kubelet.pod_status import PodEvents, container_identity, pod_status
from trainmaster.devcluster.kubelet.prober import ProbeManager, validate_probes
from trainmaster.devcluster.kubelet.supervisor_client import Exited, Report, Started, SupervisorClient, Unstartable
from trainmaster.devcluster.kubelet.virtual_environment import BaseEnvironment
from trainmaster.devcluster.kubelet.volumes import Namespaces, VolumeManager
from trainmaster.devcluster.settings import KubeletSettings
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)

FIELD_MANAGER = "kubelet"

_ANSWER_WINDOW = 1.0
"""How long a status write waits for the supervisor's answer to a start; it takes milliseconds."""

_REMOVAL_TIME = 0.5
"""How long a pod whose containers kept failing can be read after its end, and any other after its start, in seconds.

A real kubelet takes a second or more. What a pod has printed is gone with it, which may be stopped as soon as it has
started, because another pod of its job failed.
"""

_MERGE_WINDOW = 0.02
"""How long the news that a container runs waits for the news that it has ended: short containers cost one write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What the workers of all pods of the node share."""

    api: Api
    settings: KubeletSettings
    root: RootDirectory
    supervisor: SupervisorClient
    networking: Networking
    hosts: HostsTable
    ports: PortTable
    events: EventBroadcaster
    devices: DeviceManager
    python: BaseEnvironment
    cluster: str
    """Tells addresses of this cluster from those of others on this machine."""

    capacity: dict[str, dict[str, str]]
    """By name of the node."""

    server_url: str
    clock: Callable[[], datetime]
    tokens: ServiceAccountTokens | None

    def isolates(self, pod: JsonObject) -> bool:
        """Say whether a pod has its ports to itself, at its own address."""
        return self.networking.own_addresses and has_own_ports(pod)

    def pod_ip(self, pod: JsonObject) -> str:
        """Give the address that the status of a pod shows."""
        return pod_address(pod, cluster=self.cluster)

    def address_of(self, pod: JsonObject) -> str:
        """Give the address at which the processes of a pod are reached."""
        return self.pod_ip(pod) if self.networking.mode == "namespaces" else LOCAL_ADDRESS

    def lookup(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        """Find an object, or None."""
        try:
            return self.api.get(resource, namespace, name)
        except StatusError as error:
            if error.code == 404:
                return None
            raise


class PodWorker:
    """One pod on this node, from its binding to its end."""

    def __init__(self, pod: JsonObject, dependencies: Dependencies) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        self.uid: str = metadata["uid"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self._pod = pod
        self._dependencies = dependencies
        self._lifecycle = PodLifecycle(pod, now=dependencies.clock(), settings=dependencies.settings)
        self._containers: dict[str, JsonObject] = {
            entry["name"]: entry for entry in (*(spec.get("initContainers") or ()), *spec["containers"])
        }
        self.node: str = spec["nodeName"]
        capacity = dependencies.capacity[self.node]
        self._pod_info = PodInfo(pod=pod, pod_ip=dependencies.pod_ip(pod), capacity=capacity)
        self._files = dependencies.root.pod(self.uid)
        self._images = ImageManager(backoff=dependencies.settings.restart_backoff, clock=dependencies.clock)
        self._events = PodEvents(pod, dependencies.events)
        self._wake = asyncio.Event()
        self._probe_manager = ProbeManager(
            pod,
            self._lifecycle,
            supervisor=dependencies.supervisor,
            events=dependencies.events,
            address=dependencies.address_of(pod),
            clock=dependencies.clock,
            wake=self._wake.set,
        )
        self._configs: dict[str, ContainerConfig] = {}
        self._rewriter: Rewriter | None = None
        self._namespaces: Namespaces | None = None
        self._volume_manager: VolumeManager | None = None
        self._volumes: dict[str, Path] = {}
        self._gone = False
        self._done_as = ""
        self._tasks: asyncio.TaskGroup | None = None
        self.update(pod)

    # Observations

    def update(self, pod: JsonObject) -> None:
        """Take note of a new version of the pod.

        Only its deletion, containers for debugging and a failure that somebody else declared change anything.
        """
        self._pod = pod
        status = pod.get("status") or {}
        if status.get("phase") == "Failed" and self._lifecycle.phase not in FINAL_PHASES:
            self._lifecycle.fail(status.get("reason", ""), status.get("message", ""))
            self._wake.set()
        shown = pod.get("status", {}).get("ephemeralContainerStatuses") or ()
        if len(pod["spec"].get("ephemeralContainers") or ()) != len(shown):
            self._wake.set()
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self._lifecycle.delete(grace=30 if grace is None else grace, now=self._dependencies.clock())
            self._wake.set()

    def lose_power(self) -> None:
        """End all processes at once; the caller cancels `run`, so that nobody hears of it."""
        for name, container in self._lifecycle.containers.items():
            if container.active:
                self._dependencies.supervisor.kill(self._identity(name))
                self._dependencies.devices.release(self._identity(name))

    def removed(self) -> None:
        """The pod is no longer in the API: end its processes without grace."""
        if self._gone:
            return  # nothing new, and every status write that finds no pod would otherwise cause the next one
        self._gone = True
        self._lifecycle.delete(grace=0, now=self._dependencies.clock())
        self._wake.set()

    def report(self, container: str, attempt: int, report: Report) -> None:
        """Take note of what happened to a process."""
        known = self._lifecycle.containers.get(container)
        if known is None or known.restarts != attempt or not known.active:
            return
        if isinstance(report, Started):
            self._probe_manager.started(container, self._configs[container], pid=report.pid, at=report.at)
        else:
            self._probe_manager.exited(container)
            self._dependencies.devices.release(report.identity)
            self._lifecycle.exited(container, self._termination(container, attempt, report))
        self._wake.set()

    def execute(
        self, container: str, argv: list[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[ContainerExecution]:
        """Run a program in a container while the block runs; raises `LookupError` if the container does not run."""
        return self._probe_manager.execute(container, argv, stdin=stdin, tty=tty)

    # The loop

    async def run(self) -> None:
        """Run the pod until no process is left and none will come, and the API knows it."""
        async with asyncio.TaskGroup() as tasks:
            self._probe_manager.start(tasks)
            self._tasks = tasks
            await self._run()
            self._probe_manager.stop()
        self._done_as = "deleted" if self._lifecycle.deleting else "ended"
        if self._lifecycle.deleting and not self._gone:
            await self._linger()
            await self._delete()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for the pod: it was run, and is deleted if that was asked for."""
        return self._done_as == ("deleted" if self._lifecycle.deleting else "ended")

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            actions, started = self._sync()
            if started:
                await self._settle()
            finished = self._lifecycle.finished
            told = self._gone or await self._update_status()
            if finished and told:
                break
            wake_at = self._refresh(actions.wake_at)
            await self._sleep(wake_at if told else min(filter(None, (self._retry_at(), wake_at))))

    def _sync(self) -> tuple[PodActions, bool]:
        """Perform the actions that the lifecycle computes until there are no new ones."""
        started = False
        self._probe_manager.sync()
        while True:
            actions = self._lifecycle.compute_actions(self._dependencies.clock())
            for name in actions.start:
                started |= self._start_container(name)
            for name in actions.terminate:
                self._probe_manager.terminate(name, self._identity(name))
            for name in actions.kill:
                self._dependencies.supervisor.kill(self._identity(name))
            if not actions.start:
                for container in self._lifecycle.containers.values():
                    if container.state == "waiting" and container.reason == "CrashLoopBackOff":
                        self._events.restart_waits(container)
                return actions, started

    def _start_container(self, name: str) -> bool:
        container, attempt = self._containers[name], self._lifecycle.containers[name].restarts
        identity, dependencies = self._identity(name), self._dependencies
        try:
            rewriter = self._prepare()
            self._images.ensure_image_exists(container.get("image") or "")
            config = generate_container_config(
                container,
                self._pod_info,
                identity=identity,
                attempt=attempt,
                files=self._files,
                volumes=self._volumes,
                rewriter=rewriter,
                server_url=dependencies.server_url,
                lookup=dependencies.lookup,
                python=dependencies.python,
                devices=dependencies.devices.allocate(identity, container),
                entrypoints=dependencies.settings.entrypoints,
                namespaces=self._namespaces,
                address=self._pod_info.pod_ip if dependencies.isolates(self._pod) else None,
            )
        except CreateContainerError as problem:
            self._events.start_failed(name, problem)
            self._lifecycle.deferred(name, reason=problem.reason, message=problem.message, now=dependencies.clock())
        except PodRejectedError as problem:
            self._events.start_failed(name, problem)
            if self._lifecycle.always_restarts:  # a ReplicaSet replaces a failed pod at once: pods without end
                now = dependencies.clock()
                self._lifecycle.deferred(name, reason=problem.reason, message=problem.message, now=now)
            else:
                self._lifecycle.fail(problem.reason, problem.message, container=name)
        except OSError as problem:  # a full disk, for instance
            self._lifecycle.deferred(
                name, reason="CreateContainerError", message=str(problem), now=dependencies.clock()
            )
        except Exception as problem:  # a mistake in this code must fail the pod, not leave it between two states
            _log.exception("cannot start container %s of pod %s/%s", name, self.namespace, self.name)
            self._lifecycle.fail("InternalError", f"container {name!r} cannot be started: {problem!r}", container=name)
        else:
            self._configs[name] = config
            self._events.started(name)
            if attempt and self._tasks is not None:  # what was installed may be several GB
                drop = asyncio.to_thread(self._files.drop_virtual_environments, name, before=attempt)
                self._tasks.create_task(drop, name=f"drop-{identity}")
            dependencies.supervisor.start(config)
            return True
        dependencies.devices.release(identity)
        return False

    def _prepare(self) -> Rewriter:
        """Check and prepare what the containers of the pod share, once."""
        if self._rewriter is None:
            named = [each["name"] for each in self._pod["spec"].get("imagePullSecrets") or ()]
            lookup = self._dependencies.lookup
            self._events.pull_secrets_missing([name for name in named if lookup(SECRETS, self.namespace, name) is None])
            for container in self._containers.values():
                if not is_unreachable(container.get("image") or ""):
                    command_of(container, self._dependencies.settings.entrypoints)
                validate_probes(container)
            dependencies, in_namespaces = self._dependencies, self._dependencies.networking.mode == "namespaces"
            ports = {}
            if not dependencies.isolates(self._pod):
                ports = dependencies.ports.ports(job_key(self._pod), job_ports(self._pod))
            address = None if in_namespaces else LOCAL_ADDRESS
            rewriter = Rewriter(names=pod_names(self._pod, address=self._pod_info.pod_ip), address=address, ports=ports)
            self._volume_manager = VolumeManager(
                self._pod_info,
                directory=self._files.volumes,
                claims=dependencies.root.claims,
                lookup=dependencies.lookup,
                rewrite=rewriter.names_in,
                tokens=dependencies.tokens,
            )
            self._volumes = self._volume_manager.mount_all()
            if in_namespaces:
                self._files.root.mkdir(mode=0o700, exist_ok=True)
                own = self._files.root / "hosts"
                hosts = dependencies.hosts.file(
                    self._pod, own=own, address=self._pod_info.pod_ip, ipv6=not dependencies.isolates(self._pod)
                )
                self._namespaces = Namespaces(hosts=hosts, user_namespace=dependencies.networking.user_namespace)
            self._rewriter = rewriter
        return self._rewriter

    async def _settle(self) -> None:
        """Wait for the supervisor's answers, and a moment longer for containers that end at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_WINDOW):
                while any(container.state == "starting" for container in self._lifecycle.containers.values()):
                    await self._wake.wait()
                    self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MERGE_WINDOW):
                while self._lifecycle.active:
                    await self._wake.wait()
                    self._wake.clear()
        self._wake.set()  # what arrived meanwhile has not been synced

    def _refresh(self, wake_at: datetime | None) -> datetime | None:
        """Renew the tokens that are due, and give the time of the next thing to do."""
        if self._rewriter is None or self._volume_manager is None or self._volume_manager.refresh_at is None:
            return wake_at
        now = self._dependencies.clock()
        if now >= self._volume_manager.refresh_at:
            self._volume_manager.refresh(now=now)
        due = self._volume_manager.refresh_at
        return min(filter(None, (due, wake_at)), default=None)

    async def _sleep(self, wake_at: datetime | None) -> None:
        timeout = None if wake_at is None else max(0.0, (wake_at - self._dependencies.clock()).total_seconds())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wake.wait()

    # The API

    def _retry_at(self) -> datetime:
        """Give the time to try again what the API could not do, on a full disk for instance."""
        return self._dependencies.clock() + timedelta(seconds=self._dependencies.settings.retry_interval)

    async def _update_status(self) -> bool:
        """Write the status if it changed; False: the API cannot take it now."""
        dependencies = self._dependencies
        for _ in range(5):
            live = dependencies.lookup(PODS, self.namespace, self.name)
            if live is None or live["metadata"]["uid"] != self.uid:
                self.removed()
                return True
            status = pod_status(live, self._lifecycle, pod_ip=self._pod_info.pod_ip, now=dependencies.clock())
            if status == live.get("status"):
                return True
            try:
                await dependencies.api.update(
                    PODS,
                    {**live, "status": status},
                    subresource="status",
                    options=WriteOptions(field_manager=FIELD_MANAGER),
                )
            except StatusError as error:
                if error.code >= 500:
                    return False
                if error.code not in {404, 409}:
                    raise
            else:
                return True
        return True

    async def _linger(self) -> None:
        """Leave the pod in the API for a moment: it alone tells why its containers failed, and what they printed."""
        seconds, now = 0.0, self._dependencies.clock()
        for container in self._lifecycle.containers.values():
            if container.failures:
                seconds = _REMOVAL_TIME
            elif container.started_at is not None:
                seconds = max(seconds, _REMOVAL_TIME - (now - container.started_at).total_seconds())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _REMOVAL_TIME)):
                while not self._gone:
                    self._wake.clear()
                    await self._wake.wait()

    async def _delete(self) -> None:
        """Let the API remove the pod, now that nothing of it runs any more."""
        while not self._gone:
            try:
                await self._dependencies.api.delete(
                    PODS, self.namespace, self.name, options=DeleteOptions(grace_seconds=0, uid=self.uid)
                )
            except StatusError as error:
                if error.code >= 500:
                    self._wake.clear()
                    await self._sleep(self._retry_at())
                    continue
                if error.code not in {404, 409}:  # gone already, or replaced by a pod of the same name
                    raise
            return

    def _identity(self, name: str) -> str:
        return container_identity(self.uid, name, self._lifecycle.containers[name].restarts)

    def _termination(self, name: str, attempt: int, report: Exited | Unstartable) -> Termination:
        started_at = self._lifecycle.containers[name].started_at
        if isinstance(report, Unstartable):
            config = self._configs[name]
            path, own = config.environment.get("PATH", ""), self._dependencies.root.root.absolute()
            message = start_error(report.error, argv=config.argv, search_path=path, own=own)
            self._events.warn("Failed", f"Error: {message}", container=name)
            return Termination(exit_code=128, reason="StartError", message=message, finished_at=report.at)
        if report.lost:
            reason, message = LOST_REASON, "The process was lost: the supervisor of the container processes ended"
        else:
            reason = "Completed" if report.code == 0 else OOM_KILLED if report.oom_killed else "Error"
            message = termination_message(
                self._containers[name], files=self._files, attempt=attempt, failed=report.code != 0
            )
        return Termination(
            exit_code=report.code,
            signal=report.signal,
            reason=reason,
            message=message,
            started_at=started_at,
            finished_at=report.at,
        )
