"""What the controller would do for a job of `kubeflow.org/v1`: its own planning, from lists in place of its caches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_values
from trainmaster.controller.reconciling.jobs.event_handlers import trim_owned
from trainmaster.controller.reconciling.jobs.objects import Plan
from trainmaster.controller.reconciling.jobs.observe import JobStores, OwnedKind, observe
from trainmaster.controller.reconciling.jobs.plan import plan
from trainmaster.controller.reconciling.jobs.restarts import RestartBackoff
from trainmaster.controller.resources import watched_resource
from trainmaster.runtime.api.constants import POD_GROUP_KIND
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch


async def plan_of(client: KubeClient, job: Job, gang: GangScheduler | None) -> Plan:
    """Decide what to write for a job that is as it would be once the files are applied.

    Args:
        client: The cluster.
        job: The job.
        gang: The gang scheduler of the controller.

    Raises:
        KubeError: What is there cannot be read.
    """
    watches = list(job.kind.watches())
    if gang is not None:
        watches.append(Watch(gang.api_version, POD_GROUP_KIND, "podgroups"))
    namespace, trim = job.namespace, trim_owned([job.kind])
    others = {
        (watch.api_version, watch.kind): OwnedKind(
            resource := watched_resource(watch),
            await _store(client, resource, namespace, label_selector=watch.label_selector, transform=trim),
            watch.creates_only,
        )
        for watch in watches
    }
    stores = JobStores(
        Store(),
        await _store(client, PODS, namespace, label_selector=JOB_NAME_LABEL),
        await _store(client, SERVICES, namespace, label_selector=JOB_NAME_LABEL),
        others,
    )
    return plan(observe(job, stores), gang, now=datetime.now(UTC), restarts=RestartBackoff(SystemClock()))


async def _store(
    client: KubeClient,
    resource: Resource,
    namespace: str,
    *,
    label_selector: str | None,
    transform: Callable[[JsonObject], JsonObject] = lambda whole: whole,
) -> Store:
    """Fill a store as an informer would."""
    store = Store()
    store.add_indexer(OWNER_INDEX, owner_values)
    try:
        listed = await client.list(resource, namespace, label_selector=label_selector)
    except NotFound:  # the kind is not served
        return store
    for item in listed["items"]:
        store.put(transform({"apiVersion": resource.api_version, "kind": resource.kind, **item}))
    return store
