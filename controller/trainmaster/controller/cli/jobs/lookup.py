"""Finding jobs: TrainJobs, and jobs of `kubeflow.org/v1` where the cluster serves them.

A job is named as kubectl names it: `NAME`, or `KIND/NAME` where several kinds have the name.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.responses import Rejected, send
from trainmaster.controller.job_fields import JobFields
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.controller.kube.rest.errors import ApiError, Forbidden, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jobs.constants import API_VERSION, GROUP, VERSION, installed_kinds
from trainmaster.runtime.jsontree import JsonObject

_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Job(JobFields):
    """A job as the cluster has it."""

    resource: Resource

    @property
    def kind(self) -> str:
        """Of the job; objects of lists do not say."""
        return self.resource.kind

    @property
    def title(self) -> str:
        """What to call it when talking to users: kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def argument(self) -> str:
        """What to write after a command to mean this one, beside the options for cluster and namespace."""
        return self.name if self.is_trainjob else f"{self.kind.lower()}/{self.name}"

    @property
    def qualified(self) -> str:
        """What `-o name` prints, here and of kubectl."""
        return f"{self.kind.lower()}.{self.resource.group}/{self.name}"


def suspension(job: Job, *, suspend: bool) -> JsonObject:
    """Return the patch that suspends a job, or resumes it, if it is still the same one."""
    field: JsonObject = {"suspend": suspend}
    return {"metadata": {"uid": job.uid}, "spec": field if job.is_trainjob else {"runPolicy": field}}


async def v1_kinds(client: KubeClient) -> list[Resource]:
    """Return the kinds of jobs of `kubeflow.org/v1` that the cluster serves and this installation knows."""
    try:
        found, _ = await send(client, "GET", f"/apis/{API_VERSION}")
    except NotFound:
        return []
    known = set(installed_kinds())
    return [
        Resource(GROUP, VERSION, entry["kind"], entry["name"], namespaced=True)
        for entry in found.get("resources") or ()
        if entry["kind"].lower() in known and "/" not in entry["name"]
    ]


async def list_jobs(client: KubeClient, namespace: str | None) -> list[Job]:
    """List the jobs of a namespace, or of all, by namespace, name and kind.

    Raises:
        ConfigurationError: The cluster serves no TrainJobs, and no other jobs.
        Forbidden: They may not be read.
    """
    trainjobs, others = await asyncio.gather(_list(client, TRAINJOBS, namespace), _list_v1(client, namespace))
    if trainjobs is None and others is None:
        raise ConfigurationError(not_served(client))
    jobs = [*(trainjobs or ()), *(others or ())]
    return sorted(jobs, key=lambda job: (job.namespace, job.name, job.kind))


async def _list_v1(client: KubeClient, namespace: str | None) -> list[Job] | None:
    """List the jobs of `kubeflow.org/v1`; None if there are no such kinds. Who may not read a kind does without."""
    try:
        kinds = await v1_kinds(client)
    except Forbidden:
        return None
    found = await asyncio.gather(*(_list(client, kind, namespace) for kind in kinds), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, Forbidden):
            raise each
    return [job for each in found if isinstance(each, list) for job in each] if kinds else None


async def _list(client: KubeClient, resource: Resource, namespace: str | None) -> list[Job] | None:
    try:
        found = await client.list(resource, namespace)
    except NotFound:
        return None
    return [
        Job({"apiVersion": resource.api_version, "kind": resource.kind, **item}, resource) for item in found["items"]
    ]


def not_served(client: KubeClient) -> str:
    """Say that a cluster knows no jobs, and what to do."""
    return (
        f"the cluster {client.config.server} serves no TrainJobs: is Trainmaster installed there?\n"
        f"  what next: {TRAINJOBS.remedy}; or name another cluster with --kubeconfig"
    )


async def find_job(client: KubeClient, namespace: str, text: str) -> Job:
    """Return the job that somebody names.

    Raises:
        Rejected: There is none of that name, or more than one.
        KubeError: It cannot be read.
    """
    kind, slash, name = text.rpartition("/")
    if not name:
        raise Rejected([f"{text!r} is no name of a job; write NAME, or KIND/NAME"])
    found = []
    if not slash or means(kind, TRAINJOBS):
        found = await _get(client, TRAINJOBS, namespace, name)
        if found and not slash:
            return found[0]  # what is meant without a kind
    if not found:
        kinds = [each for each in await v1_kinds(client) if not slash or means(kind, each)]
        if slash and not kinds and not means(kind, TRAINJOBS):
            raise Rejected([f"{text!r}: this cluster serves no kind of jobs {kind!r}; write NAME, or KIND/NAME"])
        for each in await asyncio.gather(*(_get(client, resource, namespace, name) for resource in kinds)):
            found += each
    if len(found) == 1:
        return found[0]
    if found:
        raise Rejected([f"several jobs are called {name} in namespace {namespace}: name one: {_written(found)}"])
    raise Rejected(await _explain_absence(client, namespace, name))


def means(word: str, resource: Resource) -> bool:
    """Tell whether a word means a kind: `trainjob`, `trainjobs`, `TrainJob`, `trainjob.trainer.kubeflow.org`."""
    return word.lower().partition(".")[0] in {resource.kind.lower(), resource.plural}


async def _get(client: KubeClient, resource: Resource, namespace: str, name: str) -> list[Job]:
    try:
        return [Job(await client.get(resource, namespace, name), resource)]
    except NotFound:
        return []


async def _explain_absence(client: KubeClient, namespace: str, name: str) -> list[str]:
    """Say that a job does not exist, which ones do, and where."""
    try:
        here: list[Job] = await list_jobs(client, namespace)
    except ApiError:
        return [f"no job {name!r} in namespace {namespace}"]
    try:
        elsewhere = [job for job in await list_jobs(client, None) if job.namespace != namespace and job.name == name]
    except ApiError:  # who may read one namespace may not read all
        elsewhere = []
    near = difflib.get_close_matches(name, [job.name for job in here], n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    lines = [f"no job {name!r} in namespace {namespace}{meant}"]
    if elsewhere:
        names = ", ".join(dict.fromkeys(job.namespace for job in elsewhere[:_LISTED]))
        lines.append(f"  there is one of this name in: {names}; choose the namespace with -n")
    elif here:
        more = f" and {len(here) - _LISTED} more" if len(here) > _LISTED else ""
        lines.append(f"  jobs there: {_written(here[:_LISTED])}{more}")
    else:
        lines.append("  there are no jobs in it; `trainmaster list -A` shows those of all namespaces")
    return lines


def _written(jobs: Iterable[Job]) -> str:
    return ", ".join(job.argument for job in jobs)
