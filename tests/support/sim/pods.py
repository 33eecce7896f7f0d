"""Scheduler and kubelet of a simulated cluster: pods that run without containers, and PodGroups of Volcano.

As the other actors they act through the API after delays drawn from the seed, depend on nothing but the state that they
find, and never fail.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.sim.actors import Actor, unless_changed
from support.sim.server import SimServer

from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import PODS, VOLCANO_POD_GROUPS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="kubelet")
_TERMINATION = 1.0
"""Seconds that a container takes to end at most."""


@dataclass(frozen=True, slots=True)
class PodFate:
    """What becomes of a pod once it runs."""

    seconds: float | None = 60.0
    """How long it runs; None: for ever."""
    exit_code: int = 0
    """With which its container ends; -1: the pod is evicted."""
    writes: float = 0.0
    """For how many seconds it writes a line to its log every five."""


class NodeActor(Actor):
    """Binds, runs and ends pods, and lets gangs of Volcano in."""

    def __init__(self, server: SimServer, chooser: random.Random, fates: Mapping[str, Sequence[PodFate]]) -> None:
        super().__init__(server, chooser, PODS, VOLCANO_POD_GROUPS)
        self._fates = fates
        self._incarnations: dict[str, list[str]] = {}
        """By name: the UIDs that there were."""
        self.lost: set[str] = set()
        """Nodes that are silent: nothing happens there any more."""
        server.log_of = self._log

    async def _step(self, key: ObjectKey, obj: JsonObject) -> float | None:
        if obj["spec"].get("nodeName") in self.lost:
            return None
        if "deletionTimestamp" in obj["metadata"]:
            await self._terminate(key)
            return None
        due = self._run_pod(obj) if key.resource == PODS else self._admit_gang(obj)
        if not isinstance(due, tuple):
            return due
        await self._patch(key, obj["metadata"]["uid"], *due)
        return None

    def _run_pod(self, pod: JsonObject) -> tuple[str, JsonObject] | float | None:
        """Return what is to be written of a pod, by subresource, or the seconds until something is due."""
        name, uid, now = pod["metadata"]["name"], pod["metadata"]["uid"], asyncio.get_running_loop().time()
        if not pod["spec"].get("nodeName"):
            return "binding", {"spec": {"nodeName": self._node_for(pod)}}
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if phase in ("Succeeded", "Failed"):
            return None
        since, fate = self._running_since.get(uid), self._fate(name, uid)
        if since is None:
            self._running_since[uid] = now
            running = {"startedAt": timestamp(self._api.clock())}
            return "status", {"status": self._status(pod, "Running", {"running": running})}
        if fate.seconds is None or now < since + fate.seconds:
            return None if fate.seconds is None else since + fate.seconds - now
        if fate.exit_code < 0:
            return "status", {"status": {"phase": "Failed", "reason": "Evicted"}}
        reason = {0: "Completed", 137: "OOMKilled"}.get(fate.exit_code, "Error")
        at = timestamp(self._api.clock())
        ended = {"terminated": {"exitCode": fate.exit_code, "reason": reason, "finishedAt": at}}
        return "status", {"status": self._status(pod, "Failed" if fate.exit_code else "Succeeded", ended)}

    def _fate(self, name: str, uid: str) -> PodFate:
        """Return the fate of a pod: the first one of a name has the first, and so on, all others the last.

        The names of pods of Jobs count without their random end.
        """
        name = name if name in self._fates else name.rpartition("-")[0]
        seen = self._incarnations.setdefault(name, [])
        if uid not in seen:
            seen.append(uid)
        fates = self._fates.get(name, [PodFate()])
        return fates[min(seen.index(uid), len(fates) - 1)]

    def _node_for(self, pod: JsonObject) -> str:
        """Return a node of its own for each rank of a Job; the spare one is for those whose node is lost."""
        rank = (pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index")
        name = "node" if rank is None else f"node-{rank}"
        return "spare" if name in self.lost else name

    def _log(self, pod: JsonObject) -> str:
        """Return the last line that a pod has written."""
        uid = pod["metadata"]["uid"]
        since, now = self._running_since.get(uid), asyncio.get_running_loop().time()
        if since is None or not (fate := self._fate(pod["metadata"]["name"], uid)).writes:
            return ""
        age = now - since - min(now - since, fate.writes) // 5 * 5
        return f"{timestamp(self._api.clock() - timedelta(seconds=age))} a step\n"

    def _status(self, pod: JsonObject, phase: str, state: JsonObject) -> JsonObject:
        ready = phase == "Running"
        return {
            "phase": phase,
            "startTime": timestamp(self._api.clock()),
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [
                {"name": each["name"], "image": each["image"], "imageID": "", "ready": ready, "restartCount": 0}
                | {"state": state}
                for each in pod["spec"]["containers"]
            ],
        }

    def _admit_gang(self, group: JsonObject) -> tuple[str, JsonObject] | float | None:
        """Let a gang in, as Volcano does: first nobody has looked at it, then it waits, then its pods may come."""
        phase = {"": "Pending", "Pending": "Inqueue"}.get((group.get("status") or {}).get("phase", ""))
        return ("", {"status": {"phase": phase}}) if phase is not None else None

    async def _patch(self, key: ObjectKey, uid: str, subresource: str, change: JsonObject) -> None:
        body = {**change, "metadata": {"uid": uid}}
        options: Any = {"patch_type": PatchType.MERGE, "subresource": subresource, "options": _OPTIONS}
        with unless_changed():
            await self._api.patch(key.resource, key.namespace, key.name, body, **options)

    async def _terminate(self, key: ObjectKey) -> None:
        """End a pod that is being deleted, and let it go."""
        if key.resource != PODS:
            return
        await asyncio.sleep(self._chooser.uniform(0.2, _TERMINATION))
        record = self._api.store.get(key)
        if record is None or "deletionTimestamp" not in record.metadata:
            return
        options = DeleteOptions(grace_seconds=0, uid=record.metadata["uid"])
        with unless_changed():
            await self._api.delete(PODS, key.namespace, key.name, options=options)
