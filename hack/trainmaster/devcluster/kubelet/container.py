"""The containers of a pod: what is known of each, as data, and the two errors that keep one from being started."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.runtime.jsontree import JsonObject

Role: TypeAlias = Literal["init", "sidecar", "main"]

CREATING = "ContainerCreating"
"""The reason of a container that waits for nothing but its creation, or for what all containers of its pod share."""

OOM_KILLED = "OOMKilled"
"""The reason of a container that used more memory than its limit."""

LOST_REASON = "ContainerStatusUnknown"
"""The reason that Kubernetes gives when nobody knows how a container ended."""


class CreateContainerError(Exception):
    """Something is missing that may still come, for instance a ConfigMap: the container waits and tries again.

    `reason` becomes that of its waiting state: CreateContainerConfigError, CreateContainerError or ContainerCreating;
    `volume` is the name of the volume that is waited for, if it is one.
    """

    def __init__(self, reason: str, message: str, *, volume: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.volume = volume


class PodRejectedError(Exception):
    """The embedded cluster cannot do what the pod asks for: the pod fails at once, with this reason and message.

    One whose `restartPolicy` is Always waits instead, as for an image that cannot be pulled.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """How a container process ended."""

    exit_code: int
    reason: str
    finished_at: datetime
    started_at: datetime | None = None
    signal: int = 0
    message: str = ""

    def to_json(self, container_id: str = "") -> JsonObject:
        """Give the `terminated` state of a container status."""
        terminated: JsonObject = {"exitCode": self.exit_code, "reason": self.reason}
        if self.signal:
            terminated["signal"] = self.signal
        if self.message:
            terminated["message"] = self.message
        terminated["startedAt"] = timestamp(self.started_at or self.finished_at)
        terminated["finishedAt"] = timestamp(self.finished_at)
        if container_id:
            terminated["containerID"] = container_id
        return terminated

    @classmethod
    def from_json(cls, terminated: JsonObject, *, now: datetime) -> Termination:
        """Read back what `to_json` wrote."""
        return cls(
            exit_code=terminated.get("exitCode", 137),
            reason=terminated.get("reason", ""),
            message=terminated.get("message", ""),
            signal=terminated.get("signal", 0),
            started_at=recorded_time(terminated.get("startedAt")),
            finished_at=recorded_time(terminated.get("finishedAt")) or now,
        )


@dataclass(slots=True, kw_only=True)
class Container:
    """One container of the pod and where it is in its lifecycle. Only `PodLifecycle` changes it."""

    name: str
    image: str
    role: Role
    state: Literal["waiting", "starting", "running", "terminated"] = "waiting"
    reason: str = ""
    message: str = ""
    restarts: int = 0
    failures: int = 0
    started_at: datetime | None = None
    started: bool = False
    """Whether it runs and its startup probe, if it has one, has succeeded."""

    ever_started: bool = False
    """Whether any attempt has got that far: what waits for a sidecar waits for that."""

    ready: bool = False
    """Whether its readiness probe, if it has one, succeeds."""

    stop_message: str = ""
    """Why this attempt is being stopped while the pod goes on, for instance that its liveness probe fails."""

    kill_at: datetime | None = None
    """When the attempt that is being stopped is killed."""

    not_before: datetime | None = None
    ended: Termination | None = None
    previous: Termination | None = None

    @property
    def active(self) -> bool:
        """Whether a process exists or is being started."""
        return self.state in {"starting", "running"}

    @property
    def succeeded(self) -> bool:
        """Whether the container ended with exit code 0 and stays ended."""
        return self.state == "terminated" and self.ended is not None and self.ended.exit_code == 0


def container_field_path(pod: JsonObject, name: str) -> str:
    """Give the field path by which Events about the pod name one of its containers."""
    init = any(entry["name"] == name for entry in pod["spec"].get("initContainers") or ())
    return f"spec.{'initContainers' if init else 'containers'}{{{name}}}"


def recorded_time(text: str | None) -> datetime | None:
    """Read a time of a recorded status; None when there is none or it is unreadable, for anyone may have written it."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
