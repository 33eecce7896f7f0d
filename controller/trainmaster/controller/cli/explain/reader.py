"""Reading what may be read: what is refused, not served or not answered is noted, and keeps nobody from the rest; and
which of it is of a job itself, not of a namesake that was deleted before; and the events about a job and its parts.

Guarantees:
- Nothing is written.
- It is bounded: of a collection `MOST` objects at most are read, in pages. If a namespace has more events, those about
  the job, its Jobs, some pods and claims are asked for by name, those of pods that were taken away by reason.
- Of each kind of object the newest events are kept: what is said of many pods does not push out what is said of the
  job.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, TypedDict, Unpack

from trainmaster.controller.cli.follow.pod_logs import LogLines, LogOptions, PodLog
from trainmaster.controller.cli.jobs.log_sources import kept_logs
from trainmaster.controller.cli.probes import CLAIMS, POD_LOGS, each_once, list_first
from trainmaster.controller.explain.causes.pods.disruptions import EVENT_REASONS
from trainmaster.controller.explain.causes.pods.scheduling import FAILED_SCHEDULING
from trainmaster.controller.explain.causes.pods.volumes import claim_names
from trainmaster.controller.explain.findings import Event, parse_event
from trainmaster.controller.explain.pods import current_pods, has_succeeded, is_own, is_running, owners_of
from trainmaster.controller.explain.view import JobView, Objects, Unread, WhyUnread
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound, Unauthorized
from trainmaster.controller.kube.rest.resources import EVENTS, PODS, Resource
from trainmaster.runtime.api.constants import ANCESTORS, LAUNCHER, NODE
from trainmaster.runtime.jsontree import JsonObject

MOST: Final = 5000
_TIMEOUT: Final = 10.0


class Selection(TypedDict, total=False):
    """Which objects of a kind."""

    labels: str
    fields: str
    everywhere: bool
    """Whether those of all namespaces; else those of that of the job, or of `namespace`."""

    namespace: str
    is_optional: bool
    """Whether a cluster is well without the kind, as most are: then there are none; else it is noted."""


class Reader:
    """Reads objects of one cluster."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._unread: dict[str, Unread] = {}
        self._cut: set[str] = set()

    @property
    def unread(self) -> Sequence[Unread]:
        """What could not be read, each resource once, by name."""
        return tuple(self._unread[name] for name in sorted(self._unread))

    def has_more(self, resource: Resource) -> bool:
        """Tell whether there are more objects than `read_all` has returned of them."""
        return resource.name in self._cut

    async def read_all(self, resource: Resource, **selection: Unpack[Selection]) -> list[JsonObject] | None:
        """List objects of the namespace, or of all; None if nobody says."""
        listed = await self.read_first(resource, MOST, **selection)
        if listed is None:
            return None
        found, is_all = listed
        if not is_all:
            self._cut.add(resource.name)
            self.note(resource, WhyUnread.FAILED, f"there are more than {MOST} of them; the first were read")
        return found

    async def read_first(
        self, resource: Resource, most: int, **selection: Unpack[Selection]
    ) -> tuple[list[JsonObject], bool] | None:
        """List the first objects of a collection, with whether these are all; None if nobody says."""
        is_everywhere = selection.get("everywhere") or not resource.namespaced
        where = None if is_everywhere else selection.get("namespace") or self.namespace
        labels, fields = selection.get("labels"), selection.get("fields")
        try:
            listed = await list_first(self.client, resource, where, most=most, labels=labels, fields=fields)
        except NotFound:
            if selection.get("is_optional", True):
                return [], True
            self.note(resource, WhyUnread.NOT_SERVED, f"this cluster does not serve them: {resource.remedy}")
            return None
        except KubeError as error:
            self._failed(resource, "list", error, where)
            return None
        return listed.items, listed.is_all

    async def read(self, resource: Resource, name: str) -> list[JsonObject] | None:
        """Read one object of the namespace: a list of it, or of none; None if nobody says."""
        where = self.namespace if resource.namespaced else None
        try:
            found = await self.client.get(resource, where, name)
        except NotFound:
            return []
        except KubeError as error:
            self._failed(resource, "get", error, where)
            return None
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **found}]

    async def read_log(self, pod: JsonObject, container: str, *, tail: int, previous: bool = False) -> LogLines | None:
        """Read the last lines of a container; None if they may not be read, or nobody answers."""
        name, uid, lines = pod["metadata"]["name"], pod["metadata"]["uid"], LogLines()
        log = PodLog(
            self.client,
            namespace=self.namespace,
            pod=name,
            container=container,
            lines=lines,
            options=LogOptions(tail=tail),
            uid=uid,
        )
        try:
            async with asyncio.timeout(_TIMEOUT):
                await log.glance(previous=previous)
        except TimeoutError:
            return None
        lines.close()
        if log.refusal is None:
            return lines
        text = f"you have no right to read the logs of pods in namespace {self.namespace}"
        self.note(POD_LOGS, WhyUnread.FORBIDDEN, text)
        return None

    async def read_former_pods(self, job_uid: str) -> list[JsonObject] | None:
        """Read the pods of a job that are deleted; None: only an embedded cluster tells of these."""
        with suppress(KubeError):
            kept = await kept_logs(self.client, job_uid)
            return None if kept is None else kept.pods
        return None

    def _failed(self, resource: Resource, verb: str, error: KubeError, namespace: str | None) -> None:
        if isinstance(error, Unauthorized):
            raise error  # it holds for every request
        if isinstance(error, Forbidden):
            where = f" in namespace {namespace}" if namespace else " in all namespaces" if resource.namespaced else ""
            self.note(resource, WhyUnread.FORBIDDEN, f"you have no right to {verb} them{where}")
        else:
            self.note(resource, WhyUnread.FAILED, str(error))

    def note(self, resource: Resource, why: WhyUnread, text: str) -> None:
        """Note what could not be read, of each resource the first reason."""
        self._unread.setdefault(resource.name, Unread(resource.name, why, text))


def joined(*lists: Sequence[JsonObject] | None) -> Sequence[JsonObject] | None:
    """Put lists together, each object once; None if one of them is not known."""
    return None if None in lists else each_once(each for each in lists if each is not None)


def owned_by(objects: Sequence[JsonObject] | None, uid: str) -> Sequence[JsonObject] | None:
    """Return what belongs to the job itself, not to a namesake that was deleted before."""
    if objects is None:
        return None
    return [each for each in objects if any(owner.get("uid") == uid for owner in owners_of(each))]


def created_since(objects: Sequence[JsonObject] | None, view: JobView) -> Sequence[JsonObject] | None:
    """Return what was created after the job."""
    if objects is None:
        return None
    created = view.metadata.get("creationTimestamp") or ""
    return [each for each in objects if str(each["metadata"].get("creationTimestamp") or "") >= created]


def parted(pods: Sequence[JsonObject] | None, view: JobView) -> tuple[Objects, list[JsonObject]]:
    """Part the pods that have the labels of a job: its own, and those that others keep there."""
    if pods is None:
        return None, []
    foreign = [pod for pod in pods if not is_own(pod, view) and not pod["metadata"].get("deletionTimestamp")]
    return [pod for pod in pods if is_own(pod, view)], foreign


_OF_A_KIND: Final = 500
_BY_NAME: Final = 100
_NAMED: Final = 10
"""Of each kind, how many are asked for by name."""

_PARTS: Final = (PODS.kind, "Job", "JobSet", "PodGroup", "Workload", "Service", CLAIMS.kind, "ConfigMap")
"""Kinds of what a job is made of: their names begin with its own."""

_OF_TRAINJOBS: Final = (NODE, LAUNCHER, *ANCESTORS)
_OF_V1_JOBS: Final = ("master", "worker", "launcher", "chief", "ps", "evaluator")
"""What the names of pods have behind that of a job, for jobs that are gone."""


async def read_events(reader: Reader, view: JobView) -> Sequence[Event] | None:
    """Return the events about a job and its parts, the oldest first; None if nobody says."""
    listed = await reader.read_first(EVENTS, MOST)
    if listed is None:
        return None
    raw, is_all = listed
    if not is_all:
        raw = [*raw, *await _asked_for(reader, view)]
        about = "those about the job and some of its pods were read"
        reader.note(EVENTS, WhyUnread.FAILED, f"there are more than {MOST} of them in the namespace; {about}")
    parts = [*(view.jobsets or ()), *(view.jobs or ()), *(view.pods or ()), view.object]
    uids = {str(each["metadata"].get("uid") or "") for each in parts} - {""}
    claims = {name for pod in view.pods or () for name in claim_names(pod)}
    found = [
        event
        for event in map(parse_event, {each["metadata"]["uid"]: each for each in raw}.values())
        if event.uid in uids
        or (_is_about(event, view) and not _is_older(event, view.created))
        or (event.about.kind == CLAIMS.kind and event.about.name in claims)
    ]
    found.sort(key=lambda event: (event.last is None, event.last))
    return newest_of_each_kind(found)


def newest_of_each_kind(events: Sequence[Event]) -> Sequence[Event]:
    """Return of each kind of object the last events, in the order in which they were."""
    kept: list[Event] = []
    numbers: Counter[str] = Counter()
    for event in reversed(events):
        numbers[event.about.kind] += 1
        if numbers[event.about.kind] <= _OF_A_KIND:
            kept.append(event)
    return kept[::-1]


async def _asked_for(reader: Reader, view: JobView) -> Iterable[JsonObject]:
    """Return the events about what matters most of a job."""
    waiting = [pod for pod in current_pods(view) if not is_running(pod) and not has_succeeded(pod)][:_NAMED]
    claims = dict.fromkeys(name for pod in waiting for name in claim_names(pod))
    jobs = [each["metadata"]["name"] for each in view.jobs or ()]
    names = [view.name, *jobs[:_NAMED], *(pod["metadata"]["name"] for pod in waiting), *list(claims)[:_NAMED]]
    asked = [(f"regarding.name={name}", _BY_NAME) for name in dict.fromkeys(names)]
    asked += [(f"reason={reason}", _OF_A_KIND) for reason in (*EVENT_REASONS, FAILED_SCHEDULING)]
    lists = await asyncio.gather(*(reader.read_first(EVENTS, most, fields=selector) for selector, most in asked))
    return [event for listed in lists if listed is not None for event in listed[0]]


def _is_older(event: Event, created: datetime | None) -> bool:
    """Tell whether an event is about a namesake that was there before."""
    return created is not None and event.last is not None and event.last < created


def _is_about(event: Event, view: JobView) -> bool:
    """Tell whether the name of its object says that it was a part of the job; the object may be gone."""
    if event.about.name == view.name:
        return event.about.kind in (view.kind, *_PARTS)
    of_job, _, rest = event.about.name.partition(f"{view.name}-")
    if event.about.kind not in _PARTS or of_job:
        return False
    return any(rest == each or rest.startswith(f"{each}-") for each in _groups(view))


def _groups(view: JobView) -> Iterable[str]:
    """Return the names of the groups of pods of a job."""
    if not view.is_trainjob:
        specs = [
            value for name, value in view.spec.items() if name.endswith("ReplicaSpecs") and isinstance(value, dict)
        ]
        return [replica_type.lower() for spec in specs for replica_type in spec] or _OF_V1_JOBS
    jobs = [each for jobset in view.jobsets or () for each in (jobset.get("spec") or {}).get("replicatedJobs") or ()]
    return [str(each["name"]) for each in jobs] or _OF_TRAINJOBS
