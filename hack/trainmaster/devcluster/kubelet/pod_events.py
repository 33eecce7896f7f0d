"""Events about one pod: each fact about a container that waits is told once, in the kubelet's words."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container import (
    Container,
    CreateContainerError,
    PodRejectedError,
    container_field_path,
)
from trainmaster.devcluster.kubelet.image_manager import INVALID_NAME, PULL_FAILED, ImagePullError
from trainmaster.runtime.jsontree import JsonObject


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
