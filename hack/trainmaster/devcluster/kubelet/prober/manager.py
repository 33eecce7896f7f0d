"""The probe manager of a pod: its containers' lifecycle hooks when they start and stop, their probes while they run.

- A container counts as running when its postStart hook has succeeded; if that fails, the container is stopped.
- SIGTERM is sent when the preStop hook is done. The grace period includes the hook: its end is the end of both.
- A container that is being stopped is not probed any more: its results from then on are about its end.
- Nothing of this outlives the container attempt that it is about.

Results go to the pod's lifecycle, which decides what follows from them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime

from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container import container_field_path
from trainmaster.devcluster.kubelet.container_config import ContainerConfig
from trainmaster.devcluster.kubelet.pod_lifecycle import PodLifecycle
from trainmaster.devcluster.kubelet.prober.handler import PROBES, Target, run_handler
from trainmaster.devcluster.kubelet.prober.worker import ProbeResult, run_probes
from trainmaster.devcluster.kubelet.supervisor_client import ExecResult, SupervisorClient
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Attempt:
    config: ContainerConfig
    pid: int
    at: datetime


class ProbeManager:
    """Runs the hooks and probes of one pod, as tasks of the group that its worker gives it."""

    def __init__(
        self,
        pod: JsonObject,
        lifecycle: PodLifecycle,
        *,
        supervisor: SupervisorClient,
        events: EventBroadcaster,
        address: str,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
    ) -> None:
        self._pod = pod
        self._lifecycle = lifecycle
        self._supervisor = supervisor
        self._events = events
        self._address = address
        self._clock = clock
        self._wake = wake
        self._group: asyncio.TaskGroup | None = None
        self._fresh: list[str] = []
        self._stopping: set[str] = set()
        self._attempts: dict[str, _Attempt] = {}
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}
        spec = pod["spec"]
        self._containers: dict[str, JsonObject] = {
            entry["name"]: entry for entry in (*(spec.get("initContainers") or ()), *spec["containers"])
        }

    def start(self, group: asyncio.TaskGroup) -> None:
        """Get to work, with tasks in this group."""
        self._group = group

    def stop(self) -> None:
        """End all tasks."""
        for name in list(self._tasks):
            self._cancel(name)

    # Processes that start and end

    def started(self, name: str, config: ContainerConfig, *, pid: int, at: datetime) -> None:
        """The process runs. Its hook and probes are begun by `sync`."""
        container = self._containers[name]
        self._events.normal(self._pod, "Started", f"Started container {name}", field_path=self._field_path(name))
        self._attempts[name] = _Attempt(config, pid, at)
        if _hook(container, "postStart") is None:
            self._mark_running(name)
        if _hook(container, "postStart") is not None or any(container.get(kind) for kind in PROBES):
            self._fresh.append(name)

    def exited(self, name: str) -> None:
        """The process is gone, and with it its hooks and probes."""
        self._attempts.pop(name, None)
        self._stopping.discard(name)
        if name in self._fresh:
            self._fresh.remove(name)
        self._cancel(name)

    # Work

    def sync(self) -> None:
        """Begin the hooks and probes of containers that have just started."""
        fresh, self._fresh = self._fresh, []
        for name in fresh:
            self._begin(name, self._run_post_start_and_probes(name))

    def terminate(self, name: str, identity: str) -> None:
        """Terminate a container, after its preStop hook if it has one and got as far as running."""
        message = self._lifecycle.containers[name].stop_message or f"Stopping container {name}"
        self._events.normal(self._pod, "Killing", message, field_path=self._field_path(name))
        self._stopping.add(name)
        hook, attempt = _hook(self._containers[name], "preStop"), self._attempts.get(name)
        if hook is not None or self._lifecycle.containers[name].state == "running":
            self._cancel(name)  # the probes; a postStart hook is done, or gives way to the preStop hook
        if hook is None or attempt is None:
            self._supervisor.terminate(identity)
            return
        self._begin(name, self._run_pre_stop(name, hook, identity))

    async def _run_post_start_and_probes(self, name: str) -> None:
        container = self._containers[name]
        hook = _hook(container, "postStart")
        if hook is not None:
            result = await run_handler(hook, self._target(name), timeout=None)
            if not result.ok:
                message = f"PostStartHook failed: {result.output}"
                self._events.warning(self._pod, "FailedPostStartHook", message, field_path=self._field_path(name))
                self._lifecycle.stop_container(name, "FailedPostStartHook", now=self._clock())
                self._wake()
                return
            self._mark_running(name)
            self._wake()
        if name in self._stopping:
            return
        await run_probes(
            container,
            run=lambda probe: run_handler(probe, self._target(name), timeout=probe.get("timeoutSeconds") or 1),
            report=lambda result: self._on_probe_result(name, result),
        )

    async def _run_pre_stop(self, name: str, hook: JsonObject, identity: str) -> None:
        result = await run_handler(hook, self._target(name), timeout=None)
        if not result.ok:
            message = f"PreStopHook failed: {result.output}"
            self._events.warning(self._pod, "FailedPreStopHook", message, field_path=self._field_path(name))
        self._supervisor.terminate(identity)

    def _mark_running(self, name: str) -> None:
        container = self._containers[name]
        self._lifecycle.running(
            name,
            at=self._attempts[name].at,
            started=container.get("startupProbe") is None,
            ready=container.get("readinessProbe") is None,
        )

    def _on_probe_result(self, name: str, probed: ProbeResult) -> None:
        result, probe_type = probed.result, probed.type
        if not result.ok:
            message = f"{probe_type.capitalize()} probe failed: {result.output.rstrip()}"
            self._events.warning(self._pod, "Unhealthy", message, field_path=self._field_path(name))
        if not probed.counts:
            return
        if probe_type == "readiness":
            changed = self._lifecycle.probed(name, ready=result.ok)
        elif probe_type == "startup" and result.ok:
            changed = self._lifecycle.probed(name, started=True)
        elif not result.ok:
            probe = self._containers[name][f"{probe_type}Probe"]
            changed = self._lifecycle.stop_container(
                name,
                f"Container {name} failed {probe_type} probe, will be restarted",
                grace=probe.get("terminationGracePeriodSeconds"),
                now=self._clock(),
            )
        else:
            changed = False
        if changed:
            self._wake()

    def _target(self, name: str) -> Target:
        attempt = self._attempts[name]
        rewriter = attempt.config.rewriter

        async def execute(argv: list[str]) -> ExecResult:
            return await self._supervisor.execute(attempt.config, rewriter.words(argv), pid=attempt.pid)

        ports: Mapping[int, int] = rewriter.ports
        return Target(container=self._containers[name], address=self._address, ports=ports, execute=execute)

    def _field_path(self, name: str) -> str:
        return container_field_path(self._pod, name)

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        if self._group is None:
            raise RuntimeError("the probe manager was not started")
        task = self._group.create_task(_logged(name, work), name=f"prober-{name}")
        self._tasks.setdefault(name, set()).add(task)
        task.add_done_callback(self._tasks[name].discard)

    def _cancel(self, name: str) -> None:
        for task in self._tasks.pop(name, ()):
            task.cancel()


async def _logged(name: str, work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Exception:  # a mistake in this code must not end the pod
        _log.exception("hooks and probes of container %s failed", name)


def _hook(container: JsonObject, kind: str) -> JsonObject | None:
    hook: JsonObject | None = (container.get("lifecycle") or {}).get(kind)
    return hook
