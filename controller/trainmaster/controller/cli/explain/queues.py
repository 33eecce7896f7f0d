"""What a job may wait for with others: queues of Kueue and of Volcano, groups of pods, quotas of its namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, Final

from trainmaster.controller.cli.explain.ownership import created_since, owners_of
from trainmaster.controller.cli.explain.reader import Reader, joined
from trainmaster.controller.cli.probes import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    POD_GROUPS,
    RESOURCE_QUOTAS,
    VOLCANO_QUEUES,
    WORKLOADS,
)
from trainmaster.controller.explain.causes.kueue import queue_of
from trainmaster.controller.explain.causes.refusals import names_quota
from trainmaster.controller.explain.pods import condition_of
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.api.constants import COSCHEDULING_POD_LABEL, VOLCANO_API_VERSION, VOLCANO_POD_ANNOTATION

_MOST_WORKLOADS: Final = 2000

Fields = dict[str, Any]
"""Fields of a view."""

Look = Awaitable[Fields]


def look_for_queues(reader: Reader, view: JobView) -> Iterator[Look]:
    """Return the looks that a job which does not run is worth."""
    state = state_of(view).state
    if state is State.SUSPENDED or queue_of(view):
        yield _kueue(reader, view)
    if names_quota(view):
        yield _quotas(reader)
    if state in (State.WAITING, State.RESTARTING) and _is_gang(view):
        yield _gangs(reader, view)


async def _kueue(reader: Reader, view: JobView) -> Fields:
    owners = {view.uid, *(each["metadata"]["uid"] for each in view.jobsets or ())}
    listed = await reader.read_all(WORKLOADS, is_optional=not queue_of(view))
    if listed is None:
        return {"workloads": None}
    workloads = [each for each in listed if any(owner.get("uid") in owners for owner in owners_of(each))]
    names = {str((each.get("spec") or {}).get("queueName") or "") for each in workloads} - {""}
    local = [await reader.read(LOCAL_QUEUES, name) for name in sorted(names)]
    if not workloads or any(each is None for each in local):
        return {"workloads": workloads}
    queues = [queue for each in local for queue in each or ()]
    clusters = {str((each.get("spec") or {}).get("clusterQueue") or "") for each in queues} - {""}
    for name in sorted(clusters):
        queues += await reader.read(CLUSTER_QUEUES, name) or ()
    found: Fields = {"workloads": workloads, "queues": queues}
    if any(condition_of(each, "QuotaReserved").get("status") == "False" for each in workloads):
        # Queues of a cluster are for all namespaces; who may not see those is told of the holders in this one.
        everywhere = await reader.read_first(WORKLOADS, _MOST_WORKLOADS, everywhere=True)
        found["quota_holders"] = listed if everywhere is None else everywhere[0]
    return found


def _is_gang(view: JobView) -> bool:
    """Tell whether the pods of a job belong to a PodGroup; so it is where there are none yet, and nobody can tell."""
    templates = [
        (((each.get("template") or {}).get("spec") or {}).get("template") or {}).get("metadata") or {}
        for jobset in view.jobsets or ()
        for each in (jobset.get("spec") or {}).get("replicatedJobs") or ()
    ]
    known = [pod["metadata"] for pod in view.pods or ()] or templates
    marks = (*(each.get("labels") or {} for each in known), *(each.get("annotations") or {} for each in known))
    return not known or any(COSCHEDULING_POD_LABEL in each or VOLCANO_POD_ANNOTATION in each for each in marks)


async def _gangs(reader: Reader, view: JobView) -> Fields:
    named = f"metadata.name={view.name}"
    lists = await asyncio.gather(*(reader.read_all(resource, fields=named) for resource in POD_GROUPS))
    groups = created_since(joined(*lists), view)
    found: Fields = {"pod_groups": groups}
    queues = [
        str((each.get("spec") or {}).get("queue") or "default")
        for each in groups or ()
        if each["apiVersion"] == VOLCANO_API_VERSION
    ]
    for name in queues[:1]:
        found["queues"] = await reader.read(VOLCANO_QUEUES, name)
    return found


async def _quotas(reader: Reader) -> Fields:
    return {"quotas": await reader.read_all(RESOURCE_QUOTAS)}
