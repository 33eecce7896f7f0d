"""Reading what may be read: what is refused, not served or not answered is noted, and keeps nobody from the rest; and
which of it is of a job itself, not of a namesake that was deleted before.

Guarantees:
- Nothing is written.
- It is bounded: of a collection `MOST` objects at most are read, in pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypedDict, Unpack

from trainmaster.controller.cli.follow.pod_logs import LogLines, LogOptions, PodLog
from trainmaster.controller.cli.jobs.log_sources import kept_logs
from trainmaster.controller.cli.probes import POD_LOGS, each_once, list_first
from trainmaster.controller.explain.pods import is_own, owners_of
from trainmaster.controller.explain.view import JobView, Objects, Unread, WhyUnread
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound, Unauthorized
from trainmaster.controller.kube.rest.resources import Resource
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
        where = None if is_everywhere else selection.get("namespace", self.namespace)
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
