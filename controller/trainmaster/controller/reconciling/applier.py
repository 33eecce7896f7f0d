"""Performs the writes of a decision about a job of any kind.

Guarantees:
- A-2, A-3, A-5: objects are applied in full, with force, under one field manager.
- A-4: there are no nulls in them. Empty maps are sent as their author wrote them: an empty `emptyDir` is a volume.
- C-10, L-14: a write about an object that was seen carries its UID: if another one has taken its name meanwhile, the
  server refuses, and the key is reconciled again.
- C-2, E-5: an object that no cache shows is created, and an apply never changes it if it exists all the same: it may be
  what an earlier job of the name left, since each cache lags behind the server by a time of its own. What is this job's
  own, or will be collected, the key waits to see; what is somebody else's is said to be.
- C-4: what was written or deleted is expected from the caches before the key is reconciled again.
- C-1: what was built before and is missing now is built again only for a job that the server still has as the cache
  shows it. Otherwise its children, which were collected after it, would come back until the cache catches up. So is
  what an earlier leader may have built, of which this process knows nothing.
- B29: if the whole of an object is refused, the part of it that cannot wait is changed alone.
- What may change nothing (`Drift.POSSIBLE`) is applied once, and again after a restart: its answer is the same then.
- A contested object (see `write_backoff`) is written less often. Others do not wait for it, unless it is missing: what
  comes after it may build on it.
- Pods and Services are created, and what goes is deleted, side by side: a few at first and twice as many each time that
  all went well. What is refused is not tried a thousand times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, final

import structlog
from cachetools import LRUCache

from trainmaster.controller.conditions import NAME_TAKEN
from trainmaster.controller.kube.cache.store import Store, StoreReader, object_key, parse_resource_version
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import ABSENT, KubeClient
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
)
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.drift import Drift, drift_of_created
from trainmaster.controller.reconciling.expectations import Expectations, WrittenStore
from trainmaster.controller.reconciling.problems import EVENT_ACTION, NameTaken, Problem
from trainmaster.controller.reconciling.write_backoff import WriteBackoff, digest, find_field_conflict, report_conflict
from trainmaster.controller.reconciling.writes import Apply, Create, Decision, GroupVersionKind, Owner, name_taken
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import is_controlled_by, is_left_by_earlier

log = structlog.get_logger(__name__)

FIRST_BATCH: Final = 4
LARGEST_BATCH: Final = 32
"""Creations under way for one job."""

_MOST_APPLIED: Final = 65_536


class Built(NamedTuple):
    """What became of what a job consists of."""

    problem: Problem | None
    """What stands in the way of the job."""

    refusal: ApiError | None = None
    """What the server said, if that is in the way."""

    due: float | None = None
    """Seconds after which a contested object is due again."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Applier:
    """Performs the writes for jobs of one kind, which `resource` names."""

    client: KubeClient
    resource: Resource
    jobs: Store
    stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]]
    """The caches of all that is written for them, by API version and kind, each with its resource."""

    expectations: Expectations
    write_backoff: WriteBackoff
    recorder: Recorder
    is_quiet: bool
    """Whether, of pods, Services and what is deleted, only what fails is told as an event."""

    _log: Any = field(default_factory=log.bind)
    """Bound once: each call of one that is not bound binds it."""

    _applied: LRUCache[str, int] = field(default_factory=partial(LRUCache, _MOST_APPLIED))
    """By UID of an object: what was applied to it, if an apply of that is not certain to change anything."""

    _unanswered_applies: set[str] = field(default_factory=set)
    """Keys of which an apply may have been performed, since no answer says what became of it."""

    _inherited: int = 0
    """The resource version that the cache of jobs had reached when this process began to lead."""

    def on_start(self) -> None:
        """Note that nothing was written by this process yet, but perhaps by another one that led before."""
        self._inherited = self.jobs.resource_version

    def forget(self, key: str) -> None:
        """Forget a job that is gone."""
        self._unanswered_applies.discard(key)

    async def annotate(self, key: str, owner: Owner, annotations: Mapping[str, str]) -> None:
        """Set annotations of the job itself, as it was seen."""
        seen = owner.raw["metadata"]
        metadata = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"], "annotations": annotations}
        written = await self.client.patch(
            self.resource, seen["namespace"], seen["name"], {"metadata": metadata}, field_manager=FIELD_MANAGER
        )
        self.expectations.expect_write(key, written, self.jobs, own=True)

    async def build(self, key: str, owner: Owner, decided: Decision) -> Built:
        """Perform what a decision applies and creates; raises a `KubeError` if that is to be tried again at once."""
        try:
            return Built(decided.problem, due=await self._perform(key, owner, decided))
        except (Conflict, AlreadyExists, TooManyRequests):
            raise
        except NameTaken as error:
            return Built(error.problem)
        except ApiError as error:
            return Built(Problem("ApplyFailed", str(error)), error)

    async def _perform(self, key: str, owner: Owner, decided: Decision) -> float | None:
        waits: list[float] = []
        for apply in decided.applies:
            wait = await self._apply(key, owner, apply)
            if wait is not None:
                waits.append(wait)
                if apply.uid is None:
                    return min(waits)
        if decided.creates and owner.raw.get("status"):
            await check_owner(self.client, self.resource, owner.raw)
        await _side_by_side([partial(self._create, key, owner, each) for each in decided.creates])
        return min(waits, default=None)

    async def clean_up(self, key: str, owner: Owner, decided: Decision, *, is_told: bool) -> None:
        """Delete what is not wanted any more, as it was observed; `is_told`: whether the status is written."""
        if not is_told and decided.status_first:
            return
        # Services are named before their pods, and have to be gone before those: by these it is known that they go.
        for _, same in groupby(decided.deletes, lambda obj: str(obj["kind"])):
            foreground = decided.waits_for_dependents
            await _side_by_side([partial(self._delete, key, owner, obj, foreground) for obj in same])

    async def delete_expired(self, key: str, owner: Owner) -> bool:
        """Delete a job whose time to live is over, unless it is another one or has changed; tells if it was there."""
        name, namespace = owner.metadata.name, owner.metadata.namespace
        precondition = {"uid": owner.metadata.uid, "resource_version": owner.raw["metadata"]["resourceVersion"]}
        try:
            await self.client.delete(self.resource, namespace, name, **precondition)
            is_deleted = True
        except NotFound:
            is_deleted = False
        log.debug("deleted, its time to live has passed" if is_deleted else "to be deleted, but gone already")
        self.expectations.expect_deletion(key, owner.raw, self.jobs)
        return is_deleted

    async def _apply(self, key: str, owner: Owner, apply: Apply) -> float | None:
        raw, obj = owner.raw, apply.object
        what = f'{obj["kind"]} "{obj["metadata"]["name"]}"'
        uid, target = raw["metadata"]["uid"], f"{obj['apiVersion']} {what}"
        resource, store = self.stores[obj["apiVersion"], obj["kind"]]
        if not apply.certain and self._is_applied(apply, uid, target):
            return None
        delay = self.write_backoff.delay(uid, target, obj)
        if delay is not None:
            if delay.first:
                found = await find_field_conflict(self.client, resource, obj)
                report_conflict(found, self.recorder, raw, self.resource.kind, what)
            return delay.seconds
        written_before = self.write_backoff.wrote_recently(uid, target, obj)
        inherited = parse_resource_version(raw["metadata"]["resourceVersion"]) <= self._inherited
        is_again = key in self._unanswered_applies or written_before or inherited or bool(raw.get("status"))
        if apply.uid is None and is_again and not isinstance(store, WrittenStore):
            await check_owner(self.client, self.resource, raw)
        self._unanswered_applies.add(key)
        try:
            written = await _write(self.client, resource, obj, uid=apply.uid, create=apply.create)
        except (AlreadyExists, Conflict) as taken:
            if apply.uid is not None:
                raise
            hidden = await self._find_hidden(key, owner, obj, taken)
            if apply.create:
                return None  # it is there, and its cache will never show it
            return await self._apply(key, owner, apply._replace(uid=hidden))
        except (BadRequest, Forbidden, Invalid) as error:
            if apply.optional:
                log.info("refused, as it may be", object=what, refusal=str(error))
                self._unanswered_applies.discard(key)
                return None
            if apply.at_least is None:
                raise
            log.warning("refused as a whole, changed in part", object=what, refusal=str(error))
            patch = {**apply.at_least, "metadata": {"uid": apply.uid}}
            written = await self.client.patch(
                resource, obj["metadata"]["namespace"], obj["metadata"]["name"], patch, field_manager=FIELD_MANAGER
            )
        self._unanswered_applies.discard(key)
        self._log.debug("applied", kind=obj["kind"], object=obj["metadata"]["name"])
        content = self.write_backoff.record_write(uid, target, obj)
        foreseen = apply.uid is None and self._is_as_applied(apply, written, content)
        self.expectations.expect_write(key, written, store, foreseen=foreseen)
        if not apply.certain and apply.uid is not None:
            self._applied[apply.uid] = content
        return None

    async def _create(self, key: str, owner: Owner, create: Create) -> None:
        obj = create.make()
        resource, store = self.stores[obj["apiVersion"], obj["kind"]]
        try:
            written = await self.client.create(resource, obj, field_manager=FIELD_MANAGER)
        except ApiError as error:
            refusal: ApiError | NameTaken = error
            if isinstance(error, AlreadyExists):
                try:
                    await self._find_hidden(key, owner, obj, error)
                    refusal = NameTaken(_hidden(create))
                except NameTaken as taken:
                    refusal = taken
            self._event(owner, f"FailedCreate{create.kind}", f"Error creating: {error.message}", warning=True)
            raise refusal from error
        log.debug("created", kind=create.kind, object=create.name)
        self._event(owner, f"SuccessfulCreate{create.kind}", f"Created {_word(create.kind)}: {create.name}")
        self.expectations.expect_write(key, written, store)

    async def _delete(self, key: str, owner: Owner, obj: JsonObject, foreground: bool) -> None:
        kind, metadata = obj["kind"], obj["metadata"]
        resource, store = self.stores[obj["apiVersion"], kind]
        try:
            await self.client.delete(
                resource, metadata["namespace"], metadata["name"], uid=metadata["uid"], foreground=foreground
            )
            log.debug("deleted", kind=kind, object=metadata["name"])
            self._event(owner, f"SuccessfulDelete{kind}", f"Deleted {_word(kind)}: {metadata['name']}")
        except NotFound:
            log.debug("to be deleted, but gone already", kind=kind, object=metadata["name"])
        except Conflict:
            # Another one by now, which the cache is going to show; or it stands still, and has to go.
            raise
        except ApiError as error:
            self._event(owner, f"FailedDelete{kind}", f"Error deleting: {error.message}", warning=True)
            raise
        if not foreground:
            self.expectations.expect_deletion(key, obj, store)

    async def _find_hidden(self, key: str, owner: Owner, obj: JsonObject, conflict: ApiError) -> str:
        """Look at what has the name of an object that was to be created, because no cache shows it.

        Returns the UID of one that is the job's own and that its cache will never show, because it lacks labels by
        which it is watched.

        Raises:
            ApiError: `conflict`; it is gone meanwhile, or the cache is going to show it, and the key waits for that.
            NameTaken: It is somebody else's.
        """
        metadata, own_kind = obj["metadata"], self.resource
        resource, store = self.stores[obj["apiVersion"], obj["kind"]]
        try:
            live = await self.client.get(resource, metadata["namespace"], metadata["name"], metadata_only=True)
        except NotFound:
            raise conflict from None
        own = is_controlled_by(live, owner)
        if not own and not is_left_by_earlier(live, own_kind.kind, owner, group=own_kind.group):
            raise NameTaken(name_taken(obj["kind"], metadata["name"], own_kind.kind)) from conflict
        seen = {**obj, "metadata": live["metadata"]}
        if own and isinstance(store, WrittenStore):
            self.expectations.expect_write(key, seen, store)
            return str(live["metadata"]["uid"])
        is_current = store.reached(object_key(obj)) >= parse_resource_version(live["metadata"]["resourceVersion"])
        if own and is_current and object_key(obj) not in store:
            return str(live["metadata"]["uid"])
        log.debug("to be created, but there already", kind=obj["kind"], object=metadata["name"], own=own)
        self.expectations.expect_write(key, seen, store)
        raise conflict

    def _is_as_applied(self, apply: Apply, created: JsonObject, content: int) -> bool:
        """Tell whether an object that was created needs nothing more: no admission has made something else of it."""
        if created.get("status"):
            return False  # whoever set that may want to be heard
        if apply.create:
            return True
        found = drift_of_created(apply.object, created)
        if found is Drift.POSSIBLE:
            self._applied[created["metadata"]["uid"]] = content
        return found is not Drift.CERTAIN

    def _is_applied(self, apply: Apply, owner: str, target: str) -> bool:
        """Tell whether an object is what the server made of the last apply, which had the same content."""
        if apply.uid is None:
            return False
        if self.write_backoff.wrote_recently(owner, target, apply.object):
            self._applied[apply.uid] = digest(apply.object)
        return self._applied.get(apply.uid) == digest(apply.object)

    def _event(self, owner: Owner, reason: str, note: str, *, warning: bool = False) -> None:
        if warning or not self.is_quiet:
            self.recorder.event(
                owner.raw, type="Warning" if warning else "Normal", reason=reason, action=EVENT_ACTION, note=note
            )


async def _side_by_side(requests: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Perform requests, a few at first and twice as many each time; of what fails, raise what says most."""
    batch, start = FIRST_BATCH, 0
    while start < len(requests):
        part = requests[start : start + batch]
        tried = await asyncio.gather(*(request() for request in part), return_exceptions=True)
        errors = [each for each in tried if each is not None]
        if errors:
            raise min(errors, key=_severity)
        start, batch = start + len(part), min(2 * batch, LARGEST_BATCH)


def _severity(error: BaseException) -> int:
    """Order errors by what says most: whose name is taken, then refusals, then what passes."""
    if isinstance(error, NameTaken):
        return 0
    if isinstance(error, (AlreadyExists, Conflict)):
        return 3
    if isinstance(error, KubeError):
        return 2 if not isinstance(error, ApiError) else 1
    return -1


def _hidden(create: Create) -> Problem:
    lost = f'{create.kind} "{create.name}" has lost the label {create.label}, by which it is watched'
    return Problem(NAME_TAKEN, f"{lost}; set it to the name of the job, or delete the {create.kind}")


def _word(kind: str) -> str:
    """Return how the original's events call a kind."""
    return kind if kind == "PodGroup" else kind.lower()


async def check_owner(client: KubeClient, resource: Resource, raw: JsonObject) -> None:
    """Read an owner itself; raise a `Conflict` if the cache is behind: its event will bring the key back."""
    metadata = raw["metadata"]
    try:
        live = await client.get(resource, metadata["namespace"], metadata["name"])
    except NotFound as error:
        gone = f"the {resource.kind} is gone, the cache lags"
        raise Conflict(status=409, reason="Conflict", message=gone) from error
    if live["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
        raise Conflict(status=409, reason="Conflict", message=f"the {resource.kind} has changed, the cache lags")


async def _write(
    client: KubeClient, resource: Resource, obj: JsonObject, *, uid: str | None, create: bool
) -> JsonObject:
    """Create an object, or apply it to the one of this UID, or to none; returns what the server made of it."""
    try:
        if create:
            return await client.create(resource, obj, field_manager=FIELD_MANAGER)
        precondition = {"resourceVersion": ABSENT} if uid is None else {"uid": uid}
        sent = {**obj, "metadata": {**obj["metadata"], **precondition}}
        return await client.apply(resource, sent, field_manager=FIELD_MANAGER)
    except NotFound as error:
        if error.reason:
            raise
        # A kind that is not served is answered by a page of the web server, not by a Status.
        missing = f"the cluster does not serve {obj['kind']} ({obj['apiVersion']}); {resource.remedy}"
        raise NotFound(status=404, reason="NotFound", message=missing) from error
