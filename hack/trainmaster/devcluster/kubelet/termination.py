"""The last words of a container: what it left in its termination message file, or the end of its log."""

from __future__ import annotations

from trainmaster.devcluster.kubelet.container_logs import tail
from trainmaster.devcluster.kubelet.directories import PodFiles
from trainmaster.devcluster.kubelet.launch import termination_file
from trainmaster.runtime.jsontree import JsonObject

_MESSAGE_LIMIT = 4096
_LOG_LIMIT = 2048
_LOG_LINES = 80


def last_words(container: JsonObject, *, files: PodFiles, attempt: int, failed: bool) -> str:
    """Read the termination message; the log stands in for it if the policy says so and the container failed."""
    try:
        with termination_file(files, container).open("rb") as message:
            text = message.read(_MESSAGE_LIMIT)
        if not text and failed and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = tail(files.log(container["name"], attempt), lines=_LOG_LINES)[-_LOG_LIMIT:]
    except OSError:  # the program may have replaced its file by anything
        return ""
    return text.decode(errors="replace")
