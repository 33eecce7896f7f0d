"""What a container runs. Images are never pulled, so the command has to be in the pod.

The entrypoint of an image is written inside the image. A container that relies on it has no meaning as a local
process: it fails the pod with a message that says so, instead of waiting for ever.
"""

from __future__ import annotations

from trainmaster.devcluster.kubelet.problems import ImpossibleError
from trainmaster.runtime.jsontree import JsonObject


def command_of(container: JsonObject) -> list[str]:
    """Give the container's command with its arguments, before the expansion of variables."""
    command = container.get("command")
    if not command:
        name, image = container["name"], container.get("image") or "<none>"
        raise ImpossibleError(
            "ImageEntrypointUnknown",
            f"container {name!r} has no command, and the entrypoint of image {image!r} is not known: the embedded "
            "cluster runs containers as local processes and reads no images; set `command` in the container",
        )
    return [*command, *(container.get("args") or ())]
