"""Namespace termination: a namespace that is being deleted loses its content, then its finalizer, then itself.

What cannot go yet, because finalizers hold it, stands in the conditions of the namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import NAMESPACES, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import delete, find
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.runtime.jsontree import JsonObject

_FINALIZER = "kubernetes"
_OPTIONS = WriteOptions(field_manager="namespace-controller")


def content_conditions(
    namespace: JsonObject, remaining: Sequence[tuple[GroupResource, JsonObject]], *, now: datetime
) -> list[JsonObject]:
    """Return the conditions; one whose status has not changed keeps the time of its last transition."""
    resources = Counter(str(resource) for resource, _ in remaining)
    finalizers = Counter(name for _, obj in remaining for name in obj["metadata"].get("finalizers") or ())
    left = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(resources.items()))
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    conditions = [
        _condition(
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            f"Some resources are remaining: {left}",
            value=True,
            now=now,
        ),
        _condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
            f"Some content in the namespace has finalizers remaining: {held}"
            if held
            else "All content-preserving finalizers finished",
            value=bool(held),
            now=now,
        ),
    ]
    old = {condition["type"]: condition for condition in namespace.get("status", {}).get("conditions") or ()}
    for condition in conditions:
        known = old.get(condition["type"])
        if known is not None and known["status"] == condition["status"]:
            condition["lastTransitionTime"] = known["lastTransitionTime"]
    return conditions


def _condition(kind: str, reason: str, message: str, *, value: bool, now: datetime) -> JsonObject:
    return {
        "type": kind,
        "status": "True" if value else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }


class NamespaceController(SingleLoopController):
    """Empties and removes namespaces whose deletion was requested."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._terminating: set[str] = set()
        self._loop = ControlLoop("namespace", self._reconcile, api=api)
        self._loop.watch(NAMESPACES, self._namespace_changed)
        self._loop.watch(None, self._content_changed)

    def _namespace_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._terminating.discard(event.key.name)
        elif is_terminating(event.record.object):
            self._terminating.add(event.key.name)
            self._loop.add(event.key)

    def _content_changed(self, event: Event) -> None:
        if event.key.namespace in self._terminating:
            self._loop.add(ObjectKey(NAMESPACES, "", event.key.namespace))

    async def _reconcile(self, key: ObjectKey) -> None:
        namespace = find(self._api, key)
        if namespace is None or not is_terminating(namespace):
            return
        for resource, obj in self._content(key.name):
            if not is_terminating(obj):
                await delete(self._api, resource, obj, propagation="Background")
        remaining = self._content(key.name)
        if remaining:
            await self._set_conditions(namespace, remaining)
            return
        finalizers = [name for name in namespace["spec"].get("finalizers") or () if name != _FINALIZER]
        await self._api.update(
            NAMESPACES,
            {**namespace, "spec": {**namespace["spec"], "finalizers": finalizers}},
            subresource="finalize",
            options=_OPTIONS,
        )

    def _content(self, namespace: str) -> list[tuple[GroupResource, JsonObject]]:
        # Two kinds may share one storage; each object is seen once, as the kind that it is stored as.
        resources = {kind.stored_as: None for kind in self._api.registry.kinds() if kind.namespaced}
        return [(each, record.object) for each in resources for record in self._api.store.list(each, namespace)]

    async def _set_conditions(self, namespace: JsonObject, remaining: list[tuple[GroupResource, JsonObject]]) -> None:
        conditions = content_conditions(namespace, remaining, now=self._api.clock())
        status = {**namespace.get("status", {}), "conditions": conditions}
        if status != namespace.get("status"):
            await self._api.update(NAMESPACES, {**namespace, "status": status}, subresource="status", options=_OPTIONS)
