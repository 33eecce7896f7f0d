"""What the state of a job makes one look at: runtime, queues, quotas, claims, nodes, controllers, webhooks and logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from typing import Any, Final

from trainmaster.controller.certificates.webhook_names import MUTATING, VALIDATING
from trainmaster.controller.cli.explain.failed_logs import read_failed_logs
from trainmaster.controller.cli.explain.reader import MOST, Reader, created_since, joined
from trainmaster.controller.cli.probes import (
    CLAIMS,
    CLUSTER_QUEUES,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBSET_DEPLOYMENTS,
    LOCAL_QUEUES,
    MANAGER_LABELS,
    NODES,
    POD_GROUPS,
    RESOURCE_QUOTAS,
    SCHEDULING_POD_GROUPS,
    STORAGE_CLASSES,
    TRAINING_OPERATOR_LABELS,
    VOLCANO_QUEUES,
    WORKLOADS,
)
from trainmaster.controller.explain.causes.controllers import LEASE
from trainmaster.controller.explain.causes.gangs import is_of_gang, pod_group_of
from trainmaster.controller.explain.causes.kueue import queue_of
from trainmaster.controller.explain.causes.pods.evidence import spec_of, waiting_pods
from trainmaster.controller.explain.causes.pods.sidecars import training_container
from trainmaster.controller.explain.causes.pods.volumes import claim_names
from trainmaster.controller.explain.causes.refusals import names_quota
from trainmaster.controller.explain.causes.webhooks import (
    SERVICE_NAME_LABEL,
    named_webhooks,
    service_of,
    webhooks_called,
)
from trainmaster.controller.explain.findings import parse_time
from trainmaster.controller.explain.pods import (
    condition_of,
    current_pods,
    has_succeeded,
    is_running,
    is_scheduled,
    owners_of,
)
from trainmaster.controller.explain.state import PATIENCE, State, state_of
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.resources import LEASES, SERVICES
from trainmaster.controller.manager.roles import NAME
from trainmaster.controller.resources import RUNTIMES
from trainmaster.runtime.api.constants import (
    CLUSTER_TRAINING_RUNTIME_KIND,
    VOLCANO_API_VERSION,
)
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

_MOST_WORKLOADS: Final = 2000

Fields = dict[str, Any]
"""Fields of a view."""

Look = Awaitable[Fields]

_MOST_CLAIMS: Final = 10
_MOST_NODES: Final = 5
_MOST_LOGS: Final = 8


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
        ((each.get("template") or {}).get("spec") or {}).get("template") or {}
        for jobset in view.jobsets or ()
        for each in (jobset.get("spec") or {}).get("replicatedJobs") or ()
    ]
    known = list(view.pods or ()) or templates
    return not known or any(map(is_of_gang, known))


async def _gangs(reader: Reader, view: JobView) -> Fields:
    named = f"metadata.name={view.name}"
    lists = await asyncio.gather(*(reader.read_all(resource, fields=named) for resource in POD_GROUPS))
    names = {name for pod in view.pods or () if (name := pod_group_of(pod))}
    lists += await asyncio.gather(*(reader.read(SCHEDULING_POD_GROUPS, name) for name in sorted(names)))
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


async def look_for_reasons(reader: Reader, view: JobView) -> JobView:
    """Look at what may be the reason of a state."""
    state = state_of(view).state
    if state in (State.COMPLETE, State.DELETED):
        return replace(view, unread=reader.unread)
    looks = list(_of_pods(reader, view))
    if state is not State.FAILED:
        looks += [*_of_job(reader, view), *look_for_queues(reader, view)]
    found: Fields = {}
    for fields in await asyncio.gather(*looks):
        queues = [*(found.get("queues") or ()), *(fields.get("queues") or ())]
        found |= fields
        if queues:
            found["queues"] = queues
    return replace(view, **found, unread=reader.unread)


def _of_job(reader: Reader, view: JobView) -> Iterator[Look]:
    """Look at what keeps a job from being built, or from being noticed."""
    if view.is_trainjob and not (view.jobsets or view.snapshots or view.pods):
        yield _runtimes(reader, view)
    if _is_neglected(view):
        yield _controllers(reader, view)
    if named_webhooks(view):
        yield _webhooks(reader, view)


def _of_pods(reader: Reader, view: JobView) -> Iterator[Look]:
    """Look at what keeps pods from starting, or has ended them."""
    are_well = all(map(_is_well, view.pods or ()))
    if state_of(view).state in (State.WAITING, State.RESTARTING):
        yield _claims(reader, view)
        yield _services(reader, view)
    if not are_well or state_of(view).state is State.FAILED:
        yield read_failed_logs(reader, view)
    if state_of(view).state is State.RUNNING:
        yield _last_output(reader, view)
    if not are_well or _was_evicted_by_taint(view):
        yield _nodes(reader, view)


def _is_well(pod: JsonObject) -> bool:
    ready = condition_of(pod, "Ready")
    return is_running(pod) and ready.get("status") != "False"


def _was_evicted_by_taint(view: JobView) -> bool:
    """Tell whether pods left a node because of a taint: whether that is lost, its taints tell."""
    return any(event.reason == "TaintManagerEviction" for event in view.events or ())


def _is_neglected(view: JobView) -> bool:
    """Tell whether a controller should have done more for the job by now."""
    if view.created is None or view.now - view.created < PATIENCE:
        return False
    if not view.is_trainjob:
        return not view.status or not view.pods
    return (
        not view.jobsets or not view.jobs or any(condition_of(each, "Failed") for each in (*view.jobs, *view.jobsets))
    )


async def _runtimes(reader: Reader, view: JobView) -> Fields:
    reference = view.spec.get("runtimeRef") or {}
    resource = RUNTIMES.get(str(reference.get("kind") or CLUSTER_TRAINING_RUNTIME_KIND))
    name = str(reference.get("name") or "")
    if resource is None or not name:
        return {}
    runtimes = await reader.read(resource, name)
    if runtimes == []:
        runtimes = await reader.read_all(resource)
    return {"runtimes": runtimes}


async def _controllers(reader: Reader, view: JobView) -> Fields:
    """Look for the manager, and for JobSet's controller if that has something to do."""
    leases, by_name, by_label = await asyncio.gather(
        reader.read_all(LEASES, fields=f"metadata.name={LEASE}", everywhere=True),
        reader.read_all(DEPLOYMENTS, fields=f"metadata.name={NAME}", everywhere=True),
        reader.read_all(
            DEPLOYMENTS, labels=MANAGER_LABELS if view.is_trainjob else TRAINING_OPERATOR_LABELS, everywhere=True
        ),
    )
    found: Fields = {"leases": leases, "managers": joined(by_name, by_label)}
    if view.jobsets:
        lists = [
            reader.read_all(DEPLOYMENTS, fields=f"metadata.name={name}", everywhere=True) for name in JOBSET_DEPLOYMENTS
        ]
        found["jobset_controllers"] = joined(*await asyncio.gather(*lists))
    return found


async def _webhooks(reader: Reader, view: JobView) -> Fields:
    """Look for the configurations of the webhooks that are in the way, and for whoever should answer there."""
    names = named_webhooks(view)
    lists = await asyncio.gather(*(reader.read_all(resource) for resource in (VALIDATING, MUTATING)))
    found = [
        (configuration, webhook)
        for configuration in (each for listed in lists for each in listed or ())
        for name in names
        for webhook in webhooks_called(configuration, name)
    ]
    services = {service for _, webhook in found if (service := service_of(webhook)) is not None}
    slices = await asyncio.gather(
        *(
            reader.read_all(ENDPOINT_SLICES, labels=f"{SERVICE_NAME_LABEL}={service.name}", namespace=service.namespace)
            for service in services
        )
    )
    return {
        "webhooks": [configuration for configuration, _ in found],
        "endpoint_slices": joined(*slices) if services else None,
    }


async def _claims(reader: Reader, view: JobView) -> Fields:
    """Look at the claims of pods that wait: at each of a few, at all of the namespace for many."""
    names = sorted({name for pod in waiting_pods(view) for name in claim_names(pod)})
    if not names:
        return {}
    if len(names) > _MOST_CLAIMS:
        listed = await reader.read_first(CLAIMS, MOST)
        lists = [listed[0] if listed is not None and listed[1] else None]
    else:
        lists = list(await asyncio.gather(*(reader.read(CLAIMS, name) for name in names)))
    claims = [claim for found in lists for claim in found or ()]
    if None in lists:
        return {}
    found: Fields = {"claims": claims}
    if any((each.get("status") or {}).get("phase") != "Bound" for each in claims):
        found["storage_classes"] = await reader.read_all(STORAGE_CLASSES)
    return found


async def _services(reader: Reader, view: JobView) -> Fields:
    if not view.is_trainjob:
        return {"services": await reader.read_all(SERVICES, labels=f"{JOB_NAME_LABEL}={view.name}")}
    services: list[JsonObject] = []
    for jobset in view.jobsets or ():
        name = ((jobset.get("spec") or {}).get("network") or {}).get("subdomain") or view.name
        found = await reader.read(SERVICES, str(name))
        if found is None:
            return {}
        services += found
    return {"services": services} if view.jobsets else {}


async def _nodes(reader: Reader, view: JobView) -> Fields:
    """Look at all nodes if a pod seeks one, or left one that nobody remembers, else at those that pods have."""
    pods = view.pods or ()
    if not all(map(is_scheduled, pods)) or _was_evicted_by_taint(view):
        return {"nodes": await reader.read_all(NODES)}
    names = sorted({pod["spec"]["nodeName"] for pod in pods if not _is_well(pod)})
    if len(names) > _MOST_NODES:
        return {"nodes": await reader.read_all(NODES)}
    nodes: list[JsonObject] = []
    for each in await asyncio.gather(*(reader.read(NODES, name) for name in names)):
        if each is None:
            return {}
        nodes += each
    return {"nodes": nodes}


async def _last_output(reader: Reader, view: JobView) -> Fields:
    """Look at the last line of a few pods, those of the first nodes: a job hangs with all its pods running."""
    pods = [pod for pod in current_pods(view) if not has_succeeded(pod)][:_MOST_LOGS]
    times = await asyncio.gather(*(_last_line(reader, view, pod) for pod in pods))
    known = [(pod, at) for pod, at in zip(pods, times, strict=True) if at is not None]
    return {"last_output": {pod["metadata"]["uid"]: parse_time(at) for pod, at in known}}


async def _last_line(reader: Reader, view: JobView, pod: JsonObject) -> str | None:
    """Return when the container that trains wrote its last line; empty: it has written none; None: nobody says."""
    container = training_container(view, pod) or str(next(iter(spec_of(pod)["containers"]))["name"])
    log = await reader.read_log(pod, container, tail=1)
    return None if log is None else log.since or ""
