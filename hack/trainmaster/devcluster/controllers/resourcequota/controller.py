"""The controller of resource quotas: their status says what is allowed, and what is used."""

from __future__ import annotations

from typing import Final

from trainmaster.devcluster.apiserver.admission.plugins.resourcequota import counted, used_in
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find

_OPTIONS: Final = WriteOptions(field_manager="resourcequota-controller")
_WATCHED: Final = (PODS, PERSISTENT_VOLUME_CLAIMS)
_RESYNC: Final = 10.0
"""Seconds between two counts of what is not watched."""


class ResourceQuotaController(SingleLoopController):
    """Counts for each quota."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._loop = ControlLoop("resourcequota", self._reconcile, api=api)
        self._loop.watch_keys(RESOURCE_QUOTAS)
        for resource in _WATCHED:
            self._loop.watch(resource, self._usage_changed)

    def _usage_changed(self, event: Event) -> None:
        for record in self._api.store.list(RESOURCE_QUOTAS, event.key.namespace):
            self._loop.add(ObjectKey(RESOURCE_QUOTAS, event.key.namespace, record.metadata["name"]))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        quota = find(self._api, key)
        if quota is None:
            return None
        hard = quota["spec"].get("hard") or {}
        used = {name: str(amount) for name, amount in used_in(self._api.store, key.namespace, hard).items()}
        status = {"hard": hard, "used": used} if hard else {}
        if status != quota.get("status", {}):
            await self._api.update(
                RESOURCE_QUOTAS,
                {**quota, "status": status},
                namespace=key.namespace,
                subresource="status",
                options=_OPTIONS,
            )
        return None if counted(hard) <= set(_WATCHED) else _RESYNC
