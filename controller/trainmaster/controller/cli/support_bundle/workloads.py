"""Jobs in a support bundle, with what they are made of and what is said of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.explain.gathering import gather
from trainmaster.controller.cli.explain.text import to_json
from trainmaster.controller.cli.jobs.log_sources import selector
from trainmaster.controller.cli.jobs.lookup import Job, v1_kinds
from trainmaster.controller.cli.probes import BATCH_JOBS, POD_GROUPS
from trainmaster.controller.cli.support_bundle.bundle import Reading, joined
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import EVENTS, PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

EXPLAIN_TIMEOUT: Final = 60.0
"""Seconds for all of them."""

EXPLAINED: Final = 20
"""Jobs that are explained: those that are named, or the first that have not succeeded."""

_MOST_EVENTS: Final = 5000
"""Which are read, for the newest of them."""

_PARTS: Final = frozenset({"JobSet", "Job", "Pod", "PodGroup", "Workload", "PersistentVolumeClaim", "Service"})

_Selected = tuple[Resource, str | None, str | None]
"""A collection, with a label selector and a field selector."""


async def gather_namespace(reading: Reading, namespace: str | None, *, now: datetime) -> None:
    """Gather all jobs of a namespace, or of all (None), and what they are made of."""
    kinds = [TRAINJOBS, *await _v1(reading)]
    jobs: list[Job] = []
    for kind in kinds:
        found, remark = await reading.list(kind, namespace)
        jobs += [Job(each, kind) for each in found]
        add_by_namespace(reading, kind, found, remark)
    parts: list[_Selected] = [(JOBSETS, None, None), (BATCH_JOBS, JOBSET_LABEL, None), (PODS, JOBSET_LABEL, None)]
    if len(kinds) > 1:
        parts.append((PODS, JOB_NAME_LABEL, None))
    await _add_parts(reading, namespace, [*parts, *((each, None, None) for each in POD_GROUPS)])
    names = {job.kind for job in jobs}
    await _add_events(reading, namespace, lambda about: about.get("kind") in _PARTS | names)
    unfinished = [job for job in jobs if job.outcome in (None, "Failed") and not job.is_suspended]
    await _add_explanations(reading, unfinished, now=now)


async def gather_jobs(reading: Reading, jobs: Sequence[Job], *, now: datetime) -> None:
    """Gather some jobs of one namespace, and what they are made of."""
    namespace = jobs[0].namespace
    parts: list[_Selected] = []
    for job in jobs:
        named = f"metadata.name={job.name}"
        parts += [(PODS, selector(job), None), *((each, None, named) for each in POD_GROUPS)]
        if job.is_trainjob:
            parts += [(JOBSETS, None, named), (BATCH_JOBS, selector(job), None)]
    for kind in dict.fromkeys(job.resource for job in jobs):
        named_jobs = [job.object for job in jobs if job.resource == kind]
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        add_by_namespace(reading, kind, [head | each for each in named_jobs], "")
    await _add_parts(reading, namespace, parts)
    names = tuple({job.name for job in jobs})
    prefixes = tuple(f"{name}-" for name in names)
    await _add_events(
        reading,
        namespace,
        lambda about: about.get("name") in names or str(about.get("name")).startswith(prefixes),
    )
    await _add_explanations(reading, jobs, now=now)


async def _add_parts(reading: Reading, namespace: str | None, parts: Iterable[_Selected]) -> None:
    """Add what jobs are made of, of each kind all that is selected."""
    found: dict[Resource, list[JsonObject]] = defaultdict(list)
    remarks: dict[Resource, list[str]] = defaultdict(list)
    for kind, labels, fields in parts:
        objects, remark = await reading.list(
            kind, namespace, labels=labels, fields=fields, is_optional=kind in POD_GROUPS
        )
        found[kind] += objects
        remarks[kind].append(remark)
    for kind, objects in found.items():
        add_by_namespace(reading, kind, objects, joined(remarks[kind]))


async def _v1(reading: Reading) -> list[Resource]:
    try:
        return await v1_kinds(reading.client)
    except KubeError as error:
        reading.failed("kinds of jobs of kubeflow.org/v1", "list", error)
        return []


def add_by_namespace(reading: Reading, kind: Resource, objects: Sequence[JsonObject], remark: str) -> None:
    """Add a file of each namespace."""
    by_namespace: dict[str, dict[str, JsonObject]] = defaultdict(dict)
    for each in objects:
        by_namespace[str(each["metadata"]["namespace"])][str(each["metadata"]["name"])] = each
    for namespace, found in by_namespace.items():
        reading.bundle.add_objects(f"namespaces/{namespace}/{kind.name}.json", found.values(), remark=remark)


async def _add_events(reading: Reading, namespace: str | None, is_wanted: Callable[[JsonObject], bool]) -> None:
    """Add the newest events about some objects."""
    found, remark = await reading.list(EVENTS, namespace, most=_MOST_EVENTS)
    wanted = [each for each in found if is_wanted(each.get("regarding") or {})]
    wanted.sort(key=_moment)
    most = reading.bundle.most_objects
    if len(wanted) > most:
        remark = joined([remark, f"the newest {most} of {len(wanted)}"])
    add_by_namespace(reading, EVENTS, wanted[-most:], remark)


def _moment(event: JsonObject) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return str(next((each for each in times if each), event["metadata"].get("creationTimestamp", "")))


async def _add_explanations(reading: Reading, jobs: Sequence[Job], *, now: datetime) -> None:
    """Add what `trainmaster explain` says of jobs."""
    by_namespace: dict[str, list[JsonObject]] = defaultdict(list)
    with suppress(TimeoutError):
        async with asyncio.timeout(EXPLAIN_TIMEOUT):
            for job in jobs[:EXPLAINED]:
                try:
                    view = await gather(reading.client, job, now=now)
                except KubeError as error:
                    reading.failed(f"explanation of {job.title}", "read", error)
                else:
                    by_namespace[job.namespace].append(to_json(explain(view), view))
    number = sum(map(len, by_namespace.values()))
    remark = f"{number} of {len(jobs)} jobs" if number < len(jobs) else ""
    for namespace, explanations in by_namespace.items():
        reading.bundle.add(f"namespaces/{namespace}/explanations.json", explanations, remark=remark)
