"""What is gathered beside the manager: versions; definitions, webhook configurations, runtimes, nodes, and what
`doctor` says; jobs with what they are made of and what is said of them.
"""

from __future__ import annotations

import asyncio
import platform
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import distributions
from typing import Final

from trainmaster.controller.certificates.webhook_names import MUTATING, VALIDATING
from trainmaster.controller.cli.crds import definition_files
from trainmaster.controller.cli.doctor.command import look
from trainmaster.controller.cli.doctor.facts import OTHERS, fetch_version
from trainmaster.controller.cli.explain.gathering import gather
from trainmaster.controller.cli.explain.text import to_json
from trainmaster.controller.cli.jobs.log_sources import selector
from trainmaster.controller.cli.jobs.lookup import Job, v1_kinds
from trainmaster.controller.cli.probes import BATCH_JOBS, DEFINITIONS, NODES, POD_GROUPS
from trainmaster.controller.cli.support_bundle.bundle import Bundle, Reading, joined
from trainmaster.controller.configuration import EffectiveConfiguration
from trainmaster.controller.container_failures import JOBSET_LABEL
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import EVENTS, PODS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.api.constants import GROUP, JOBSET_API_VERSION
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

DOCTOR_TIMEOUT: Final = 60.0
"""Seconds; it plans each TrainJob of the cluster, of which there may be thousands."""

_GROUPS: Final = frozenset({GROUP, JOBS_GROUP, JOBSET_API_VERSION.partition("/")[0], "*"})

EXPLAIN_TIMEOUT: Final = 60.0
"""Seconds for all of them."""

EXPLAINED: Final = 20
"""Jobs that are explained: those that are named, or the first that have not succeeded."""

_MOST_EVENTS: Final = 5000
"""Which are read, for the newest of them."""

_PARTS: Final = frozenset({"JobSet", "Job", "Pod", "PodGroup", "Workload", "PersistentVolumeClaim", "Service"})


async def gather_versions(bundle: Bundle, client: KubeClient | None) -> bool:
    """Gather versions; returns whether the cluster answers."""
    versions: JsonObject = {
        "trainmaster": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "plugins": {
            point.name: f"{point.dist.name} {point.dist.version}" if point.dist else "unknown" for point in discover()
        },
        "distributions": dict(sorted({each.name: each.version for each in distributions()}.items())),
    }
    answers = False
    if client is not None:
        try:
            version = await fetch_version(client)
        except KubeError as error:
            bundle.lacks("the cluster", str(error))
        else:
            answers = True
            versions["kubernetes"] = version.known if isinstance(version.known, str) else None
    bundle.add("versions.json", versions)
    return answers


async def gather_cluster(reading: Reading, namespaces: Sequence[str | None]) -> None:
    """Gather what jobs of all namespaces, or of some, have in common."""
    await _add_definitions(reading)
    for kind in (MUTATING, VALIDATING):
        found, remark = await reading.list(kind)
        reading.bundle.add_objects(f"cluster/{kind.name}.json", filter(_is_about_jobs, found), remark=remark)
    nodes, remark = await reading.list(NODES)
    for node in nodes:
        (node.get("status") or {}).pop("images", None)
    reading.bundle.add_objects(f"cluster/{NODES.name}.json", nodes, remark=remark)
    found, remark = await reading.list(CLUSTER_TRAINING_RUNTIMES)
    reading.bundle.add_objects(f"cluster/{CLUSTER_TRAINING_RUNTIMES.name}.json", found, remark=remark)
    for namespace in namespaces:
        found, remark = await reading.list(TRAINING_RUNTIMES, namespace)
        for each in sorted({str(runtime["metadata"]["namespace"]) for runtime in found}):
            own = [runtime for runtime in found if runtime["metadata"]["namespace"] == each]
            reading.bundle.add_objects(f"namespaces/{each}/{TRAINING_RUNTIMES.name}.json", own, remark=remark)


async def gather_doctor(
    reading: Reading, effective: EffectiveConfiguration, framework: Framework, *, namespace: str
) -> None:
    """Gather what `trainmaster doctor` says of the namespace of the manager."""
    path = f"manager/{namespace}/doctor.json"
    try:
        async with asyncio.timeout(DOCTOR_TIMEOUT):
            lines = await look(reading.client.config, effective, framework, namespace=namespace)
    except TimeoutError:
        reading.bundle.lacks(path, f"it took longer than {DOCTOR_TIMEOUT:g} s")
    except KubeError as error:
        reading.bundle.lacks(path, str(error))
    else:
        reading.bundle.add(path, [line._asdict() for line in lines])


async def _add_definitions(reading: Reading) -> None:
    """Add which versions of definitions there are; their schemas are long, and known by these."""
    found = []
    for name in [*definition_files(), *OTHERS]:
        try:
            definition = await reading.client.get(DEFINITIONS, None, name)
        except NotFound:
            found.append({"name": name, "installed": False})
        except KubeError as error:
            reading.failed(f"{DEFINITIONS.name} {name}", "get", error)
        else:
            found.append(_versions(name, definition))
    reading.bundle.add("cluster/definitions.json", found)


def _versions(name: str, definition: JsonObject) -> JsonObject:
    metadata, status = definition["metadata"], definition.get("status") or {}
    return {
        "name": name,
        "installed": True,
        "versions": [
            {field: each.get(field) for field in ("name", "served", "storage")}
            for each in definition["spec"]["versions"]
        ],
        "storedVersions": status.get("storedVersions"),
        "conditions": status.get("conditions"),
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "created": metadata.get("creationTimestamp"),
    }


def _is_about_jobs(configuration: JsonObject) -> bool:
    """Tell whether a webhook sees jobs or what they are made of."""
    rules = [rule for webhook in configuration.get("webhooks") or () for rule in webhook.get("rules") or ()]
    return any(_GROUPS.intersection(rule.get("apiGroups") or ()) for rule in rules)


async def readable_namespaces(reading: Reading, wanted: Sequence[str]) -> list[str | None]:
    """Return the namespaces to look at: those that are wanted, else all (None), else the one of the kubeconfig."""
    if wanted:
        return list(dict.fromkeys(wanted))
    try:
        await reading.client.list(TRAINJOBS, limit=1)
    except Forbidden:
        own = reading.client.config.namespace
        reading.bundle.lacks(
            f"{TRAINJOBS.name} of all namespaces", f"you have no right to list them; only namespace {own} was looked at"
        )
        return [own]
    except KubeError:
        return [None]  # whoever reads them next tells
    return [None]


async def gather_namespace(reading: Reading, namespace: str | None, *, now: datetime) -> None:
    """Gather all jobs of a namespace, or of all (None), and what they are made of."""
    kinds = [TRAINJOBS, *await _v1(reading)]
    jobs: list[Job] = []
    for kind in kinds:
        found, remark = await reading.list(kind, namespace)
        jobs += [Job(each, kind) for each in found]
        _add(reading, kind, found, remark)
    for kind, labels in (
        (JOBSETS, None),
        (BATCH_JOBS, JOBSET_LABEL),
        *((each, None) for each in POD_GROUPS),
    ):
        found, remark = await reading.list(kind, namespace, labels=labels, is_optional=kind in POD_GROUPS)
        _add(reading, kind, found, remark)
    pods, remark = await reading.list(PODS, namespace, labels=JOBSET_LABEL)
    others, other_remark = await reading.list(PODS, namespace, labels=JOB_NAME_LABEL) if len(kinds) > 1 else ([], "")
    _add(reading, PODS, [*pods, *others], joined([remark, other_remark]))
    names = {job.kind for job in jobs}
    await _add_events(reading, namespace, lambda about: about.get("kind") in _PARTS | names)
    unfinished = [job for job in jobs if job.outcome in (None, "Failed") and not job.is_suspended]
    await _add_explanations(reading, unfinished, now=now)


async def gather_jobs(reading: Reading, jobs: Sequence[Job], *, now: datetime) -> None:
    """Gather some jobs of one namespace, and what they are made of."""
    found: dict[Resource, list[JsonObject]] = defaultdict(list)
    remarks: list[str] = []
    for job in jobs:
        found[job.resource].append({"apiVersion": job.resource.api_version, "kind": job.kind, **job.object})
        named = f"metadata.name={job.name}"
        wanted = [(PODS, selector(job), None), *((each, None, named) for each in POD_GROUPS)]
        if job.is_trainjob:
            wanted += [(JOBSETS, None, named), (BATCH_JOBS, selector(job), None)]
        for kind, labels, fields in wanted:
            objects, remark = await reading.list(
                kind, job.namespace, labels=labels, fields=fields, is_optional=kind in POD_GROUPS
            )
            found[kind] += objects
            remarks.append(remark)
    for kind, objects in found.items():
        _add(reading, kind, objects, joined(remarks))
    names = tuple({job.name for job in jobs})
    prefixes = tuple(f"{name}-" for name in names)
    await _add_events(
        reading,
        jobs[0].namespace,
        lambda about: about.get("name") in names or str(about.get("name")).startswith(prefixes),
    )
    await _add_explanations(reading, jobs, now=now)


async def _v1(reading: Reading) -> list[Resource]:
    try:
        return await v1_kinds(reading.client)
    except KubeError as error:
        reading.failed("kinds of jobs of kubeflow.org/v1", "list", error)
        return []


def _add(reading: Reading, kind: Resource, objects: Sequence[JsonObject], remark: str) -> None:
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
    _add(reading, EVENTS, wanted[-most:], remark)


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
