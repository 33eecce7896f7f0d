"""Gathering the view of a job, with few requests: what the job is made of first, then what its state makes one ask.

Guarantees:
- Nothing is written, and what may not be read keeps nobody from the rest (see `reader`).
- A job that runs or is complete costs half a dozen requests. Nodes, queues, quotas, claims, leases and controllers are
  looked at for jobs that have a reason to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.explain.looks import look_for_reasons
from trainmaster.controller.cli.explain.reader import Reader, created_since, owned_by, parted, read_events
from trainmaster.controller.cli.jobs.log_sources import selector
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.probes import BATCH_JOBS
from trainmaster.controller.explain.findings import parse_event
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.api.constants import JOBSET_LABEL, snapshot_name
from trainmaster.runtime.jsontree import JsonObject

_MOST_EVENTS: Final = 500


async def gather(client: KubeClient, job: Job, *, now: datetime, command_options: Sequence[str] = ()) -> JobView:
    """Look at a job.

    `command_options` are what commands that are advised need to reach the cluster.
    """
    reader = Reader(client, job.namespace)
    obj = {"apiVersion": job.resource.api_version, "kind": job.kind, **job.object}
    view = JobView(obj, now=now, command_options=command_options)
    view = await (_trainjob(reader, job, view) if job.is_trainjob else _v1_job(reader, job, view))
    return await look_for_reasons(reader, view)


async def gather_deleted(
    client: KubeClient, job: JsonObject, *, now: datetime, command_options: Sequence[str] = ()
) -> JobView:
    """Look at what is left of a job that is gone: its events."""
    reader = Reader(client, job["metadata"]["namespace"])
    view = JobView(job, now=now, is_deleted=True, command_options=command_options)
    return replace(view, events=await read_events(reader, view), unread=reader.unread)


async def kind_that_was_there(
    client: KubeClient, kinds: Sequence[Resource], *, namespace: str, name: str
) -> Resource | None:
    """Return of which kind a job was of which only events tell; of several, the one of which they told last."""
    listed = await Reader(client, namespace).read_first(EVENTS, _MOST_EVENTS, fields=f"regarding.name={name}")
    events = sorted(map(parse_event, listed[0] if listed else ()), key=lambda event: str(event.last))
    by_kind = {each.kind: each for each in kinds}
    return next((by_kind[each.about.kind] for each in reversed(events) if each.about.kind in by_kind), None)


async def _trainjob(reader: Reader, job: Job, view: JobView) -> JobView:
    jobsets, jobs, pods, former, snapshots = await asyncio.gather(
        reader.read_all(JOBSETS, fields=f"metadata.name={job.name}", is_optional=False),
        reader.read_all(BATCH_JOBS, labels=f"{JOBSET_LABEL}={job.name}"),
        reader.read_all(PODS, labels=selector(job)),
        reader.read_former_pods(view.uid),
        reader.read(CONFIGMAPS, snapshot_name(job.name)),
    )
    own, foreign = parted(created_since(pods, view), view)
    view = replace(
        view,
        jobsets=owned_by(jobsets, view.uid),
        jobs=created_since(jobs, view),
        pods=own,
        former_pods=former,
        foreign_pods=foreign,
        has_more_pods=reader.has_more(PODS),
        snapshots=created_since(snapshots, view),
    )
    return await _with_events(reader, view)


async def _v1_job(reader: Reader, job: Job, view: JobView) -> JobView:
    pods, former = await asyncio.gather(reader.read_all(PODS, labels=selector(job)), reader.read_former_pods(view.uid))
    own, foreign = parted(pods, view)
    view = replace(view, pods=own, former_pods=former, foreign_pods=foreign, has_more_pods=reader.has_more(PODS))
    return await _with_events(reader, view)


async def _with_events(reader: Reader, view: JobView) -> JobView:
    return replace(view, events=await read_events(reader, view))
