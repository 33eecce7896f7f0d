"""The last lines of containers that failed, those of the first failures of the last attempt; and of init containers
for which their pods wait.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from trainmaster.controller.cli.cluster import manager_status
from trainmaster.controller.cli.explain.reader import Reader
from trainmaster.controller.cli.follow.failures import FOR_EVER, run_of, without_report
from trainmaster.controller.cli.follow.pod_logs import KEPT_LINES
from trainmaster.controller.cli.run.script.imports import installation_advice
from trainmaster.controller.container_failures import REPLICATED_JOB_LABEL, restart_attempt
from trainmaster.controller.explain.causes.failures.last_said import missing_module
from trainmaster.controller.explain.causes.pods.evidence import labels_of
from trainmaster.controller.explain.causes.pods.init_containers import running_init_container
from trainmaster.controller.explain.pods import FailedContainer, last_failures
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontree import JsonObject

_MOST: Final = 4
"""Containers whose logs are read: of those that fail together, the first ones tell why."""


async def read_failed_logs(reader: Reader, view: JobView) -> dict[str, Any]:
    """Return the field `logs` of a view, and what else the failures are worth a look at."""
    first = last_failures(view)[:_MOST]
    reads = [((each.failure.pod_uid, each.failure.container), _of_failure(reader, each)) for each in first]
    if first and first[0].failure.lost_a_peer:
        failure = first[0].failure
        former = [
            pod
            for pod in view.former_pods or ()
            if restart_attempt(pod) == failure.attempt
            and labels_of(pod).get(REPLICATED_JOB_LABEL, "") == failure.replicated_job
        ]
        reads += [
            ((pod["metadata"]["uid"], failure.container), _lines(reader, pod, failure.container))
            for pod in former[:_MOST]
        ]
    for pod in view.pods or ():
        if (initial := running_init_container(pod)) is not None:
            reads.append(((pod["metadata"]["uid"], initial[0]), _lines(reader, pod, initial[0])))
            break  # the others wait for the same
    logs = zip((key for key, _ in reads), await asyncio.gather(*(read for _, read in reads)), strict=True)
    # Of several runs of a container the first that counts is kept.
    found = {key: tuple(lines) for key, lines in reversed(list(logs)) if lines}
    missing = next(filter(None, map(missing_module, found.values())), "")
    manager = None
    if missing:
        with suppress(KubeError):
            manager = await manager_status(reader.client)
    if manager is None or not manager.get("python"):
        return {"logs": found}
    installation = installation_advice([missing.partition(".")[0]], python=str(manager["python"]))
    return {"logs": found, "installation": installation}


async def _of_failure(reader: Reader, failed: FailedContainer) -> list[str]:
    failure, (since, until) = failed.failure, run_of(failed.failure, failed.pod)
    lines = await _lines(reader, failed.pod, failure.container, previous=failure.superseded, since=since, until=until)
    return without_report(lines)


async def _lines(
    reader: Reader, pod: JsonObject, container: str, *, previous: bool = False, since: str = "", until: str = FOR_EVER
) -> list[str]:
    log = await reader.read_log(pod, container, tail=KEPT_LINES, previous=previous)
    return [] if log is None else redact("\n".join(log.between(since, until))).splitlines()
