"""Apply: performs the writes of a plan: applies and creations, and deletions when the status has been written.

Guarantees:
- C-2: names are the same for every try, so that a second one meets what the first one made. What exists already is this
  job's own, which its cache is going to show; or of an earlier job of the name, which will be collected; or somebody
  else's, which is said to be.
- C-1: what was built before and is missing now is built again only for a job that the server still has as the cache
  shows it: otherwise its children, which were collected after it, would come back until the cache catches up.
- C-10: a delete carries the UID of what was seen, an apply of what exists as well.
- C-4: what was written or deleted is expected from the caches before the key is reconciled again.
- Pods and Services are created, and what goes is deleted, side by side: a few at first and twice as many each time that
  all went well. What is refused is not tried a thousand times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import structlog

from trainmaster.controller.condition_types import NAME_TAKEN
from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError, Conflict, KubeError, NotFound
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.reconciling.expectations import Expectations, WrittenStore
from trainmaster.controller.reconciling.jobs.objects import name_taken
from trainmaster.controller.reconciling.jobs.observe import JobStores
from trainmaster.controller.reconciling.jobs.types import Apply, Creation
from trainmaster.controller.reconciling.owned_objects import check_owner, delete_owner, owner_rules, write_owned
from trainmaster.controller.reconciling.problems import NameTaken, Problem
from trainmaster.controller.resources import watched_resource
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jobs.interface import Job, JobKind, contained
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.ownership import is_controlled_by, is_left_by_earlier

log = structlog.get_logger(__name__)

FIRST_BATCH: Final = 4
LARGEST_BATCH: Final = 32
"""Creations under way for one job."""

ACTION: Final = "Reconciling"


JOBS: Final = "jobs"
"""Who needs what the jobs of all kinds have."""

_BUILD: Final = "build what a job consists of, and clean it up; find out whose one is that stands in the way"


def policy_rules(kind: JobKind, resource: Resource) -> Iterator[PolicyRule]:
    """Return the rights that it takes to do what plans of one kind say, apart from what jobs of all kinds have.

    Args:
        kind: The kind.
        resource: The same, as a resource.
    """
    part = kind.controller_name
    yield from owner_rules(resource, needed_by=part)
    for watch in kind.watches():
        yield owned_rule(watch, needed_by=part, deletes=not kind.keeps_objects)
    for grant in kind.grants():
        granted = Watch(grant.api_version, grant.kind, grant.plural)
        yield PolicyRule(
            resource=watched_resource(granted),
            subresource=grant.subresource,
            verbs=grant.verbs,
            needed_by=part,
            reason="give it to the pods of a job: nobody gives away a right that they do not have",
        )


def owned_rule(watch: Watch, *, needed_by: str, optional: bool = False, deletes: bool = True) -> PolicyRule:
    """Return the right to write what jobs own of a kind."""
    never = {"patch"} if watch.creates_only else set[str]()
    if not deletes:
        never.add("delete")
    verbs = tuple(verb for verb in ("get", "create", "patch", "delete") if verb not in never)
    return PolicyRule(
        resource=watched_resource(watch), verbs=verbs, needed_by=needed_by, reason=_BUILD, optional=optional
    )


def shared_rules(*, has_services: bool) -> Iterator[PolicyRule]:
    """Return the rights to write the pods of jobs, and their Services if they have any."""
    for each in (PODS, SERVICES) if has_services else (PODS,):
        yield PolicyRule(resource=each, verbs=("get", "create", "delete"), needed_by=JOBS, reason=_BUILD)


class Applier:
    """Performs plans of one kind of jobs.

    Args:
        client: Performs the requests.
        resource: The kind of the jobs.
        stores: The caches.
        expectations: Hold the key up until the caches show its writes.
        recorder: Where events go.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        resource: Resource,
        stores: JobStores,
        expectations: Expectations,
        recorder: Recorder,
    ) -> None:
        self._client = client
        self._resource = resource
        self._stores = stores
        self._expectations = expectations
        self._recorder = recorder

    async def apply(self, key: str, job: Job, applies: Iterable[Apply]) -> None:
        """Bring objects up to date, in order.

        Raises:
            NameTaken: What was to be created exists and belongs to somebody else.
            KubeError: The server refused, or could not be asked.
        """
        for each in applies:
            obj = each.object
            other = self._stores.others[obj["apiVersion"], obj["kind"]]
            resource = other.resource
            try:
                written = await write_owned(self._client, resource, obj, uid=each.uid, create=other.creates_only)
            except (AlreadyExists, Conflict) as conflict:
                if each.uid is None:
                    await self._meet(key, job, obj, conflict)
                    met = other.store.get(object_key(obj)) if isinstance(other.store, WrittenStore) else None
                    if met is not None and is_controlled_by(met, job):
                        continue
                raise
            log.debug("applied", kind=obj["kind"], object=obj["metadata"]["name"])
            self._expectations.expect_write(key, written, other.store)

    async def create(self, key: str, job: Job, creations: Sequence[Creation]) -> None:
        """Create pods and Services.

        Raises:
            NameTaken: One exists and belongs to somebody else.
            KubeError: The server refused one, or could not be asked.
        """
        if creations and job.status:
            await check_owner(self._client, self._resource, job.raw)
        await self._side_by_side([partial(self._create, key, job, each) for each in creations])

    async def delete(self, key: str, job: Job, objects: Iterable[JsonObject]) -> None:
        """Delete objects as they were observed.

        Raises:
            KubeError: The server refused, or could not be asked.
        """
        # Services are planned before their pods, and have to be gone before those: see the plan.
        for _, same in groupby(objects, lambda obj: str(obj["kind"])):
            await self._side_by_side([partial(self._delete, key, job, obj) for obj in same])

    async def _side_by_side(self, requests: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Perform requests, a few at first and twice as many each time that all went well.

        Raises:
            NameTaken, KubeError: That of a request which says most.
        """
        batch, start = FIRST_BATCH, 0
        while start < len(requests):
            part = requests[start : start + batch]
            tried = await asyncio.gather(*(request() for request in part), return_exceptions=True)
            errors = [each for each in tried if each is not None]
            if errors:
                raise min(errors, key=_severity)
            start, batch = start + len(part), min(2 * batch, LARGEST_BATCH)

    async def delete_expired(self, key: str, job: Job) -> bool:
        """Delete a job that has outlived its time to live, unless it is another one or has changed."""
        if not await delete_owner(self._client, self._resource, job.raw):
            return False
        self._event(job, "SuccessfulDeleteJob", f"Deleted job: {job.name}")
        self._expectations.expect_deletion(key, job.raw, self._stores.jobs)
        return True

    async def _delete(self, key: str, job: Job, obj: JsonObject) -> None:
        kind, metadata = obj["kind"], obj["metadata"]
        resource, store = self._of(obj)
        try:
            await self._client.delete(resource, metadata["namespace"], metadata["name"], uid=metadata["uid"])
            log.debug("deleted", kind=kind, object=metadata["name"])
            self._event(job, f"SuccessfulDelete{kind}", f"Deleted {_word(kind)}: {metadata['name']}")
        except NotFound:
            log.debug("to be deleted, but gone already", kind=kind, object=metadata["name"])
        except Conflict:
            # Another one by now, which the cache is going to show; or it stands still, and has to go.
            raise
        except ApiError as error:
            self._event(job, f"FailedDelete{kind}", f"Error deleting: {error.message}", warning=True)
            raise
        self._expectations.expect_deletion(key, obj, store)

    async def _create(self, key: str, job: Job, creation: Creation) -> None:
        kind, name = creation.kind, creation.name
        with contained():
            obj = creation.make()
        resource, store = self._of(obj)
        try:
            written = await self._client.create(resource, obj, field_manager=FIELD_MANAGER)
        except AlreadyExists as conflict:
            try:
                await self._meet(key, job, obj, conflict)
            except NameTaken:
                self._event(job, f"FailedCreate{kind}", f"Error creating: {conflict.message}", warning=True)
                raise
            raise
        except ApiError as error:
            self._event(job, f"FailedCreate{kind}", f"Error creating: {error.message}", warning=True)
            raise
        log.debug("created", kind=kind, object=name)
        self._event(job, f"SuccessfulCreate{kind}", f"Created {_word(kind)}: {name}")
        self._expectations.expect_write(key, written, store)

    async def _meet(self, key: str, job: Job, obj: JsonObject, conflict: ApiError) -> None:
        """Look at what has the name of an object that was to be created, because no cache shows it.

        Raises:
            NameTaken: It is somebody else's. Otherwise the key waits for it, or for its end.
        """
        metadata = obj["metadata"]
        resource, store = self._of(obj)
        try:
            live = await self._client.get(resource, metadata["namespace"], metadata["name"], metadata_only=True)
        except NotFound:
            return
        if not is_left_by_earlier(live, job.kind.kind, job, group=job.kind.group):
            if not is_controlled_by(live, job):
                raise NameTaken(name_taken(obj["kind"], metadata["name"], job)) from conflict
            wanted, labels = metadata.get("labels") or {}, live["metadata"].get("labels") or {}
            if JOB_NAME_LABEL in wanted and JOB_NAME_LABEL not in labels:
                raise NameTaken(_unlabelled(obj["kind"], metadata["name"])) from conflict
        self._expectations.expect_write(key, {**obj, "metadata": live["metadata"]}, store)

    def _of(self, obj: JsonObject) -> tuple[Resource, Store]:
        if obj["apiVersion"] == PODS.api_version:
            if obj["kind"] == PODS.kind:
                return PODS, self._stores.pods
            if obj["kind"] == SERVICES.kind:
                return SERVICES, self._stores.services
        other = self._stores.others[obj["apiVersion"], obj["kind"]]
        return other.resource, other.store

    def _event(self, job: Job, reason: str, note: str, *, warning: bool = False) -> None:
        self._recorder.event(job.raw, type="Warning" if warning else "Normal", reason=reason, action=ACTION, note=note)


def _unlabelled(kind: str, name: str) -> Problem:
    lost = f'{kind} "{name}" has lost the label {JOB_NAME_LABEL}, by which it is watched'
    return Problem(NAME_TAKEN, f"{lost}; set it to the name of the job, or delete the {kind}")


def _word(kind: str) -> str:
    """Return how the original's events call a kind."""
    return kind if kind == "PodGroup" else kind.lower()


def _severity(error: BaseException) -> int:
    """Order errors of creations by what says most: whose name is taken, then refusals, then what passes."""
    if isinstance(error, NameTaken):
        return 0
    if isinstance(error, (AlreadyExists, Conflict)):
        return 3
    if isinstance(error, KubeError):
        return 2 if not isinstance(error, ApiError) else 1
    return -1
