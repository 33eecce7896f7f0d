"""Reads what a cluster tells of its jobs, nodes and managers; what may not be read is told, and done without."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, Unpack

from trainmaster.controller.cli.cluster import manager_status
from trainmaster.controller.cli.jobs.lookup import list_jobs
from trainmaster.controller.cli.jobs.rows import rows_of
from trainmaster.controller.cli.probes import MANAGER_LABELS, NODES
from trainmaster.controller.cli.top.managers import managers_of
from trainmaster.controller.cli.top.node_usage import node_usages
from trainmaster.controller.cli.top.snapshot import Snapshot
from trainmaster.controller.explain.causes.controllers import LEASE
from trainmaster.controller.kube.rest.client import KubeClient, ListOptions
from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.kube.rest.resources import LEASES, PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

_BOUND: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


async def read_snapshot(client: KubeClient, namespace: str | None) -> Snapshot:
    """Return what is known now, of the jobs of a namespace or of all.

    Raises:
        KubeError: The jobs cannot be read.
    """
    unread: list[str] = []

    async def read(
        what: str, resource: Resource, of: str | None = None, **options: Unpack[ListOptions]
    ) -> list[JsonObject] | None:
        try:
            items: list[JsonObject] = (await client.list(resource, of, **options))["items"]
        except NotFound:
            return []  # it is not served
        except ApiError as error:
            unread.append(f"{what}: {error}")
            return None
        return items

    jobs, embedded = await asyncio.gather(list_jobs(client, namespace), manager_status(client))
    pods, pods_of_v1, jobsets, nodes, bound, managers, leases = await asyncio.gather(
        read("pods of TrainJobs", PODS, namespace, label_selector=JOBSET_LABEL),
        read("pods of jobs of kubeflow.org/v1", PODS, namespace, label_selector=JOB_NAME_LABEL),
        read("JobSets", JOBSETS, namespace),
        read("nodes", NODES),
        read("pods on nodes", PODS, field_selector=_BOUND),
        read("pods of managers", PODS, label_selector=MANAGER_LABELS),
        read("leases", LEASES, field_selector=f"metadata.name={LEASE}"),
    )
    now = datetime.now(UTC)
    own = None if pods is None or pods_of_v1 is None else [*pods, *pods_of_v1]
    return Snapshot(
        now=now,
        server=client.config.server,
        namespace=namespace,
        jobs=rows_of(jobs, pods=own, jobsets=jobsets or (), now=now, with_trouble=True),
        nodes=None if nodes is None else node_usages(nodes, bound or ()),
        managers=None
        if managers is None and embedded is None
        else managers_of(managers or (), leases, now=now, embedded=embedded),
        unread=unread,
    )
