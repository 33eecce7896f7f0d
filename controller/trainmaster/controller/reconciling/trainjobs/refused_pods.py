"""What controllers say of Jobs that have no pods: that these are refused, by a quota or a webhook for instance.

Permission to read events is no necessity; a Job that has pods costs no request.
"""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from trainmaster.controller.explain.event import Event, parse_event
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.trainjobs.job_creation import CORE_EVENTS
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

MOST: Final = 20  # events
TIME_LIMIT: Final = 3.0
_REASON: Final = "FailedCreate"
"""By which the Job controller tells it."""


class EventReader(Protocol):
    """Reads events from the server."""

    async def list(
        self, resource: Resource, namespace: str | None, *, field_selector: str | None, limit: int | None
    ) -> JsonObject:
        """Read a collection; raises errors of the client."""


async def read_refusals(client: EventReader, clock: Clock, jobset: JsonObject) -> list[Event] | None:
    """Return the events about the first Job of each ReplicatedJob of a JobSet; None if nobody says."""
    namespace, name = jobset["metadata"]["namespace"], jobset["metadata"]["name"]
    found: list[Event] = []
    try:
        async with clock.timeout(TIME_LIMIT):
            for replicated_job in (jobset.get("spec") or {}).get("replicatedJobs") or ():
                job = f"{name}-{replicated_job['name']}-0"
                selector = f"involvedObject.kind=Job,involvedObject.name={job},reason={_REASON}"
                page = await client.list(CORE_EVENTS, namespace, field_selector=selector, limit=MOST)
                found += [parse_event(each) for each in page.get("items") or ()]
    except (KubeError, TimeoutError) as error:
        write = log.debug if isinstance(error, Forbidden) and error.told else log.info
        write("events of Jobs that have no pods could not be read", jobset=name, error=str(error))
        return None
    return found
