"""Queues of Volcano: the default one exists, and each counts its PodGroups by phase."""

from __future__ import annotations

from collections import Counter

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS, VOLCANO_POD_GROUPS, VOLCANO_QUEUES
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find

DEFAULT_QUEUE = "default"
_OPTIONS = WriteOptions(field_manager="vc-scheduler")
_PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")


class QueueController(SingleLoopController):
    """Keeps queues as Volcano's own controller does."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._loop = ControlLoop("volcano-queue", self._reconcile, api=api)
        self._loop.watch_keys(VOLCANO_QUEUES)
        self._loop.watch(VOLCANO_POD_GROUPS, self._group_changed)
        self._loop.watch(CRDS, self._definition_changed)

    def _definition_changed(self, event: Event) -> None:
        if event.key.name == str(VOLCANO_QUEUES):
            self._loop.add(ObjectKey(VOLCANO_QUEUES, "", DEFAULT_QUEUE))

    def _group_changed(self, event: Event) -> None:
        for record in (event.previous, event.record):
            if record is not None:
                queue = (record.object.get("spec") or {}).get("queue", DEFAULT_QUEUE)
                self._loop.add(ObjectKey(VOLCANO_QUEUES, "", queue))

    async def _reconcile(self, key: ObjectKey) -> None:
        if not self._api.registry.serves(VOLCANO_QUEUES):
            return
        queue = find(self._api, key)
        if queue is None:
            if key.name == DEFAULT_QUEUE:
                body = {
                    "apiVersion": f"{VOLCANO_QUEUES.group}/v1beta1",
                    "kind": "Queue",
                    "metadata": {"name": DEFAULT_QUEUE},
                    "spec": {"weight": 1, "reclaimable": True},
                }
                await self._api.create(VOLCANO_QUEUES, body, options=_OPTIONS)
            return
        groups = (record.object for record in self._api.store.list(VOLCANO_POD_GROUPS))
        counted = Counter(
            (group.get("status") or {}).get("phase", "Pending")
            for group in groups
            if (group.get("spec") or {}).get("queue", DEFAULT_QUEUE) == key.name
        )
        known = queue.get("status") or {}
        status = {**known, "state": known.get("state", "Open")}
        status |= {phase.lower(): counted[phase] for phase in _PHASES}
        if status != known:
            await self._api.update(VOLCANO_QUEUES, {**queue, "status": status}, subresource="status", options=_OPTIONS)
