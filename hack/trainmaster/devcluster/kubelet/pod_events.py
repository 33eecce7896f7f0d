"""Events about pods, written in the background: no pod waits for them, and one that cannot be written is forgotten."""

from __future__ import annotations

import asyncio
from typing import Literal

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

_COMPONENT = "kubelet"
_MOST_WAITING = 10_000


class PodEvents:
    """Tells users what happens to containers."""

    def __init__(self, api: Api) -> None:
        self._recorder = EventRecorder(api, _COMPONENT)
        self._waiting: asyncio.Queue[tuple[JsonObject, Note]] = asyncio.Queue(_MOST_WAITING)

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            pod, note = await self._waiting.get()
            await self._recorder.record(pod, note)

    def normal(self, pod: JsonObject, reason: str, message: str, *, container: str = "") -> None:
        """Tell of something expected."""
        self._put(pod, "Normal", reason, message, container)

    def warning(self, pod: JsonObject, reason: str, message: str, *, container: str = "") -> None:
        """Tell of something that somebody may have to look at."""
        self._put(pod, "Warning", reason, message, container)

    def _put(
        self, pod: JsonObject, kind: Literal["Normal", "Warning"], reason: str, message: str, container: str
    ) -> None:
        if not self._waiting.full():  # then there are enough to look at
            self._waiting.put_nowait((pod, Note(kind, reason, message, _field_path(pod, container))))


def _field_path(pod: JsonObject, container: str) -> str:
    if not container:
        return ""
    starting = any(entry["name"] == container for entry in pod["spec"].get("initContainers") or ())
    return f"spec.{'initContainers' if starting else 'containers'}{{{container}}}"
