"""Listers that read a cluster itself, when a decision needs to.

Decisions are synchronous and read caches. Here there is no cache yet: what is read first is absent and is
noted. Whoever decides fetches what was noted and decides again, until nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from trainmaster.controller.cli.files.offline import UID
from trainmaster.controller.cli.responses import RestMapper
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.reconciling.drift import strip_managed_fields
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, TRAINJOBS, watched_resource
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import Watch, index_functions, objects_by_index
from trainmaster.runtime.ownership import is_controlled_by

ObjectKey = tuple[str, str, str | None, str]
"""API version, kind, namespace and name."""


class LiveListers(StoreListers):
    """Listers that are the same as those of the controller, from requests instead of caches.

    Args:
        client: Where they come from.
        watches: What plugins declared; other kinds read as absent, as they do for the controller.
        changed: Objects that count in place of what the cluster has.
    """

    def __init__(self, client: KubeClient, watches: Iterable[Watch], changed: Mapping[ObjectKey, JsonObject]) -> None:
        watches = list(watches)
        kinds = dict.fromkeys((each.api_version, each.kind) for each in watches if each.workload)
        super().__init__({}, workloads=list(kinds))
        self._client = client
        self._rest_mapper = RestMapper(client)
        self._indexes = index_functions(watches)
        self._resources: dict[GroupVersionKind, Resource] = {
            (each.api_version, each.kind): each
            for each in (TRAINJOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS)
        }
        for watch in watches:
            self._resources.setdefault((watch.api_version, watch.kind), watched_resource(watch))
        self._changed = changed
        self._objects: dict[ObjectKey, JsonObject | None] = {}
        self._lists: dict[tuple[str, str, str | None], list[JsonObject]] = {}
        self._wanted: list[ObjectKey] = []
        self._wanted_lists: list[tuple[str, str, str | None]] = []
        self._served: dict[GroupVersionKind, bool] = {}
        self._wanted_kinds: list[GroupVersionKind] = []

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object as it would be, if it is known yet."""
        key = (api_version, kind, namespace or None, name)
        if key in self._changed:
            return strip_managed_fields(copy_tree(self._changed[key]))
        return self.live(key)

    def body(self, api_version: str, kind: str, namespace: str | None, name: str) -> bytes | None:
        """Return the JSON of one object as it would be, if it is known yet."""
        found = self.get(api_version, kind, namespace, name)
        return None if found is None else orjson.dumps(found)

    def live(self, key: ObjectKey) -> JsonObject | None:
        """Return one object as it is, if it is known yet."""
        if key[:2] not in self._resources:
            return None
        if key not in self._objects:
            self._wanted.append(key)
            return None
        found = self._objects[key]
        return strip_managed_fields(copy_tree(found)) if found is not None else None

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all objects of a kind as they would be, as far as they are known."""
        if (api_version, kind) not in self._resources:
            return ()
        key = (api_version, kind, namespace or None)
        if key not in self._lists:
            self._wanted_lists.append(key)
        found = {_named(obj): obj for obj in self._lists.get(key, ())}
        for (version, other, where, _), obj in self._changed.items():
            if (version, other) == (api_version, kind) and (not namespace or namespace == where):
                found[_named(obj)] = obj
        copies: list[JsonObject] = copy_tree(list(found.values()))
        return copies

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the objects that an index of a plugin has under a value, as they would be, as far as they are known.

        Raises:
            NoSuchIndex: No plugin declared it.
        """
        return objects_by_index(self, self._indexes, (api_version, kind), index, value)

    def is_served(self, api_version: str, kind: str) -> bool:
        """Tell whether the cluster serves a kind that somebody declared; True until that is known."""
        if (api_version, kind) not in self._resources:
            return False
        if (api_version, kind) not in self._served:
            self._wanted_kinds.append((api_version, kind))
        return self._served.get((api_version, kind), True)

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        """Return the workloads that a TrainJob controls, as far as they are known.

        Mostly one is called like it, and then no others are looked at: no request tells what belongs to whom.
        """
        namespace, name = job.metadata.namespace, job.metadata.name
        for api_version, kind in self.workload_kinds if job.metadata.uid not in ("", UID) else ():
            named = self.get(api_version, kind, namespace, name)
            if named is not None and is_controlled_by(named, job):
                yield named
            elif (api_version, kind, namespace, name) in self._objects:
                yield from (obj for obj in self.list(api_version, kind, namespace) if is_controlled_by(obj, job))

    def workload_size(self, job: TrainJob) -> int:  # noqa: ARG002 - the protocol's
        """Return 0: nothing is cached."""
        return 0

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that somebody declared."""
        return self._resources.get((api_version, kind))

    async def fetch(self) -> bool:
        """Fetch what was read in vain; returns whether there was anything."""
        objects, self._wanted = dict.fromkeys(self._wanted), []
        lists, self._wanted_lists = dict.fromkeys(self._wanted_lists), []
        kinds, self._wanted_kinds = dict.fromkeys(self._wanted_kinds), []
        for gvk in kinds:
            self._served[gvk] = await self._rest_mapper.resource(*gvk) is not None
        for key in objects:
            api_version, kind, namespace, name = key
            try:
                self._objects[key] = await self._client.get(self._resources[api_version, kind], namespace, name)
            except NotFound:
                self._objects[key] = None
        for each in lists:
            api_version, kind, namespace = each
            try:
                items = (await self._client.list(self._resources[api_version, kind], namespace))["items"]
            except NotFound:  # the kind is not served
                items = []
            self._lists[each] = items
        return bool(objects or lists or kinds)


def _named(obj: JsonObject) -> tuple[str | None, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace"), metadata["name"]
