"""Listers that read a cluster itself, when a decision needs to.

Decisions are synchronous and read caches. Here there is no cache yet: what is read first is absent and is
noted. Whoever decides fetches what was noted and decides again, until nothing is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import Watch, index_functions, objects_by_index
from trainmaster.runtime.ownership import is_controlled_by

ObjectKey = tuple[str, str, str | None, str]
"""API version, kind, namespace and name."""

_Question = ObjectKey | tuple[str, str, str | None] | GroupVersionKind
"""What is asked for: an object, the collection of a namespace, or, by its kind alone, whether that is served."""


class LiveListers(StoreListers):
    """Listers that are the same as those of the controller, from requests instead of caches.

    Kinds that no watch declares read as absent, as they do for the controller. `changed` counts in place of what the
    cluster has.
    """

    def __init__(
        self,
        client: KubeClient,
        rest_mapper: RestMapper,
        watches: Iterable[Watch],
        changed: Mapping[ObjectKey, JsonObject],
    ) -> None:
        watches = list(watches)
        kinds = dict.fromkeys((each.api_version, each.kind) for each in watches if each.workload)
        super().__init__({}, workloads=list(kinds))
        self._client = client
        self._rest_mapper = rest_mapper
        self._indexes = index_functions(watches)
        self._resources: dict[GroupVersionKind, Resource] = {
            (each.api_version, each.kind): each
            for each in (TRAINJOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS)
        }
        for watch in watches:
            self._resources.setdefault((watch.api_version, watch.kind), watched_resource(watch))
        self._changed = changed
        self._answers: dict[_Question, Any] = {}
        self._wanted: dict[_Question, None] = {}

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object as it would be, if it is known yet."""
        key = (api_version, kind, namespace or None, name)
        found = self._changed[key] if key in self._changed else self._known(key, None)
        return None if found is None else strip_managed_fields(copy_tree(found))

    def body(self, api_version: str, kind: str, namespace: str | None, name: str) -> bytes | None:
        """Return the JSON of one object as it would be, if it is known yet."""
        found = self.get(api_version, kind, namespace, name)
        return None if found is None else orjson.dumps(found)

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all objects of a kind as they would be, as far as they are known."""
        if (api_version, kind) not in self._resources:
            return ()
        found = {_named(obj): obj for obj in self._known((api_version, kind, namespace or None), ())}
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
        return (api_version, kind) in self._resources and bool(self._known((api_version, kind), True))

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        """Return the workloads that a TrainJob controls, as far as they are known.

        Mostly one is called like it, and then no others are looked at: no request tells what belongs to whom.
        """
        namespace, name = job.metadata.namespace, job.metadata.name
        for api_version, kind in self.workload_kinds if job.metadata.uid not in ("", UID) else ():
            named = self.get(api_version, kind, namespace, name)
            if named is not None and is_controlled_by(named, job):
                yield named
            elif (api_version, kind, namespace, name) in self._answers:
                yield from (obj for obj in self.list(api_version, kind, namespace) if is_controlled_by(obj, job))

    def controlled(self, job: TrainJob, kinds: Iterable[GroupVersionKind]) -> Iterator[JsonObject]:
        """Return the objects of some kinds that a TrainJob controls, as far as they are known."""
        for kind in kinds:
            yield from (obj for obj in self.list(*kind, job.metadata.namespace) if is_controlled_by(obj, job))

    def workload_size(self, job: TrainJob) -> int:  # noqa: ARG002 - the protocol's
        """Return 0: nothing is cached."""
        return 0

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that somebody declared."""
        return self._resources.get((api_version, kind))

    async def fetch(self) -> bool:
        """Fetch what was read in vain; returns whether there was anything."""
        wanted, self._wanted = self._wanted, {}
        for question in wanted:
            self._answers[question] = await self._ask(question)
        return bool(wanted)

    def _known(self, question: _Question, until_then: Any) -> Any:
        """Return an answer, or note the question; nobody asks for kinds that were not declared."""
        if question not in self._answers and question[:2] in self._resources:
            self._wanted[question] = None
        return self._answers.get(question, until_then)

    async def _ask(self, question: _Question) -> Any:
        try:
            match question:
                case (api_version, kind, namespace, name):
                    return await self._client.get(self._resources[api_version, kind], namespace, name)
                case (api_version, kind, namespace):
                    return (await self._client.list(self._resources[api_version, kind], namespace))["items"]
            return await self._rest_mapper.resource(*question) is not None
        except NotFound:  # it does not exist, or the kind is not served
            return None if len(question) == 4 else ()


def _named(obj: JsonObject) -> tuple[str | None, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace"), metadata["name"]
