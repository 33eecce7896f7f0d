"""Namespace termination: a namespace that is being deleted loses its content, then its finalizer, then itself.

What cannot go yet, because finalizers hold it, is told in the conditions of the namespace.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import NAMESPACES, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.client import delete, find
from trainmaster.devcluster.controllers.loop import ControllerLoop, SingleLoop
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.runtime.jsontree import JsonObject

_FINALIZER = "kubernetes"
_OPTIONS = WriteOptions(field_manager="namespace-controller")


class NamespaceController(SingleLoop):
    """Empties and removes namespaces whose deletion was requested."""

    def __init__(self, api: Api, *, settings: ControllerSettings) -> None:
        self._api = api
        self._terminating: set[str] = set()
        self._loop = ControllerLoop("namespace", self._reconcile, api=api, settings=settings)
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
            await self._explain(namespace, remaining)
            return
        finalizers = [name for name in namespace["spec"].get("finalizers") or () if name != _FINALIZER]
        await self._api.update(
            NAMESPACES,
            {**namespace, "spec": {**namespace["spec"], "finalizers": finalizers}},
            name=key.name,
            subresource="finalize",
            options=_OPTIONS,
        )

    def _content(self, namespace: str) -> list[tuple[GroupResource, JsonObject]]:
        # Two kinds may share one storage; each object is seen once, as the kind that it is stored as.
        resources = {kind.stored_as: None for kind in self._api.registry.kinds() if kind.namespaced}
        return [(each, record.object) for each in resources for record in self._api.store.list(each, namespace)]

    async def _explain(self, namespace: JsonObject, remaining: list[tuple[GroupResource, JsonObject]]) -> None:
        """Say in the status what is left and which finalizers hold it."""
        resources: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for resource, obj in remaining:
            resources[str(resource)] = resources.get(str(resource), 0) + 1
            for name in obj["metadata"].get("finalizers") or ():
                finalizers[name] = finalizers.get(name, 0) + 1
        left = ", ".join(f"{name} has {count} resource instances" for name, count in sorted(resources.items()))
        held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
        conditions = [
            self._condition(
                "NamespaceContentRemaining", "SomeResourcesRemain", f"Some resources are remaining: {left}", value=True
            ),
            self._condition(
                "NamespaceFinalizersRemaining",
                "SomeFinalizersRemain" if held else "ContentHasNoFinalizers",
                f"Some content in the namespace has finalizers remaining: {held}"
                if held
                else "All content-preserving finalizers finished",
                value=bool(held),
            ),
        ]
        old = {condition["type"]: condition for condition in namespace.get("status", {}).get("conditions") or ()}
        for condition in conditions:
            known = old.get(condition["type"])
            if known is not None and known["status"] == condition["status"]:
                condition["lastTransitionTime"] = known["lastTransitionTime"]
        status = {**namespace.get("status", {}), "conditions": conditions}
        if status != namespace.get("status"):
            await self._api.update(
                NAMESPACES,
                {**namespace, "status": status},
                name=namespace["metadata"]["name"],
                subresource="status",
                options=_OPTIONS,
            )

    def _condition(self, kind: str, reason: str, message: str, *, value: bool) -> JsonObject:
        return {
            "type": kind,
            "status": "True" if value else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(self._api.clock()),
        }
