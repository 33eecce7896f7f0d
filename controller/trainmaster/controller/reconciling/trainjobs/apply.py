"""Apply: performs the writes of a plan, in order.

Guarantees:
- A-2, A-3, A-5: objects are applied in full, with force, under one field manager.
- A-4: there are no nulls in them. Empty maps are sent as their author wrote them: an empty `emptyDir` is a volume.
- C-10, L-14: a write about an object that was seen carries its UID: if another one has taken its name meanwhile, the
  server refuses, and the key is reconciled again.
- C-2, E-5: an object that no cache shows is created, and an apply never changes it if it exists all the same: it may be
  what an earlier TrainJob of the name left, since each cache lags behind the server by a time of its own. What is this
  TrainJob's own, or will be collected, the key waits to see; what is somebody else's is said to be.
- C-4: what was written or deleted is expected from the caches before the key is reconciled again.
- C-1: what was built before and is missing now is built again only for a TrainJob that the server still has as the
  cache shows it. Otherwise its children, which were collected after it, would come back until the cache catches up.
  So is what an earlier leader may have built, of which this process knows nothing.
- B29: if the whole of an object is refused, the part of it that cannot wait is changed alone.
- What may change nothing (`Drift.POSSIBLE`) is applied once, and again after a restart: its answer is the same then.
- A contested object (see `write_backoff`) is written less often. Others do not wait for it, unless it is missing: what
  comes after it in the plan may build on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import structlog
from cachetools import LRUCache

from trainmaster.controller.kube.cache.store import Store, StoreReader, object_key, parse_resource_version
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TransportError,
)
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.drift import Drift, drift_of_created
from trainmaster.controller.reconciling.expectations import Expectations, WrittenStore
from trainmaster.controller.reconciling.managedfields import owned_fields_of
from trainmaster.controller.reconciling.owned_objects import check_owner, delete_owner, owner_rules, write_owned
from trainmaster.controller.reconciling.problems import NameTaken, ProblemReporter
from trainmaster.controller.reconciling.trainjobs.observe import GroupVersionKind, Observed
from trainmaster.controller.reconciling.trainjobs.plan import Apply, Plan, name_taken
from trainmaster.controller.reconciling.write_backoff import (
    FieldConflict,
    WriteBackoff,
    digest,
    find_field_conflict,
)
from trainmaster.controller.resources import TRAINJOBS, watched_resource
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.ownership import is_controlled_by, is_left_by_earlier

log = structlog.get_logger(__name__)

_SETTLED: Final = 65_536

_PART: Final = "trainjob_controller"


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes to apply what the declarers of some watches build.

    A server-side apply is a patch, which needs the right to create as well where there is nothing yet.
    """
    yield from owner_rules(TRAINJOBS, needed_by=_PART)
    for watch in watches:
        if not watch.writes:
            continue
        resource = watched_resource(watch)
        yield PolicyRule(
            resource=resource,
            verbs=("create",) if watch.creates_only else ("create", "patch"),
            needed_by=watch.declared_by,
            reason="build what a TrainJob consists of",
        )
        yield PolicyRule(
            resource=resource,
            verbs=("get",),
            needed_by=watch.declared_by,
            reason="find out whose an object is that stands in the way, and who undoes our writes",
        )
        if watch.workload:
            yield PolicyRule(
                resource=resource,
                verbs=("delete",),
                needed_by=watch.declared_by,
                reason="stop a TrainJob that has exceeded its activeDeadlineSeconds",
            )


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
        stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]],
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
        self._log = log.bind()  # each call of one that is not bound binds it
        self._settled: LRUCache[str, int] = LRUCache(_SETTLED)
        """By UID of an object: what was applied to it, if an apply of that is not certain to change anything."""

        self._uncertain: set[str] = set()
        """Keys for which an apply may have been performed although its answer was lost."""

        self._inherited = 0
        """The resource version that the cache of TrainJobs had reached when this process began to lead."""

    def on_start(self) -> None:
        """Note that nothing was written by this process yet, but perhaps by another one that led before."""
        self._inherited = self._trainjobs.resource_version

    def forget(self, key: str) -> None:
        """Forget a TrainJob that is gone."""
        self._uncertain.discard(key)

    async def apply(self, key: str, observed: Observed, planned: Plan) -> float | None:
        """Perform a plan for a TrainJob; returns the seconds after which a contested object is due again.

        Raises:
            NameTaken: What was to be created exists and belongs to somebody else.
            KubeError: The server refused, or could not be asked.
        """
        for obj in planned.deletes:
            await self._delete(key, obj)
        waits: list[float] = []
        for apply in planned.applies:
            wait = await self._apply_object(key, observed, apply)
            if wait is not None:
                waits.append(wait)
                if apply.uid is None:
                    break
        return min(waits, default=None)

    async def delete_expired(self, key: str, raw: JsonObject) -> bool:
        """Delete the TrainJob `raw`, which has outlived its time to live, unless it is another one or has changed."""
        is_deleted = await delete_owner(self._client, TRAINJOBS, raw)
        self._expectations.expect_deletion(key, raw, self._trainjobs)
        return is_deleted

    async def _apply_object(self, key: str, observed: Observed, apply: Apply) -> float | None:
        raw, obj = observed.raw, apply.object
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
        inherited = parse_resource_version(raw["metadata"]["resourceVersion"]) <= self._inherited
        if apply.uid is None and (key in self._uncertain or written_before or inherited or raw.get("status")):
            await check_owner(self._client, TRAINJOBS, raw)
        try:
            written = await write_owned(self._client, resource, obj, uid=apply.uid, create=apply.create)
        except TransportError:
            self._uncertain.add(key)
            raise
        except (AlreadyExists, Conflict) as conflict:
            if apply.uid is not None:
                raise
            uid = await self._uid_of_own(key, observed, obj, conflict)
            if apply.create:
                return None  # it is there, and its cache will never show it
            return await self._apply_object(key, observed, apply._replace(uid=uid))
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
        self._log.debug("applied", kind=obj["kind"], object=obj["metadata"]["name"])
        content = self._write_backoff.record_write(trainjob, target, obj)
        foreseen = apply.uid is None and self._is_as_applied(apply, written, content)
        self._expectations.expect_write(key, written, store, foreseen=foreseen)
        if not apply.certain and apply.uid is not None:
            self._settled[apply.uid] = content
        return None

    async def _uid_of_own(self, key: str, observed: Observed, obj: JsonObject, conflict: ApiError) -> str:
        """Look at what has the name of an object that was to be created, because no cache shows it.

        Returns the UID of one that is the TrainJob's own and that its cache will never show, because a plugin selects
        by labels that the object does not have.

        Raises:
            ApiError: `conflict`; it is gone meanwhile, or the cache is going to show it, and the key waits for that.
            NameTaken: It is somebody else's.
        """
        metadata = obj["metadata"]
        resource, store = self._stores[obj["apiVersion"], obj["kind"]]
        try:
            live = await self._client.get(resource, metadata["namespace"], metadata["name"], metadata_only=True)
        except NotFound:
            raise conflict from None
        own = is_controlled_by(live, observed.job)
        if not own and not is_left_by_earlier(live, TRAINJOBS.kind, observed.job, group=TRAINJOBS.group):
            raise NameTaken(name_taken(obj["kind"], metadata["name"])) from conflict
        if own and isinstance(store, WrittenStore):
            self._expectations.expect_write(key, {**obj, "metadata": live["metadata"]}, store)
            return str(live["metadata"]["uid"])
        is_current = store.reached(object_key(obj)) >= parse_resource_version(live["metadata"]["resourceVersion"])
        if own and is_current and object_key(obj) not in store:
            return str(live["metadata"]["uid"])
        log.debug("to be created, but there already", kind=obj["kind"], object=metadata["name"], own=own)
        self._expectations.expect_write(key, {**obj, "metadata": live["metadata"]}, store)
        raise conflict

    def _is_as_applied(self, apply: Apply, created: JsonObject, content: int) -> bool:
        """Tell whether an object that was created needs nothing more: no admission has made something else of it."""
        if created.get("status"):
            return False  # whoever set that may want to be heard
        if apply.create:
            return True
        found = drift_of_created(apply.object, created)
        if found is Drift.POSSIBLE:
            self._settled[created["metadata"]["uid"]] = content
        return found is not Drift.CERTAIN

    def _is_settled(self, apply: Apply, trainjob: str, target: str) -> bool:
        """Tell whether an object is what the server made of the last apply, which had the same content."""
        if apply.uid is None:
            return False
        if self._write_backoff.wrote_recently(trainjob, target, apply.object):
            self._settled[apply.uid] = digest(apply.object)
        return self._settled.get(apply.uid) == digest(apply.object)

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
            log.debug("deleted", kind=obj["kind"], object=metadata["name"])
        except NotFound:
            log.debug("to be deleted, but gone already", kind=obj["kind"], object=metadata["name"])
        self._expectations.expect_deletion(key, obj, store)
