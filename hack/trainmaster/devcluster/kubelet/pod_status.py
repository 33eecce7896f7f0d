"""The status of a pod, as Kubernetes writes it, from the state of its lifecycle; and the events about its containers.

Each fact about a container that waits is told once, in the kubelet's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container import (
    CREATING,
    Container,
    CreateContainerError,
    PodRejectedError,
    Role,
    container_field_path,
)
from trainmaster.devcluster.kubelet.environment import HOST_IP
from trainmaster.devcluster.kubelet.image_manager import INVALID_NAME, PULL_FAILED, ImagePullError
from trainmaster.devcluster.kubelet.pod_lifecycle import FINAL_PHASES, PodLifecycle
from trainmaster.runtime.jsontree import JsonObject

CONTAINER_ID_SCHEME = "process://"
_CANNOT_RUN = 128
_NOT_RUN_TEXT = (
    "the embedded cluster does not run containers for debugging: a pod is a group of processes of this machine, "
    "look at them with its own tools"
)


def container_identity(uid: str, name: str, attempt: int) -> str:
    """Name one attempt to run one container."""
    return f"{uid}/{name}/{attempt}"


def pod_status(pod: JsonObject, lifecycle: PodLifecycle, *, pod_ip: str, now: datetime) -> JsonObject:
    """Build the new status of a pod; fields and conditions that others own stay."""
    status: JsonObject = dict(pod.get("status") or {})
    uid = pod["metadata"]["uid"]
    if status.get("phase") not in FINAL_PHASES:  # a pod that has failed, whoever said so, never runs again
        status["phase"] = lifecycle.phase
    status["conditions"] = _conditions(pod, lifecycle, now=now)
    status["startTime"] = timestamp(lifecycle.started_at)
    status |= {"hostIP": HOST_IP, "hostIPs": [{"ip": HOST_IP}], "podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
    if lifecycle.failure is not None:
        status |= {field: text for field, text in zip(("reason", "message"), lifecycle.failure, strict=True) if text}
    fields: tuple[tuple[str, tuple[Role, ...]], ...] = (
        ("initContainerStatuses", ("init", "sidecar")),
        ("containerStatuses", ("main",)),
    )
    for field, roles in fields:
        entries = [_container(c, uid, lifecycle) for c in lifecycle.containers.values() if c.role in roles]
        if entries:
            status[field] = entries
    if debugging := pod["spec"].get("ephemeralContainers"):
        status["ephemeralContainerStatuses"] = list(map(_not_run, debugging))
    return status


def _not_run(container: JsonObject) -> JsonObject:
    """Show a container for debugging as one that cannot be run: whoever added it must not wait for it."""
    ended = {"exitCode": _CANNOT_RUN, "reason": "ContainerCannotRun", "message": _NOT_RUN_TEXT}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "restartCount": 0,
        "ready": False,
        "state": {"terminated": ended},
        "lastState": {},
    }


def _container(container: Container, uid: str, lifecycle: PodLifecycle) -> JsonObject:
    running = container.state == "running"
    identity = CONTAINER_ID_SCHEME + container_identity(uid, container.name, container.restarts)
    shown: JsonObject = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": container.restarts,
        # An init container is ready when it has done its work.
        "ready": container.succeeded if container.role == "init" else _is_ready(container),
        "started": container.started,
        "state": _state(container, identity, lifecycle),
        "lastState": {},
    }
    if container.state == "waiting" and container.ended:  # its restart is not counted before it happens
        shown["lastState"] = {"terminated": container.ended.to_json(identity)}
    elif container.previous is not None:
        before = CONTAINER_ID_SCHEME + container_identity(uid, container.name, container.restarts - 1)
        shown["lastState"] = {"terminated": container.previous.to_json(before)}
    if running or container.ended is not None:
        shown["containerID"] = identity
    return shown


def _is_ready(container: Container) -> bool:
    return container.state == "running" and container.started and container.ready


def _state(container: Container, identity: str, lifecycle: PodLifecycle) -> JsonObject:
    if container.state == "running" and container.started_at is not None:
        return {"running": {"startedAt": timestamp(container.started_at)}}
    if container.state == "terminated" and container.ended is not None:
        return {"terminated": container.ended.to_json(identity)}
    waiting = {"reason": container.reason or CREATING}
    if lifecycle.initializes and waiting["reason"] == CREATING:
        waiting["reason"] = "PodInitializing"
    if container.message:
        waiting["message"] = container.message
    return {"waiting": waiting}


def _conditions(pod: JsonObject, lifecycle: PodLifecycle, *, now: datetime) -> list[JsonObject]:
    before = {entry["type"]: entry for entry in (pod.get("status") or {}).get("conditions") or ()}
    wanted = {"PodScheduled": _condition("PodScheduled", missing="")} if "PodScheduled" not in before else {}
    wanted |= {
        "PodReadyToStartContainers": _condition("PodReadyToStartContainers", missing=""),
        "Initialized": _initialized(lifecycle),
    }
    containers_ready = _containers_ready(lifecycle)
    wanted["ContainersReady"] = containers_ready
    wanted["Ready"] = _ready(pod, containers_ready, before)
    return [
        *(entry for kind, entry in before.items() if kind not in wanted),
        *(_dated(entry, before.get(kind), now) for kind, entry in wanted.items()),
    ]


def _condition(kind: str, *, missing: str, message: str = "") -> JsonObject:
    """Build a condition: true unless something is missing, whose name is the reason."""
    condition: JsonObject = {"type": kind, "status": "False" if missing else "True"}
    if missing:
        condition["reason"] = missing
    if message:
        condition["message"] = message
    return condition


def _dated(condition: JsonObject, before: JsonObject | None, now: datetime) -> JsonObject:
    same = before is not None and before.get("status") == condition["status"]
    changed_at = before.get("lastTransitionTime") if before is not None and same else None
    return condition | {"lastProbeTime": None, "lastTransitionTime": changed_at or timestamp(now)}


def _initialized(lifecycle: PodLifecycle) -> JsonObject:
    if lifecycle.initialized:
        return _condition("Initialized", missing="") | (
            {"reason": "PodCompleted"} if lifecycle.phase == "Succeeded" else {}
        )
    incomplete = [c.name for c in lifecycle.containers.values() if c.role == "init" and not c.succeeded]
    incomplete += [c.name for c in lifecycle.containers.values() if c.role == "sidecar" and not c.ever_started]
    return _condition(
        "Initialized",
        missing="ContainersNotInitialized",
        message=f"containers with incomplete status: [{' '.join(incomplete)}]",
    )


def _containers_ready(lifecycle: PodLifecycle) -> JsonObject:
    if lifecycle.phase in FINAL_PHASES:
        return _condition("ContainersReady", missing="PodCompleted" if lifecycle.phase == "Succeeded" else "PodFailed")
    unready = [c.name for c in lifecycle.containers.values() if c.role != "init" and not _is_ready(c)]
    if not unready:
        return _condition("ContainersReady", missing="")
    return _condition(
        "ContainersReady",
        missing="ContainersNotReady",
        message=f"containers with unready status: [{' '.join(unready)}]",
    )


def _ready(pod: JsonObject, containers_ready: JsonObject, conditions: dict[str, JsonObject]) -> JsonObject:
    if containers_ready["status"] == "True":
        for gate in pod["spec"].get("readinessGates") or ():
            kind = gate["conditionType"]
            if conditions.get(kind, {}).get("status") != "True":
                message = f'corresponding condition of pod readiness gate "{kind}" is not True'
                return _condition("Ready", missing="ReadinessGatesNotReady", message=message)
    return containers_ready | {"type": "Ready"}


class PodEvents:
    """Tells what happens to a pod."""

    def __init__(self, pod: JsonObject, events: EventBroadcaster) -> None:
        self._pod = pod
        self._events = events
        self._told: dict[str, str] = {}
        """The last message about each container that waits."""

    def warn(self, reason: str, message: str, *, container: str = "") -> None:
        """Tell of a problem of the pod or of one of its containers."""
        self._events.warning(self._pod, reason, message, field_path=self._field_path(container))

    def inform(self, reason: str, message: str, *, container: str = "") -> None:
        """Tell of something expected."""
        self._events.normal(self._pod, reason, message, field_path=self._field_path(container))

    def started(self, container: str) -> None:
        """Note that a container waits for nothing any more: what keeps it waiting later is told again."""
        self._told.pop(container, None)

    def restart_waits(self, container: Container) -> None:
        """Tell that a container which ended waits for its restart."""
        if self._is_new(container.name, container.message):
            metadata = self._pod["metadata"]
            title = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            message = f"Back-off restarting failed container {container.name} in pod {title}"
            self.warn("BackOff", message, container=container.name)

    def start_failed(self, container: str, problem: CreateContainerError | PodRejectedError) -> None:
        """Tell that a container cannot be started."""
        if not self._is_new(container, problem.message):
            return
        if isinstance(problem, ImagePullError):
            self._pull_failed(container, problem)
        elif isinstance(problem, CreateContainerError) and problem.volume:  # what all containers of the pod share
            self.warn("FailedMount", f'MountVolume.SetUp failed for volume "{problem.volume}" : {problem.message}')
        else:
            self.warn("Failed", f"Error: {problem.message}", container=container)

    def pull_secrets_missing(self, names: Sequence[str]) -> None:
        """Tell which credentials for registries are missing; nothing waits for them."""
        listed = ", ".join(names)
        if names and self._is_new("", listed):
            message = (
                f"Unable to retrieve some image pull secrets ({listed}); attempting to pull the image may not succeed."
            )
            self.warn("FailedToRetrieveImagePullSecret", message)

    def _pull_failed(self, container: str, problem: ImagePullError) -> None:
        if problem.reason == INVALID_NAME:
            self.warn("InspectFailed", problem.message, container=container)
        elif problem.reason == PULL_FAILED:
            self.inform("Pulling", f'Pulling image "{problem.image}"', container=container)
            self.warn("Failed", f'Failed to pull image "{problem.image}": {problem.message}', container=container)
        else:
            self.inform("BackOff", f'Back-off pulling image "{problem.image}"', container=container)
        self.warn("Failed", f"Error: {problem.reason}", container=container)

    def _is_new(self, about: str, message: str) -> bool:
        known, self._told[about] = self._told.get(about), message
        return known != message

    def _field_path(self, container: str) -> str:
        return container_field_path(self._pod, container) if container else ""
