"""Asking the server for a runtime that the cache does not hold, before anybody is told that there is none.

TrainJobs and runtimes come by watches of their own, in no common order: of two that are created in a row, the second
may be seen first.
"""

from __future__ import annotations

from typing import Protocol

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.trainjobs.observe import StoreListers
from trainmaster.controller.resources import RUNTIMES
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain
from trainmaster.runtime.validation.runtime_lookup import live_runtime, unsupported_runtime


class Reader(Protocol):
    """Reads objects from the server."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object; raises `NotFound`, or another error of the client."""


async def with_runtime(job: TrainJob, listers: StoreListers, reader: Reader) -> StoreListers:
    """Return facts that hold the runtime that a TrainJob names, if there is one.

    Raises:
        KubeError: The server could not be asked.
    """
    reference = job.spec.runtime_ref
    if unsupported_runtime(reference) is not None or live_runtime(job, listers) is not None:
        return listers
    if dns_subdomain(reference.name):
        # No object has such a name, and it would become a part of the path that is asked for.
        return listers
    resource = RUNTIMES[reference.kind]
    try:
        runtime = await reader.get(resource, job.metadata.namespace if resource.namespaced else None, reference.name)
    except NotFound:
        return listers
    return listers.including(runtime)
