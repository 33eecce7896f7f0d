"""Apply: performs the writes of a plan, in order.

Guarantees:
- A-2, A-3, A-5: objects are applied in full, with force, under one field manager.
- A-4: there are no nulls in them. Empty maps are sent as their author wrote them: an empty `emptyDir` is a volume.
- C-10, L-14: a write about an object that was seen carries its UID: if another one has taken its name meanwhile, the
  server refuses, and the key is reconciled again.
- C-2: an apply that meets what an earlier try made is as good as one that makes it.
- C-4: what was written or deleted is expected from the caches before the key is reconciled again.
- C-1: what was built before and is missing now is built again only for a TrainJob that the server still has as the
  cache shows it. Otherwise its children, which were collected after it, would come back until the cache catches up.
- B29: if the whole of an object is refused, the part of it that cannot wait is changed alone.
- What may change nothing (`Drift.POSSIBLE`) is applied once, and again after a restart: its answer is the same then.
- A contested object (see `write_backoff`) is written less often. Others do not wait for it, unless it is missing: what
  comes after it in the plan may build on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
from cachetools import LRUCache

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TransportError,
)
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.reconciling.trainjobs.managedfields import owned_fields_of
from trainmaster.controller.reconciling.trainjobs.observe import GroupVersionKind
from trainmaster.controller.reconciling.trainjobs.plan import Apply, Plan
from trainmaster.controller.reconciling.trainjobs.problems import ProblemReporter
from trainmaster.controller.reconciling.trainjobs.write_backoff import (
    FieldConflict,
    WriteBackoff,
    digest,
    find_field_conflict,
)
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

_SETTLED: Final = 65_536


class Applier:
    """Performs plans.

    Args:
        client: Performs the requests.
        trainjobs: The cache of TrainJobs.
        stores: All caches of what is written, by API version and kind, each with its resource.
        expectations: Hold the key up until the caches show its writes.
        write_backoff: Counts the writes of each object.
        problem_reporter: Reports that somebody keeps undoing them.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        trainjobs: Store,
        stores: Mapping[GroupVersionKind, tuple[Resource, Store]],
        expectations: Expectations,
        write_backoff: WriteBackoff,
        problem_reporter: ProblemReporter,
    ) -> None:
        self._client = client
        self._trainjobs = trainjobs
        self._stores = stores
        self._expectations = expectations
        self._write_backoff = write_backoff
        self._problem_reporter = problem_reporter
        self._settled: LRUCache[str, bytes] = LRUCache(_SETTLED)
        """By UID of an object: what was applied to it, if an apply of that is not certain to change anything."""

        self._uncertain: set[str] = set()
        """Keys for which an apply may have been performed although its answer was lost."""

    def forget(self, key: str) -> None:
        """Forget a TrainJob that is gone."""
        self._uncertain.discard(key)

    async def apply(self, key: str, raw: JsonObject, planned: Plan) -> float | None:
        """Perform a plan for the TrainJob `raw`; returns the seconds after which a contested object is due again."""
        for obj in planned.deletes:
            await self._delete(key, obj)
        waits: list[float] = []
        for apply in planned.applies:
            wait = await self._apply_object(key, raw, apply)
            if wait is not None:
                waits.append(wait)
                if apply.uid is None:
                    break
        return min(waits, default=None)

    async def delete_expired(self, key: str, raw: JsonObject) -> None:
        """Delete the TrainJob `raw`, which has outlived its time to live, unless it is another one or has changed."""
        metadata = raw["metadata"]
        try:
            await self._client.delete(
                TRAINJOBS,
                metadata["namespace"],
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
            log.info("deleted, its time to live has passed")
        except NotFound:
            log.debug("to be deleted, but gone already")
        self._expectations.expect_deletion(key, raw, self._trainjobs)

    async def _apply_object(self, key: str, raw: JsonObject, apply: Apply) -> float | None:
        obj = apply.object
        what = f'{obj["kind"]} "{obj["metadata"]["name"]}"'
        trainjob, target = raw["metadata"]["uid"], f"{obj['apiVersion']} {what}"
        resource, store = self._stores[obj["apiVersion"], obj["kind"]]
        if not apply.certain and self._is_settled(apply, trainjob, target):
            return None
        delay = self._write_backoff.delay(trainjob, target, obj)
        if delay is not None:
            if delay.first:
                self._problem_reporter.report_conflict(raw, what, await self._find_field_conflict(resource, obj))
            return delay.seconds
        written_before = self._write_backoff.wrote_recently(trainjob, target, obj)
        if apply.uid is None and (key in self._uncertain or written_before or raw.get("status")):
            await self._check_owner(raw)
        sent = obj if apply.uid is None else {**obj, "metadata": {**obj["metadata"], "uid": apply.uid}}
        try:
            written = await self._client.apply(resource, sent, field_manager=FIELD_MANAGER)
        except TransportError:
            self._uncertain.add(key)
            raise
        except NotFound as error:
            if error.reason:
                raise
            # A kind that is not served is answered by a page of the web server, not by a Status.
            missing = f"the cluster does not serve {obj['kind']} ({obj['apiVersion']}); install what serves it"
            raise NotFound(status=404, reason="NotFound", message=missing) from error
        except (BadRequest, Forbidden, Invalid) as error:
            if apply.at_least is None:
                raise
            log.warning("refused as a whole, changed in part", object=what, refusal=str(error))
            metadata = obj["metadata"]
            written = await self._client.patch(
                resource,
                metadata["namespace"],
                metadata["name"],
                {**apply.at_least, "metadata": {"uid": apply.uid}},
                field_manager=FIELD_MANAGER,
            )
        self._uncertain.discard(key)
        log.info("applied", kind=obj["kind"], object=obj["metadata"]["name"])
        self._expectations.expect_write(key, written, store)
        self._write_backoff.record_write(trainjob, target, obj)
        if not apply.certain and apply.uid is not None:
            self._settled[apply.uid] = digest(obj)
        return None

    def _is_settled(self, apply: Apply, trainjob: str, target: str) -> bool:
        """Tell whether an object is what the server made of the last apply, which had the same content."""
        if apply.uid is None:
            return False
        if self._write_backoff.wrote_recently(trainjob, target, apply.object):
            self._settled[apply.uid] = digest(apply.object)
        return self._settled.get(apply.uid) == digest(apply.object)

    async def _check_owner(self, raw: JsonObject) -> None:
        """Read the TrainJob itself, and refuse to go on if the cache is behind: its event will bring the key back."""
        metadata = raw["metadata"]
        try:
            live = await self._client.get(TRAINJOBS, metadata["namespace"], metadata["name"])
        except NotFound as error:
            raise Conflict(status=409, reason="Conflict", message="the TrainJob is gone, the cache lags") from error
        if live["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict(status=409, reason="Conflict", message="the TrainJob has changed, the cache lags")

    async def _find_field_conflict(self, resource: Resource, obj: JsonObject) -> FieldConflict:
        """Read what the others made of an object; the caches do not keep who set what."""
        metadata = obj["metadata"]
        try:
            live = await self._client.get(resource, metadata["namespace"], metadata["name"])
        except NotFound:
            return FieldConflict(["the whole object, which is deleted"], [])
        except KubeError as error:
            return FieldConflict([f"unknown, because it cannot be read: {error}"], [])
        return find_field_conflict(live, obj, owned_fields_of(live, FIELD_MANAGER) or {})

    async def _delete(self, key: str, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        resource, store = self._stores[obj["apiVersion"], obj["kind"]]
        try:
            await self._client.delete(resource, metadata["namespace"], metadata["name"], uid=metadata["uid"])
            log.info("deleted", kind=obj["kind"], object=metadata["name"])
        except (NotFound, Conflict):
            # Gone already, or another one by now: either way this one is no more, and the cache is behind.
            log.debug("to be deleted, but gone already", kind=obj["kind"], object=metadata["name"])
        self._expectations.expect_deletion(key, obj, store)
