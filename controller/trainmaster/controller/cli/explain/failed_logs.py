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
from trainmaster.controller.cli.follow.pod_logs import last_lines
from trainmaster.controller.cli.jobs.log_sources import kept_logs
from trainmaster.controller.cli.probes import POD_LOGS
from trainmaster.controller.cli.run.script.imports import installation_advice
from trainmaster.controller.container_failures import REPLICATED_JOB_LABEL, ContainerFailure, restart_attempt
from trainmaster.controller.explain.causes.failures.last_said import missing_module
from trainmaster.controller.explain.causes.pods.evidence import labels_of
from trainmaster.controller.explain.causes.pods.init_containers import running_init_container
from trainmaster.controller.explain.pods import last_failures
from trainmaster.controller.explain.view import JobView, WhyUnread
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontree import JsonObject

_MOST: Final = 4
"""Containers whose logs are read: of those that fail together, the first ones tell why."""

_TIMEOUT: Final = 10.0
_NO_RIGHT: Final = "you have no right to read the logs of pods in namespace {}"


async def read_failed_logs(reader: Reader, view: JobView) -> dict[str, Any]:
    """Return the field `logs` of a view, and what else the failures are worth a look at."""
    first = last_failures(view)[:_MOST]
    reads = [((failure.pod_uid, failure.container), _of_failure(reader, failure, pod)) for failure, pod in first]
    fields: dict[str, Any] = {}
    if first and first[0][0].lost_a_peer:
        failure = first[0][0]
        fields["former_pods"] = former = await _former_pods(reader, view, failure)
        reads += [
            ((pod["metadata"]["uid"], failure.container), _lines(reader, pod["metadata"]["name"], failure.container))
            for pod in former[:_MOST]
        ]
    for pod in view.pods or ():
        if (initial := running_init_container(pod)) is not None:
            reads.append(((pod["metadata"]["uid"], initial[0]), _lines(reader, pod["metadata"]["name"], initial[0])))
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
        return {**fields, "logs": found}
    installation = installation_advice([missing.partition(".")[0]], python=str(manager["python"]))
    return {**fields, "logs": found, "installation": installation}


async def _former_pods(reader: Reader, view: JobView, failure: ContainerFailure) -> list[JsonObject]:
    """Return the deleted pods of the attempt and the ReplicatedJob of a failure, as an embedded cluster tells."""
    try:
        kept = await kept_logs(reader.client, view.uid)
    except KubeError:
        return []
    return [
        pod
        for pod in (kept.pods if kept is not None else ())
        if restart_attempt(pod) == failure.attempt
        and labels_of(pod).get(REPLICATED_JOB_LABEL, "") == failure.replicated_job
    ]


async def _of_failure(reader: Reader, failure: ContainerFailure, pod: JsonObject) -> list[str]:
    since, until = run_of(failure, pod)
    lines = await _lines(reader, failure.pod, failure.container, previous=failure.superseded, since=since, until=until)
    return without_report(lines)


async def _lines(
    reader: Reader, pod: str, container: str, *, previous: bool = False, since: str = "", until: str = FOR_EVER
) -> list[str]:
    try:
        async with asyncio.timeout(_TIMEOUT):
            lines = await last_lines(
                reader.client,
                namespace=reader.namespace,
                pod=pod,
                container=container,
                previous=previous,
                since=since,
                until=until,
                refused=lambda _: reader.note(POD_LOGS, WhyUnread.FORBIDDEN, _NO_RIGHT.format(reader.namespace)),
            )
    except TimeoutError:
        return []
    return redact("\n".join(lines)).splitlines()
