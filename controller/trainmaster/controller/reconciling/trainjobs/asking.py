"""Asking the server for a runtime that the cache does not hold, before anybody is told that there is none.

TrainJobs and runtimes come by watches of their own, in no common order: of two that are created in a row, the second
may be seen first.
"""

from __future__ import annotations

from typing import Protocol

from trainmaster.controller.kube.errors import NotFound
from trainmaster.controller.kube.resources import RUNTIMES, Resource
from trainmaster.controller.reconciling.trainjobs.observing import StoreFacts
from trainmaster.runtime.admission.references import live_runtime, unsupported_runtime
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain


class Reader(Protocol):
    """Reads objects from the server."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object; raises `NotFound`, or another error of the client."""


async def with_runtime(job: TrainJob, facts: StoreFacts, reader: Reader) -> StoreFacts:
    """Return facts that hold the runtime that a TrainJob names, if there is one.

    Raises:
        KubeError: The server could not be asked.
    """
    reference = job.spec.runtime_ref
    if unsupported_runtime(reference) is not None or live_runtime(job, facts) is not None:
        return facts
    if dns_subdomain(reference.name):
        # No object has such a name, and it would become a part of the path that is asked for.
        return facts
    resource = RUNTIMES[reference.kind]
    try:
        runtime = await reader.get(resource, job.metadata.namespace if resource.namespaced else None, reference.name)
    except NotFound:
        return facts
    return facts.including(runtime)
