"""Running one pod: carries out what its lifecycle decides and keeps the status in the API up to date.

The lifecycle is pure; this module does its I/O. Facts (reports of processes, changes of the pod) arrive synchronously
and wake the runner, which then steps, acts and publishes. Status writes that pile up while one is under way become one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import AccountTokens
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.resources import PODS, GroupResource
from trainmaster.devcluster.kubelet.container import LOST_REASON, Termination
from trainmaster.devcluster.kubelet.device_manager import DeviceTable
from trainmaster.devcluster.kubelet.directories import StateDirectory
from trainmaster.devcluster.kubelet.downward_api import PodFacts
from trainmaster.devcluster.kubelet.images import command_of
from trainmaster.devcluster.kubelet.launch import Launch, prepare_launch
from trainmaster.devcluster.kubelet.network.addresses import PortTable, job_key, pod_address
from trainmaster.devcluster.kubelet.network.hosts import HostsTable
from trainmaster.devcluster.kubelet.network.mode import Networking
from trainmaster.devcluster.kubelet.network.rewriter import LOCAL_ADDRESS, Rewriter, job_ports, pod_names
from trainmaster.devcluster.kubelet.pod_events import PodEvents
from trainmaster.devcluster.kubelet.pod_lifecycle import PodLifecycle, Step
from trainmaster.devcluster.kubelet.pod_status import container_identity, pod_status
from trainmaster.devcluster.kubelet.prober.handler import check_actions
from trainmaster.devcluster.kubelet.prober.prober import Attendant
from trainmaster.devcluster.kubelet.problems import ImpossibleError, NotYetError
from trainmaster.devcluster.kubelet.settings import KubeletSettings
from trainmaster.devcluster.kubelet.supervisor_client import Exited, ProcessSupervisor, Report, Started
from trainmaster.devcluster.kubelet.termination import last_words
from trainmaster.devcluster.kubelet.volumes.mounts import Namespaces
from trainmaster.devcluster.kubelet.volumes.volumes import VolumeMounter
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)

FIELD_MANAGER = "kubelet"

_ANSWER_WINDOW = 1.0
"""How long a status write waits for the supervisor's answer to a launch; it takes milliseconds."""

_MERGE_WINDOW = 0.02
"""How long the news that a container runs waits for the news that it has ended: short containers cost one write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """What all pods of the node share."""

    api: Api
    settings: KubeletSettings
    state: StateDirectory
    supervisor: ProcessSupervisor
    networking: Networking
    hosts: HostsTable
    ports: PortTable
    events: PodEvents
    devices: DeviceTable
    capacity: dict[str, str]
    server_url: str
    clock: Callable[[], datetime]
    tokens: AccountTokens | None

    def lookup(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        """Find an object, or None."""
        try:
            return self.api.get(resource, namespace, name)
        except StatusError as error:
            if error.code == 404:
                return None
            raise


class PodRunner:
    """One pod on this node, from its binding to its end."""

    def __init__(self, pod: JsonObject, context: NodeContext) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        self.uid: str = metadata["uid"]
        self.namespace: str = metadata["namespace"]
        self.name: str = metadata["name"]
        self._pod = pod
        self._context = context
        self._life = PodLifecycle(pod, now=context.clock(), settings=context.settings)
        self._containers: dict[str, JsonObject] = {
            entry["name"]: entry for entry in (*(spec.get("initContainers") or ()), *spec["containers"])
        }
        self._facts = PodFacts(pod=pod, pod_ip=pod_address(pod), capacity=context.capacity)
        self._files = context.state.pod(self.uid)
        self._news = asyncio.Event()
        self._attendant = Attendant(
            pod,
            self._life,
            supervisor=context.supervisor,
            events=context.events,
            address=self._facts.pod_ip if context.networking.mode == "namespaces" else LOCAL_ADDRESS,
            clock=context.clock,
            wake=self._news.set,
        )
        self._launches: dict[str, Launch] = {}
        self._told: dict[str, str] = {}
        """What was last told about a container that waits."""
        self._rewriter: Rewriter | None = None
        self._namespaces: Namespaces | None = None
        self._mounter: VolumeMounter | None = None
        self._volumes: dict[str, Path] = {}
        self._gone = False
        self.update(pod)

    # Facts

    def update(self, pod: JsonObject) -> None:
        """Take note of a new version of the pod; only its deletion changes what happens."""
        self._pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self._life.delete(grace=30 if grace is None else grace, now=self._context.clock())
            self._news.set()

    def vanish(self) -> None:
        """The pod is no longer in the API: end its processes without grace."""
        if self._gone:
            return  # no news, and every status write that finds no pod would otherwise cause the next one
        self._gone = True
        self._life.delete(grace=0, now=self._context.clock())
        self._news.set()

    def report(self, container: str, attempt: int, report: Report) -> None:
        """Take note of what happened to a process."""
        known = self._life.containers.get(container)
        if known is None or known.restarts != attempt or not known.active:
            return
        if isinstance(report, Started):
            self._attendant.started(container, self._launches[container], pid=report.pid, at=report.at)
        else:
            self._attendant.ended(container)
            self._context.devices.release(report.identity)
            self._life.exited(container, self._termination(container, attempt, report))
        self._news.set()

    # The loop

    async def run(self) -> None:
        """Run the pod until no process is left and none will come, and the API knows it."""
        async with asyncio.TaskGroup() as tasks:
            self._attendant.open(tasks)
            await self._run()
            self._attendant.close()
        if self._life.deleting and not self._gone:
            await self._remove()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            step, launched = self._act()
            if launched:
                await self._settle()
            finished = self._life.finished
            # Nobody sees the last status of a pod that is removed with the next request.
            removed_next = finished and self._life.deleting and not self._pod["metadata"].get("finalizers")
            if not self._gone and not removed_next:
                await self._publish()
            if finished:
                break
            await self._sleep(self._refresh(step.wake_at))

    def _act(self) -> tuple[Step, bool]:
        """Do what the lifecycle says until it has nothing more to say."""
        launched = False
        self._attendant.attend()
        while True:
            step = self._life.step(self._context.clock())
            for name in step.start:
                launched |= self._launch(name)
            for name in step.terminate:
                self._attendant.terminate(name, self._identity(name))
            for name in step.kill:
                self._context.supervisor.kill(self._identity(name))
            if not step.start:
                self._tell_delays()
                return step, launched

    def _tell_delays(self) -> None:
        """Record an event for each container that has begun to wait for its restart."""
        for name, container in self._life.containers.items():
            if container.state == "waiting" and container.reason == "CrashLoopBackOff":
                if self._told.get(name) != container.message:
                    title = f"{self.name}_{self.namespace}({self.uid})"
                    message = f"Back-off restarting failed container {name} in pod {title}"
                    self._context.events.warning(self._pod, "BackOff", message, container=name)
                self._told[name] = container.message

    def _tell_problem(self, name: str, reason: str, message: str) -> None:
        """Record an event for a container that cannot be started, once for each new problem."""
        if self._told.get(name) != message:
            self._told[name] = message
            if reason == "ContainerCreating":  # what all containers of the pod share is missing
                self._context.events.warning(self._pod, "FailedMount", f"MountVolume.SetUp failed: {message}")
            else:
                self._context.events.warning(self._pod, "Failed", f"Error: {message}", container=name)

    def _launch(self, name: str) -> bool:
        container, attempt = self._containers[name], self._life.containers[name].restarts
        identity, context = self._identity(name), self._context
        try:
            rewriter = self._prepare()
            launch = prepare_launch(
                container,
                self._facts,
                identity=identity,
                attempt=attempt,
                files=self._files,
                volumes=self._volumes,
                rewriter=rewriter,
                server_url=context.server_url,
                lookup=context.lookup,
                devices=context.devices.variables(identity, container),
                log_limit=context.settings.log_limit,
                namespaces=self._namespaces,
            )
        except NotYetError as problem:
            self._tell_problem(name, problem.reason, problem.message)
            self._life.deferred(name, reason=problem.reason, message=problem.message, now=context.clock())
        except ImpossibleError as problem:
            self._tell_problem(name, problem.reason, problem.message)
            self._life.fail(problem.reason, problem.message, container=name)
        except OSError as problem:  # a full disk, for instance
            self._life.deferred(name, reason="CreateContainerError", message=str(problem), now=context.clock())
        except Exception as problem:  # a mistake in this code must fail the pod, not leave it between two states
            _log.exception("cannot start container %s of pod %s/%s", name, self.namespace, self.name)
            self._life.fail("InternalError", f"container {name!r} cannot be started: {problem!r}", container=name)
        else:
            self._launches[name] = launch
            self._told.pop(name, None)
            context.supervisor.launch(launch)
            return True
        context.devices.release(identity)
        return False

    def _prepare(self) -> Rewriter:
        """Check and prepare what the containers of the pod share, once."""
        if self._rewriter is None:
            for container in self._containers.values():
                command_of(container)
                check_actions(container)
            context, in_namespaces = self._context, self._context.networking.mode == "namespaces"
            ports = context.ports.ports(job_key(self._pod), job_ports(self._pod))
            address = None if in_namespaces else LOCAL_ADDRESS
            rewriter = Rewriter(names=pod_names(self._pod), address=address, ports=ports)
            self._mounter = VolumeMounter(
                self._facts,
                directory=self._files.volumes,
                claims=context.state.claims,
                lookup=context.lookup,
                allow_host_path=context.settings.allow_host_path,
                rewrite=rewriter.names_in,
                tokens=context.tokens,
            )
            self._volumes = self._mounter.mount_all()
            if in_namespaces:
                self._files.root.mkdir(mode=0o700, exist_ok=True)
                hosts = context.hosts.file(self._pod, own=self._files.root / "hosts")
                self._namespaces = Namespaces(hosts=hosts, user_namespace=context.networking.user_namespace)
            self._rewriter = rewriter
        return self._rewriter

    async def _settle(self) -> None:
        """Wait for the supervisor's answers, and a moment longer for containers that end at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_WINDOW):
                while any(container.state == "starting" for container in self._life.containers.values()):
                    await self._news.wait()
                    self._news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MERGE_WINDOW):
                while self._life.active:
                    await self._news.wait()
                    self._news.clear()
        self._news.set()  # what arrived meanwhile has not been acted on

    def _refresh(self, wake_at: datetime | None) -> datetime | None:
        """Renew the tokens that are due, and give the time of the next thing to do."""
        if self._rewriter is None or self._mounter is None or self._mounter.refresh_at is None:
            return wake_at
        now = self._context.clock()
        if now >= self._mounter.refresh_at:
            self._mounter.refresh(now=now)
        due = self._mounter.refresh_at
        return min(filter(None, (due, wake_at)), default=None)

    async def _sleep(self, wake_at: datetime | None) -> None:
        timeout = None if wake_at is None else max(0.0, (wake_at - self._context.clock()).total_seconds())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()

    # The API

    async def _publish(self) -> None:
        """Write the status if it changed."""
        context = self._context
        for _ in range(5):
            live = context.lookup(PODS, self.namespace, self.name)
            if live is None or live["metadata"]["uid"] != self.uid:
                self.vanish()
                return
            status = pod_status(live, self._life, pod_ip=self._facts.pod_ip, now=context.clock())
            if status == live.get("status"):
                return
            try:
                await context.api.update(
                    PODS,
                    {**live, "status": status},
                    namespace=self.namespace,
                    subresource="status",
                    options=WriteOptions(field_manager=FIELD_MANAGER),
                )
            except StatusError as error:
                if error.code not in {404, 409}:
                    raise
            else:
                return

    async def _remove(self) -> None:
        """Let the API remove the pod, now that nothing of it runs any more."""
        try:
            await self._context.api.delete(
                PODS, self.namespace, self.name, options=DeleteOptions(grace_seconds=0, uid=self.uid)
            )
        except StatusError as error:
            if error.code not in {404, 409}:  # gone already, or replaced by a pod of the same name
                raise

    def _identity(self, name: str) -> str:
        return container_identity(self.uid, name, self._life.containers[name].restarts)

    def _termination(self, name: str, attempt: int, report: Report) -> Termination:
        started_at = self._life.containers[name].started_at
        if not isinstance(report, Exited):
            message = f"failed to start: {getattr(report, 'error', '')}"
            return Termination(exit_code=128, reason="StartError", message=message, finished_at=report.at)
        if report.lost:
            reason, message = LOST_REASON, "The process was lost: the supervisor of the container processes ended"
        else:
            reason = "Completed" if report.code == 0 else "Error"
            message = last_words(self._containers[name], files=self._files, attempt=attempt, failed=report.code != 0)
        return Termination(
            exit_code=report.code,
            signal=report.signal,
            reason=reason,
            message=message,
            started_at=started_at,
            finished_at=report.at,
        )
