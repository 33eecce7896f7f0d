"""What goes on beside the processes of a pod's containers: hooks when they start and stop, probes while they run.

- A container counts as running when its postStart hook has succeeded; if that fails, the container is ended.
- SIGTERM is sent when the preStop hook is done. The grace period includes the hook: its end is the end of both.
- A container that is told to end is not probed any more: what it answers from then on is about its end.
- Nothing of this outlives the container attempt that it is about.

Facts go to the pod's lifecycle, which decides what follows from them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime

from trainmaster.devcluster.kubelet.launch import Launch
from trainmaster.devcluster.kubelet.pod_events import PodEvents
from trainmaster.devcluster.kubelet.pod_lifecycle import PodLifecycle
from trainmaster.devcluster.kubelet.prober.handler import PROBES, Target, act
from trainmaster.devcluster.kubelet.prober.worker import Finding, watch_over
from trainmaster.devcluster.kubelet.supervisor_client import Executed, ProcessSupervisor
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Attempt:
    launch: Launch
    pid: int
    at: datetime


class Attendant:
    """Runs the hooks and probes of one pod, as tasks of the group that its runner gives it."""

    def __init__(
        self,
        pod: JsonObject,
        life: PodLifecycle,
        *,
        supervisor: ProcessSupervisor,
        events: PodEvents,
        address: str,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
    ) -> None:
        self._pod = pod
        self._life = life
        self._supervisor = supervisor
        self._events = events
        self._address = address
        self._clock = clock
        self._wake = wake
        self._group: asyncio.TaskGroup | None = None
        self._fresh: list[str] = []
        self._ending: set[str] = set()
        self._attempts: dict[str, _Attempt] = {}
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}
        spec = pod["spec"]
        self._containers: dict[str, JsonObject] = {
            entry["name"]: entry for entry in (*(spec.get("initContainers") or ()), *spec["containers"])
        }

    def open(self, group: asyncio.TaskGroup) -> None:
        """Get to work, with tasks in this group."""
        self._group = group

    def close(self) -> None:
        """End all tasks."""
        for name in list(self._tasks):
            self._cancel(name)

    # Facts about processes

    def started(self, name: str, launch: Launch, *, pid: int, at: datetime) -> None:
        """The process runs. What is to be done about that is begun by `attend`."""
        container = self._containers[name]
        self._events.normal(self._pod, "Started", f"Started container {name}", container=name)
        self._attempts[name] = _Attempt(launch, pid, at)
        if _hook(container, "postStart") is None:
            self._announce(name)
        if _hook(container, "postStart") is not None or any(container.get(kind) for kind in PROBES):
            self._fresh.append(name)

    def ended(self, name: str) -> None:
        """The process is gone, and with it what is done about it."""
        self._attempts.pop(name, None)
        self._ending.discard(name)
        if name in self._fresh:
            self._fresh.remove(name)
        self._cancel(name)

    # Work

    def attend(self) -> None:
        """Begin what recent facts call for."""
        fresh, self._fresh = self._fresh, []
        for name in fresh:
            self._begin(name, self._accompany(name))

    def terminate(self, name: str, identity: str) -> None:
        """Ask a container to end, after its preStop hook if it has one and got as far as running."""
        condemned = self._life.containers[name].condemned
        self._events.normal(self._pod, "Killing", condemned or f"Stopping container {name}", container=name)
        self._ending.add(name)
        hook, attempt = _hook(self._containers[name], "preStop"), self._attempts.get(name)
        if hook is not None or self._life.containers[name].state == "running":
            self._cancel(name)  # the probes; a first hook is done with, or gives way to the last one
        if hook is None or attempt is None:
            self._supervisor.terminate(identity)
            return
        self._begin(name, self._farewell(name, hook, identity))

    async def _accompany(self, name: str) -> None:
        container = self._containers[name]
        hook = _hook(container, "postStart")
        if hook is not None:
            outcome = await act(hook, self._target(name), timeout=None)
            if not outcome.ok:
                message = f"PostStartHook failed: {outcome.text}"
                self._events.warning(self._pod, "FailedPostStartHook", message, container=name)
                self._life.condemn(name, "FailedPostStartHook", now=self._clock())
                self._wake()
                return
            self._announce(name)
            self._wake()
        if name in self._ending:
            return
        await watch_over(
            container,
            perform=lambda probe: act(probe, self._target(name), timeout=probe.get("timeoutSeconds") or 1),
            tell=lambda finding: self._tell(name, finding),
        )

    async def _farewell(self, name: str, hook: JsonObject, identity: str) -> None:
        outcome = await act(hook, self._target(name), timeout=None)
        if not outcome.ok:
            message = f"PreStopHook failed: {outcome.text}"
            self._events.warning(self._pod, "FailedPreStopHook", message, container=name)
        self._supervisor.terminate(identity)

    def _announce(self, name: str) -> None:
        container = self._containers[name]
        self._life.started(
            name,
            at=self._attempts[name].at,
            passed=container.get("startupProbe") is None,
            ready=container.get("readinessProbe") is None,
        )

    def _tell(self, name: str, finding: Finding) -> None:
        outcome, kind = finding.outcome, finding.kind
        if not outcome.ok:
            message = f"{kind.capitalize()} probe failed: {outcome.text.rstrip()}"
            self._events.warning(self._pod, "Unhealthy", message, container=name)
        if not finding.decided:
            return
        if kind == "readiness":
            changed = self._life.probed(name, ready=outcome.ok)
        elif kind == "startup" and outcome.ok:
            changed = self._life.probed(name, passed=True)
        elif not outcome.ok:
            probe = self._containers[name][f"{kind}Probe"]
            changed = self._life.condemn(
                name,
                f"Container {name} failed {kind} probe, will be restarted",
                grace=probe.get("terminationGracePeriodSeconds"),
                now=self._clock(),
            )
        else:
            changed = False
        if changed:
            self._wake()

    def _target(self, name: str) -> Target:
        attempt = self._attempts[name]
        rewriter = attempt.launch.rewriter

        async def execute(argv: list[str]) -> Executed:
            return await self._supervisor.execute(attempt.launch, rewriter.words(argv), pid=attempt.pid)

        ports: Mapping[int, int] = rewriter.ports
        return Target(container=self._containers[name], address=self._address, ports=ports, execute=execute)

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        if self._group is None:
            raise RuntimeError("the attendant was not opened")
        task = self._group.create_task(_guarded(name, work), name=f"attend-{name}")
        self._tasks.setdefault(name, set()).add(task)
        task.add_done_callback(self._tasks[name].discard)

    def _cancel(self, name: str) -> None:
        for task in self._tasks.pop(name, ()):
            task.cancel()


async def _guarded(name: str, work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except Exception:  # a mistake in this code must not end the pod
        _log.exception("attending to container %s failed", name)


def _hook(container: JsonObject, kind: str) -> JsonObject | None:
    hook: JsonObject | None = (container.get("lifecycle") or {}).get(kind)
    return hook
