"""The lifecycle of one pod as a state machine without I/O.

Observations go in (`running`, `exited`, `deferred`, `delete`, ...), and `compute_actions` says what has to be done now.
Guarantees:
- Init containers run one after the other, each after the success of the one before; sidecars (init containers with
  restartPolicy Always) only have to be started, which includes the success of their startup probe. Main containers
  start together.
- A container is never started twice at the same time, and never after the pod began to stop.
- A pod that stops gets SIGTERM once, SIGKILL after its grace period, and is finished when no process is left. Sidecars
  end after the main containers, the last one first.
- A container that is stopped (because its liveness probe failed, for instance) ends in the same way; the restart policy
  decides on it.
- After a restart of the server, containers that were running count as killed (exit code 137).

The phase follows Kubernetes: Pending until the first main container was started, Running until none will run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from trainmaster.devcluster.kubelet.container import LOST_REASON, Container, Role, Termination, recorded_time
from trainmaster.devcluster.settings import KubeletSettings
from trainmaster.runtime.jsontree import JsonObject

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]

FINAL_PHASES: frozenset[Phase] = frozenset({"Succeeded", "Failed"})

MAX_RESTART_BACKOFF = 300.0
"""The longest wait before a restart in seconds, as in Kubernetes."""

STEADY_AFTER = timedelta(minutes=10)
"""A container that ran this long starts again without the delays that earlier failures earned it."""


@dataclass(slots=True)
class PodActions:
    """What has to be done now, by container name, and when to compute it again."""

    start: list[str] = field(default_factory=list)
    terminate: list[str] = field(default_factory=list)
    kill: list[str] = field(default_factory=list)
    wake_at: datetime | None = None

    def wake(self, at: datetime) -> None:
        """Compute them again at that time, or earlier."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)


class PodLifecycle:
    """The state of a pod on its node. Times come in by argument."""

    def __init__(self, pod: JsonObject, *, now: datetime, settings: KubeletSettings) -> None:
        spec = pod["spec"]
        status = pod.get("status") or {}
        self._settings = settings
        self._title = f"{pod['metadata']['name']}_{pod['metadata']['namespace']}({pod['metadata']['uid']})"
        self._policy: str = spec.get("restartPolicy") or "Always"
        self._grace: float = spec.get("terminationGracePeriodSeconds", 30)
        self.started_at = recorded_time(status.get("startTime")) or now
        self._deadline: datetime | None = None
        if seconds := spec.get("activeDeadlineSeconds"):
            self._deadline = self.started_at + timedelta(seconds=seconds)
        self.containers: dict[str, Container] = {}
        for role, entry in _roles(spec):
            self.containers[entry["name"]] = Container(name=entry["name"], image=entry.get("image", ""), role=role)
        self.failure: tuple[str, str] | None = None
        self.deleting = False
        self._stopping = False
        self._terminated: set[str] = set()
        self._killed: set[str] = set()
        self._kill_at: datetime | None = None
        self._resume(status, now=now)

    # Observations

    def running(self, name: str, *, at: datetime, started: bool = True, ready: bool = True) -> None:
        """Record that the process runs, and whether it needs no startup probe (`started`) and no readiness probe."""
        container = self.containers[name]
        container.state, container.started_at = "running", at
        container.reason = container.message = ""
        container.ready = ready
        self.probed(name, started=started)

    def probed(self, name: str, *, started: bool | None = None, ready: bool | None = None) -> bool:
        """Record what a startup or readiness probe found out; say whether that is new."""
        container = self.containers[name]
        before = (container.started, container.ready)
        if started is not None:
            container.started = started
            container.ever_started |= started
        if ready is not None:
            container.ready = ready
        return (container.started, container.ready) != before

    def stop_container(self, name: str, why: str, *, now: datetime, grace: float | None = None) -> bool:
        """End this attempt to run a container, though not the pod; say whether that is new."""
        container = self.containers[name]
        if not container.active or container.stop_message:
            return False
        container.stop_message = why
        container.kill_at = now + timedelta(seconds=self._grace if grace is None else grace)
        return True

    def exited(self, name: str, ended: Termination) -> None:
        """Record that the process is gone."""
        container = self.containers[name]
        container.state, container.ended = "terminated", ended
        container.started = container.ready = False
        container.stop_message, container.kill_at = "", None
        self._terminated.discard(name)
        self._killed.discard(name)
        if container.started_at is not None and ended.finished_at - container.started_at >= STEADY_AFTER:
            container.failures = 0

    def deferred(self, name: str, *, reason: str, message: str, now: datetime) -> None:
        """Record that the container cannot be started yet, and try again later."""
        container = self.containers[name]
        if container.ended is None and container.previous is not None:  # the start of a restart that did not happen
            container.restarts -= 1
            container.ended, container.previous = container.previous, None
        container.state, container.reason, container.message = "waiting", reason, message
        container.not_before = now + timedelta(seconds=self._settings.retry_interval)

    def fail(self, reason: str, message: str, *, container: str = "") -> None:
        """Give the pod up: stop what runs and let it end as Failed. `container` names one that could not be started."""
        if self.failure is None:
            self.failure = (reason, message)
        self._stopping = True
        if container:
            blamed = self.containers[container]
            blamed.state, blamed.reason, blamed.message = "waiting", reason, message

    def delete(self, *, grace: float, now: datetime) -> None:
        """Stop because the pod is being deleted. A later, shorter grace period counts; a longer one does not."""
        self.deleting = self._stopping = True
        kill_at = now + timedelta(seconds=grace)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    # State

    @property
    def always_restarts(self) -> bool:
        """Whether the pod never ends by itself, as those of a ReplicaSet."""
        return self._policy == "Always"

    @property
    def active(self) -> bool:
        """Whether any process exists or is being started."""
        return any(container.active for container in self.containers.values())

    @property
    def finished(self) -> bool:
        """Whether nothing runs and nothing will."""
        return not self.active and (self._stopping or self._decided())

    @property
    def initializes(self) -> bool:
        """Whether there are init containers at all."""
        return bool(self._of("init", "sidecar"))

    @property
    def initialized(self) -> bool:
        """Whether all init containers are done and all sidecars were started."""
        return self._pending_init() is None

    @property
    def phase(self) -> Phase:
        """The pod's phase as its status shows it."""
        mains = self._of("main")
        if self._stopping and not self.active:
            succeeded = self.failure is None and all(container.succeeded for container in mains)
            return "Succeeded" if succeeded else "Failed"
        if self._decided() and not self.active:
            return "Succeeded" if all(container.succeeded for container in mains) else "Failed"
        begun = any(c.state in {"running", "terminated"} or c.restarts or c.ended for c in mains)
        return "Running" if begun else "Pending"

    def compute_actions(self, now: datetime) -> PodActions:
        """Decide what has to be done at this time; without a new fact the next call gives nothing new to do."""
        actions = PodActions()
        if self._deadline is not None and not self._stopping and not self._decided():
            if now >= self._deadline:
                self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            else:
                actions.wake(self._deadline)
        if self._stopping:
            self._stop(actions, now)
        elif self._decided():
            self._end_sidecars(actions, now)
        else:
            self._advance(actions, now)
        for container in self.containers.values():
            if container.active and container.kill_at is not None:
                self._end(container, actions, now, kill_at=container.kill_at)
        return actions

    # Decisions

    def _advance(self, actions: PodActions, now: datetime) -> None:
        for container in self._of("init", "sidecar"):
            self._keep(container, actions, now)
            if not (container.ever_started if container.role == "sidecar" else container.succeeded):
                return
        for container in self._of("main"):
            self._keep(container, actions, now)

    def _keep(self, container: Container, actions: PodActions, now: datetime) -> None:
        """Start a container that waits and is due, or plan the restart of one that ended."""
        if container.state == "terminated" and self._restarts(container):
            self._back_off(container)
        if container.state != "waiting":
            return
        if container.not_before is not None and now < container.not_before:
            actions.wake(container.not_before)
            return
        if container.ended is not None:
            container.restarts += 1
            container.previous, container.ended = container.ended, None
        container.state, container.not_before = "starting", None
        actions.start.append(container.name)

    def _back_off(self, container: Container) -> None:
        ended = container.ended
        if ended is None:
            return
        container.failures += 1
        delay = min(self._settings.restart_backoff * 2.0 ** min(container.failures - 1, 60), MAX_RESTART_BACKOFF)
        container.state, container.reason = "waiting", "CrashLoopBackOff"
        container.message = f"back-off {delay:g}s restarting failed container={container.name} pod={self._title}"
        container.not_before = ended.finished_at + timedelta(seconds=delay)

    def _stop(self, actions: PodActions, now: datetime) -> None:
        for container in self.containers.values():
            if container.active and container.role != "sidecar":
                self._end(container, actions, now)
            elif container.state == "waiting" and self.failure is None:
                self._never_ran(container, now)
        self._end_sidecars(actions, now)

    def _end_sidecars(self, actions: PodActions, now: datetime) -> None:
        """Sidecars serve what was started after them and end after that, or when the grace period does."""
        for container in (*self._of("init", "main"), *reversed(self._of("sidecar"))):
            if not container.active:
                continue
            if container.role == "sidecar":
                self._end(container, actions, now)
            if self._kill_at is None or now < self._kill_at:
                return

    def _end(
        self, container: Container, actions: PodActions, now: datetime, *, kill_at: datetime | None = None
    ) -> None:
        """Terminate the container, and kill it once the grace period is over."""
        if kill_at is None:
            if self._kill_at is None:
                self._kill_at = now + timedelta(seconds=self._grace)
            kill_at = self._kill_at
        if container.name not in self._terminated:
            self._terminated.add(container.name)
            actions.terminate.append(container.name)
        if now < kill_at:
            actions.wake(kill_at)
        elif container.name not in self._killed:
            self._killed.add(container.name)
            actions.kill.append(container.name)

    def _never_ran(self, container: Container, now: datetime) -> None:
        """End a waiting container of a deleted pod: as it last did, or as never started."""
        container.state, container.reason, container.message = "terminated", "", ""
        if container.ended is None:
            container.ended = Termination(
                exit_code=137,
                reason=LOST_REASON,
                message="The pod was deleted before the container was started",
                finished_at=now,
            )

    def _decided(self) -> bool:
        """Whether the outcome is known: an init container failed for good, or every main container ended for good."""
        if any(c.state == "terminated" and not c.succeeded and not self._restarts(c) for c in self._of("init")):
            return True
        return all(c.state == "terminated" and not self._restarts(c) for c in self._of("main"))

    def _restarts(self, container: Container) -> bool:
        """Whether the restart policy brings an ended container back."""
        if container.role == "sidecar":
            return True
        if container.succeeded:
            return self._policy == "Always" and container.role == "main"
        return self._policy != "Never"

    def _pending_init(self) -> Container | None:
        for container in self._of("init", "sidecar"):
            if not (container.ever_started if container.role == "sidecar" else container.succeeded):
                return container
        return None

    def _of(self, *roles: Role) -> list[Container]:
        return [container for container in self.containers.values() if container.role in roles]

    # Resume

    def _resume(self, status: JsonObject, *, now: datetime) -> None:
        """Take up the recorded status after a restart of the server; what ran then is gone now."""
        conditions = status.get("conditions") or ()
        initialized = any(entry.get("type") == "Initialized" and entry.get("status") == "True" for entry in conditions)
        for entry in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
            container = self.containers.get(entry.get("name", ""))
            state = entry.get("state") or {}
            if container is None:
                continue
            container.restarts = container.failures = entry.get("restartCount", 0)
            container.ever_started = bool(entry.get("started")) or initialized
            if last := (entry.get("lastState") or {}).get("terminated"):
                container.previous = Termination.from_json(last, now=now)
            if running := state.get("running"):
                lost = Termination(
                    exit_code=137,
                    reason=LOST_REASON,
                    message="The process was lost: the embedded cluster stopped while the container was running",
                    started_at=recorded_time(running.get("startedAt")),
                    finished_at=now,
                )
                container.state, container.ended = "terminated", lost
            elif terminated := state.get("terminated"):
                container.state, container.ended = "terminated", Termination.from_json(terminated, now=now)
            elif container.previous is not None:  # it was waiting for its restart
                container.state, container.ended, container.previous = "terminated", container.previous, None
                container.failures = max(container.failures - 1, 0)


def _roles(spec: JsonObject) -> list[tuple[Role, JsonObject]]:
    roles: list[tuple[Role, JsonObject]] = [
        ("sidecar" if entry.get("restartPolicy") == "Always" else "init", entry)
        for entry in spec.get("initContainers") or ()
    ]
    return roles + [("main", entry) for entry in spec["containers"]]
