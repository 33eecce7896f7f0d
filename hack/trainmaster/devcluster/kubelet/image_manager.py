"""Images: those that no node could have keep their containers waiting, with the words of kubelet and containerd.

Nothing is pulled here, so almost any image will do. Two kinds cannot exist anywhere, and are refused as on a real node:

- References that are none, by the grammar of the distribution project: the reason is InvalidImageName.
- Images of a registry whose name ends in `.invalid`, which RFC 2606 keeps free of hosts for good: ErrImagePull, then
  ImagePullBackOff. So a failing pull can be tried out, with pauses that grow as those between restarts do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.devcluster.kubelet.container import CreateContainerError
from trainmaster.devcluster.kubelet.pod_lifecycle import MAX_RESTART_BACKOFF
from trainmaster.devcluster.settings import RESERVED_DOMAIN

INVALID_NAME: Final = "InvalidImageName"
PULL_FAILED: Final = "ErrImagePull"
PULL_BACKOFF: Final = "ImagePullBackOff"

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    r"(?:(?P<registry>(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\])(?::\d+)?|[A-Za-z0-9-]+:\d+)/)?"
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)


class ImagePullError(CreateContainerError):
    """The image of a container is not to be had; the container waits, and another attempt is made later."""

    def __init__(self, reason: str, message: str, *, image: str) -> None:
        super().__init__(reason, message)
        self.image = image


@dataclass(slots=True)
class _Pull:
    """The attempts to pull one image."""

    failures: int
    error: str
    not_before: datetime


class ImageManager:
    """The attempts of one pod to get its images.

    Args:
        backoff: Seconds before the second attempt; they double with each further one.
        clock: The time.
    """

    def __init__(self, *, backoff: float, clock: Callable[[], datetime]) -> None:
        self._backoff = backoff
        self._clock = clock
        self._pulls: dict[str, _Pull] = {}

    def ensure_image_exists(self, image: str) -> None:
        """Return if a container can have the image; raises ImagePullError otherwise, with the waiting reason."""
        found = _REFERENCE.fullmatch(image)
        if found is None:
            raise ImagePullError(INVALID_NAME, _invalid_name(image), image=image)
        if not is_unreachable(image):
            return
        now, pull = self._clock(), self._pulls.get(image)
        if pull is not None and now < pull.not_before:
            waits = f'Back-off pulling image "{image}": {PULL_FAILED}: {pull.error}'
            raise ImagePullError(PULL_BACKOFF, waits, image=image)
        failures = 1 if pull is None else pull.failures + 1
        delay = min(self._backoff * 2.0 ** min(failures, 60), MAX_RESTART_BACKOFF)
        error = _no_such_host(image, found)
        self._pulls[image] = _Pull(failures, error, now + timedelta(seconds=delay))
        raise ImagePullError(PULL_FAILED, error, image=image)


def is_unreachable(image: str) -> bool:
    """Tell whether the registry of an image has a name that is reserved for what does not exist."""
    found = _REFERENCE.fullmatch(image)
    registry = (found["registry"] or "") if found else ""
    return registry.partition(":")[0].endswith(RESERVED_DOMAIN)


def _no_such_host(image: str, found: re.Match[str]) -> str:
    """Word the failure as containerd does when the name of a registry cannot be resolved."""
    registry = found["registry"]
    reference = image if found["tag"] or found["digest"] else f"{image}:latest"
    manifest = found["digest"] or found["tag"] or "latest"
    return (
        f'failed to pull and unpack image "{reference}": failed to resolve reference "{reference}": failed to do '
        f'request: Head "https://{registry}/v2/{found["path"]}/manifests/{manifest}": dial tcp: '
        f"lookup {registry.partition(':')[0]}: no such host"
    )


def _invalid_name(image: str) -> str:
    detail = "invalid reference format"
    if _REFERENCE.fullmatch(image.lower()):
        name = image.partition("@")[0]
        head, _, last = name.rpartition("/")
        path = "/".join(filter(None, (head, last.partition(":")[0])))
        detail += f": repository name ({path if '/' in path else f'library/{path}'}) must be lowercase"
    return f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {detail}'
