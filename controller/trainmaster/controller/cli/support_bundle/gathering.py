"""What is gathered for a support bundle, in this order: versions; jobs; definitions, webhook configurations, runtimes
and nodes; the manager, and what `doctor` says of its namespace; what an embedded cluster keeps in its state directory.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from trainmaster.controller.certificates.webhook_names import MUTATING, VALIDATING
from trainmaster.controller.cli.cluster import reachable_cluster, running_cluster, state_directory
from trainmaster.controller.cli.crds import definition_files
from trainmaster.controller.cli.doctor.checks import look
from trainmaster.controller.cli.doctor.facts import OTHERS, fetch_version
from trainmaster.controller.cli.jobs.lookup import find_job
from trainmaster.controller.cli.probes import DEFINITIONS, NODES
from trainmaster.controller.cli.support_bundle import manager, workloads
from trainmaster.controller.cli.support_bundle.bundle import Bundle, Reading
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.configuration import OFF, ConfigurationFile, EffectiveConfiguration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.api.constants import GROUP, JOBSET_API_VERSION
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

DOCTOR_TIMEOUT: Final = 60.0
"""Seconds; it plans each TrainJob of the cluster, of which there may be thousands."""

_TRIES: Final = 2
_GROUPS: Final = frozenset({GROUP, JOBS_GROUP, JOBSET_API_VERSION.partition("/")[0], "*"})


async def gather(arguments: argparse.Namespace, bundle: Bundle, redactor: Redactor, *, token: str) -> None:
    """Gather everything that a command line asks for, and learn what of it is confidential.

    Raises:
        Rejected: A job that is named does not exist.
        KubeError: There is no cluster.
    """
    bundle.scope = {
        "jobs": arguments.jobs,
        "namespaces": arguments.namespace or "all",
        "environmentValues": arguments.env_values,
    }
    directory = state_directory(arguments.kubeconfig)
    try:
        find = running_cluster if directory else reachable_cluster
        access = await find(arguments.kubeconfig)
    except ConfigurationError:
        if directory is None:
            raise
        access = None
    if access is None:
        bundle.lacks("the cluster", f"the embedded cluster of {directory} does not run")
        await gather_versions(bundle, None)
    else:
        await _gather_cluster(arguments, access, bundle, redactor, token=token)
    if directory is not None:
        await _gather_embedded(bundle, redactor, directory)


async def _gather_cluster(
    arguments: argparse.Namespace, access: RestConfig, bundle: Bundle, redactor: Redactor, *, token: str
) -> None:
    bundle.server = access.server
    for header in (await access.headers()).values():
        redactor.learn_value(header.rpartition(" ")[2])
    async with KubeClient(access, user_agent=f"trainmaster-support-bundle/{__version__}", tries=_TRIES) as client:
        if not await gather_versions(bundle, client):
            return
        reading, now = Reading(client, bundle), bundle.created
        namespaces: list[str | None]
        if arguments.jobs:
            (namespace,) = arguments.namespace or [client.config.namespace or "default"]
            jobs = [await find_job(client, namespace, name) for name in dict.fromkeys(arguments.jobs)]
            namespaces = [jobs[0].namespace]
            await workloads.gather_jobs(reading, jobs, now=now)
        else:
            namespaces = await readable_namespaces(reading, arguments.namespace or [])
            for each in namespaces:
                await workloads.gather_namespace(reading, each, now=now)
        await gather_common(reading, namespaces)
        for installed in await manager.find_namespaces(reading, arguments.manager_namespace):
            effective = await manager.gather_manager(reading, redactor, installed, token=token)
            await _gather_doctor(reading, effective, namespace=installed)


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


async def gather_common(reading: Reading, namespaces: Sequence[str | None]) -> None:
    """Gather what jobs of all namespaces, or of some, have in common."""
    await _add_definitions(reading)
    for kind in (MUTATING, VALIDATING):
        await reading.add_listed(f"cluster/{kind.name}.json", kind, is_wanted=_is_about_jobs)
    nodes, remark = await reading.list(NODES)
    for node in nodes:
        (node.get("status") or {}).pop("images", None)
    reading.bundle.add_objects(f"cluster/{NODES.name}.json", nodes, remark=remark)
    await reading.add_listed(f"cluster/{CLUSTER_TRAINING_RUNTIMES.name}.json", CLUSTER_TRAINING_RUNTIMES)
    for namespace in namespaces:
        found, remark = await reading.list(TRAINING_RUNTIMES, namespace)
        workloads.add_by_namespace(reading, TRAINING_RUNTIMES, found, remark)


async def _gather_doctor(reading: Reading, effective: EffectiveConfiguration, *, namespace: str) -> None:
    """Gather what `trainmaster doctor` says of the namespace of the manager."""
    path = f"manager/{namespace}/doctor.json"
    try:
        async with asyncio.timeout(DOCTOR_TIMEOUT):
            framework = Framework(load_plugins())
            lines = await look(reading.client.config, effective, framework, namespace=namespace)
    except TimeoutError:
        reading.bundle.lacks(path, f"it took longer than {DOCTOR_TIMEOUT:g} s")
    except (KubeError, PluginInvalid) as error:
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


async def _gather_embedded(bundle: Bundle, redactor: Redactor, directory: Path) -> None:
    text = manager.gather_files(bundle, redactor, directory)
    if text is None:
        return
    files = [ConfigurationFile("configuration", text)]
    metrics = manager.add_configuration(bundle, redactor, "embedded", files).configuration.metrics
    if metrics.bind_address != OFF:
        await manager.gather_metrics(bundle, metrics.bind_address, secure=metrics.secure_serving)
