"""Gathering the view of a job, with few requests: what the job is made of first, then what its state makes one ask.

Guarantees:
- Nothing is written, and what may not be read keeps nobody from the rest (see `reader`).
- A job that runs or is complete costs half a dozen requests. Nodes, queues, quotas, claims, leases and controllers are
  looked at for jobs that have a reason to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.explain.looks import look_for_reasons
from trainmaster.controller.cli.explain.ownership import created_since, owned_by
from trainmaster.controller.cli.explain.reader import Reader
from trainmaster.controller.cli.explain.resources import (
    BATCH_JOBS,
    CLAIMS,
)
from trainmaster.controller.cli.jobs.log_sources import selector
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.container_failures import JOBSET_LABEL
from trainmaster.controller.explain.causes.pods.volumes import claim_names
from trainmaster.controller.explain.event import Event, parse_event
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, PODS
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.api.constants import snapshot_name
from trainmaster.runtime.jsontree import JsonObject

_MOST_EVENTS: Final = 500
_PARTS: Final = (PODS.kind, "Job", "JobSet", "PodGroup", "Workload", "Service", "PersistentVolumeClaim", "ConfigMap")
"""Kinds of what a job is made of: their names begin with its own."""


async def gather(client: KubeClient, job: Job, *, now: datetime, command_options: Sequence[str] = ()) -> JobView:
    """Look at a job.

    Args:
        client: How.
        job: The job.
        now: The time.
        command_options: What commands that are advised need to reach the cluster.
    """
    reader = Reader(client, job.namespace)
    obj = {"apiVersion": job.resource.api_version, "kind": job.kind, **job.object}
    view = JobView(now=now, job=obj, command_options=command_options)
    view = await (_trainjob(reader, job, view) if job.is_trainjob else _v1_job(reader, job, view))
    return await look_for_reasons(reader, view)


async def gather_deleted(client: KubeClient, job: JsonObject, *, now: datetime) -> JobView:
    """Look at what is left of a job that is gone: its events.

    Args:
        client: How.
        job: Its kind, namespace and name.
        now: The time.
    """
    reader = Reader(client, job["metadata"]["namespace"])
    view = JobView(now=now, job=job, is_deleted=True)
    events = await _events(reader, view, uids=set())
    return replace(view, events=events, unread=tuple(reader.unread))


async def _trainjob(reader: Reader, job: Job, view: JobView) -> JobView:
    jobsets, jobs, pods, snapshots = await asyncio.gather(
        reader.read_all(JOBSETS, fields=f"metadata.name={job.name}", is_optional=False),
        reader.read_all(BATCH_JOBS, labels=f"{JOBSET_LABEL}={job.name}"),
        reader.read_all(PODS, labels=selector(job)),
        reader.read(CONFIGMAPS, snapshot_name(job.name)),
    )
    view = replace(
        view,
        jobsets=owned_by(jobsets, view.uid),
        jobs=created_since(jobs, view),
        pods=created_since(pods, view),
        snapshots=created_since(snapshots, view),
    )
    return await _with_events(reader, view)


async def _v1_job(reader: Reader, job: Job, view: JobView) -> JobView:
    pods = await reader.read_all(PODS, labels=selector(job))
    return await _with_events(reader, replace(view, pods=owned_by(pods, view.uid)))


async def _with_events(reader: Reader, view: JobView) -> JobView:
    parts = [*(view.jobsets or ()), *(view.jobs or ()), *(view.pods or ()), view.job]
    return replace(view, events=await _events(reader, view, uids={each["metadata"]["uid"] for each in parts}))


async def _events(reader: Reader, view: JobView, *, uids: set[str]) -> Sequence[Event] | None:
    """Return the events about a job and its parts, the oldest first."""
    raw = await reader.read_all(EVENTS)
    if raw is None:
        return None
    claims = {name for pod in view.pods or () for name in claim_names(pod)}
    found = [
        event
        for event in map(parse_event, raw)
        if event.uid in uids
        or (_is_about(event, view) and not _is_older(event, view.created))
        or (event.about.kind == CLAIMS.kind and event.about.name in claims)
    ]
    found.sort(key=lambda event: (event.last is None, event.last))
    return found[-_MOST_EVENTS:]


def _is_older(event: Event, created: datetime | None) -> bool:
    """Tell whether an event is about a namesake that was there before."""
    return created is not None and event.last is not None and event.last < created


def _is_about(event: Event, view: JobView) -> bool:
    """Tell whether the name of its object says that it was a part of the job; the object may be gone."""
    if event.about.name == view.name:
        return event.about.kind in (view.kind, *_PARTS)
    prefixes = (f"{view.name}-{each}" for each in _groups(view))
    return event.about.kind in _PARTS and event.about.name.startswith(tuple(prefixes))


def _groups(view: JobView) -> Iterable[str]:
    """Return the names of the groups of pods of a job."""
    if not view.is_trainjob:
        specs = [
            value for name, value in view.spec.items() if name.endswith("ReplicaSpecs") and isinstance(value, dict)
        ]
        known = [f"{replica_type.lower()}-" for spec in specs for replica_type in spec]
        return known or ("master-", "worker-", "launcher", "chief-", "ps-")
    jobs = [each for jobset in view.jobsets or () for each in (jobset.get("spec") or {}).get("replicatedJobs") or ()]
    return [f"{each['name']}-" for each in jobs] or ("node-", "launcher-", "dataset-initializer-", "model-initializer-")
