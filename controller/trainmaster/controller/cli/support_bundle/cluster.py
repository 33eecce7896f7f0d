"""The cluster around the manager: definitions, webhook configurations, runtimes, nodes, and what `doctor` says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from trainmaster.controller.certificates.webhook_names import MUTATING, VALIDATING
from trainmaster.controller.cli.crds import definition_files
from trainmaster.controller.cli.doctor.command import look
from trainmaster.controller.cli.doctor.facts import OTHERS
from trainmaster.controller.cli.probes import DEFINITIONS, NODES
from trainmaster.controller.cli.support_bundle.reading import Reading
from trainmaster.controller.configuration import EffectiveConfiguration
from trainmaster.controller.kube.rest.errors import KubeError, NotFound
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import GROUP, JOBSET_API_VERSION
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.constants import GROUP as JOBS_GROUP
from trainmaster.runtime.jsontree import JsonObject

DOCTOR_TIMEOUT: Final = 60.0
"""Seconds; it plans each TrainJob of the cluster, of which there may be thousands."""

_GROUPS: Final = frozenset({GROUP, JOBS_GROUP, JOBSET_API_VERSION.partition("/")[0], "*"})


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
