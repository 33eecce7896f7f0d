"""The containers of a pod: what is known of each, as data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.kubelet.times import parse_time
from trainmaster.runtime.jsontree import JsonObject

Role: TypeAlias = Literal["init", "sidecar", "main"]

LOST_REASON = "ContainerStatusUnknown"
"""The reason that Kubernetes gives when nobody knows how a container ended."""


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
            started_at=parse_time(terminated.get("startedAt")),
            finished_at=parse_time(terminated.get("finishedAt")) or now,
        )


@dataclass(slots=True, kw_only=True)
class Container:
    """One container of the pod and where it is in its life. Only `PodLifecycle` changes it."""

    name: str
    image: str
    role: Role
    state: Literal["waiting", "starting", "running", "terminated"] = "waiting"
    reason: str = ""
    message: str = ""
    restarts: int = 0
    failures: int = 0
    started_at: datetime | None = None
    passed: bool = False
    """Whether it runs and its startup probe, if it has one, has succeeded."""

    was_up: bool = False
    """Whether any attempt has got that far: what waits for a sidecar waits for that."""

    ready: bool = False
    """Whether its readiness probe, if it has one, succeeds."""

    condemned: str = ""
    """Why this attempt has to end while the pod goes on, for instance that its liveness probe fails."""

    kill_at: datetime | None = None
    """When a condemned attempt is killed."""

    not_before: datetime | None = None
    ended: Termination | None = None
    previous: Termination | None = None

    @property
    def active(self) -> bool:
        """Whether a process exists or has been asked for."""
        return self.state in {"starting", "running"}

    @property
    def succeeded(self) -> bool:
        """Whether the container ended with exit code 0 and stays ended."""
        return self.state == "terminated" and self.ended is not None and self.ended.exit_code == 0
