"""Records the failures of followed jobs, and reports each when it is seen.

- The last lines are read at once: the container may be restarted at once, and its pod be deleted a moment later.
- A failure that ends everything is left to the summary, which follows at once. Every other one is reported, those of
  earlier attempts in any case.
- What was printed is not printed again: lines that were passed on as the log of a rank, unless that goes elsewhere or
  torchrun's report has followed them, and those with which another rank or run has ended as well. Only the summary
  prints those of another rank again.
- Of many failures in one attempt the first ones are reported; the others are counted.
- What ends because its pod is deleted has not failed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from trainmaster.controller.cli.follow.failures import Failure, attempt_of, run_of, without_report
from trainmaster.controller.cli.follow.job_logs import JobLogs
from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.pod_logs import last_lines
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.container_failures import container_failures, log_container
from trainmaster.controller.explain.view import role_of
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.runtime.jsontree import JsonObject

_REPORTED_AT_MOST: Final = 10
"""In one attempt; those of the ranks that the first one took with it say little."""

_READ_TIMEOUT: Final = 5.0
_ALIKE: Final = re.compile(r"0x[0-9a-f]+|\d+")


class FailureRecorder:
    """Records failures in the status of their jobs."""

    def __init__(self, client: KubeClient, reporter: Reporter, logs: JobLogs) -> None:
        self._client = client
        self._reporter = reporter
        self._logs = logs
        self._seen: set[tuple[str, str, str, str]] = set()
        self._counts: dict[tuple[str, str], int] = {}
        """How many failures each attempt of each job had."""

        self._told: dict[str, dict[tuple[str, ...], str]] = {}
        """Who ended with which last lines, by job."""

    def observe_pod(self, status: JobStatus, pod: JsonObject) -> Iterator[Failure]:
        """Record what the pod tells of failures that are new; yields those to read more of, and to report."""
        for failure in container_failures(pod):
            since, until = run_of(failure, pod)
            key = failure.pod_uid, failure.container, since, failure.at
            if key in self._seen or failure.stopped:
                continue
            self._seen.add(key)
            attempt = status.job.key, attempt_of(failure)
            count = self._counts[attempt] = self._counts.get(attempt, 0) + 1
            if count <= _REPORTED_AT_MOST:
                failure = replace(failure, run=failure.run + status.pods_before(pod))  # noqa: PLW2901 - the same failure
            who = role_of(pod) if failure.container == log_container(pod) else f"container {failure.container}"
            kept = Failure(failure, who, failure.message.strip().splitlines(), since=since, until=until)
            status.failures.append(kept)
            status.failures.sort(key=lambda each: each.failure.order)
            if count <= _REPORTED_AT_MOST:
                yield kept
            elif count == _REPORTED_AT_MOST + 1:
                self._reporter.report(f"{self._title(status)}more failures of {attempt_of(failure)} follow")

    async def read(self, status: JobStatus, kept: Failure) -> None:
        """Read its last lines."""
        failure = kept.failure
        if lines := await self._last_lines(status, kept):
            kept.lines = without_report(lines)
            is_passed_on = self._reporter.is_mixed and self._logs.passes_on(failure)
            told = self._told.get(status.job.key, {}).get(_alike(kept), "")
            kept.seen = (is_passed_on and len(kept.lines) == len(lines)) or told.startswith(f"{kept.who} in ")

    async def _last_lines(self, status: JobStatus, kept: Failure) -> list[str]:
        failure, lines = kept.failure, list[str]()
        try:
            async with asyncio.timeout(_READ_TIMEOUT):
                lines = await last_lines(
                    self._client,
                    namespace=status.job.namespace,
                    pod=failure.pod,
                    container=failure.container,
                    previous=failure.superseded,
                    since=kept.since,
                    until=kept.until,
                )
                if not lines:
                    lines = await self._logs.last_lines(failure, since=kept.since, until=kept.until)
        except TimeoutError:
            pass  # the failure itself is told in any case
        return lines

    def report(self, status: JobStatus, kept: Failure) -> None:
        """Report it with its last lines, if they are new."""
        self._reporter.report(self._title(status) + kept.text, bad=True)
        lines = kept.excerpt
        if not lines or self._logs.passes_on(kept.failure):
            return
        kept.seen = True
        told, alike = self._told.setdefault(status.job.key, {}), _alike(kept)
        if alike in told:
            self._reporter.report(f"  it ended with the same lines as {told[alike]}")
            return
        told[alike] = f"{kept.who} in {attempt_of(kept.failure)}"
        self._reporter.report("  its last lines:")
        for line in lines:
            self._reporter.report(f"  | {line.rpartition(chr(13))[2]}")

    def _title(self, status: JobStatus) -> str:
        return f"{status.job.title}: " if self._logs.is_prefixed else ""


def _alike(kept: Failure) -> tuple[str, ...]:
    """Return its last lines without the numbers in which they differ from run to run."""
    return tuple(_ALIKE.sub("#", line) for line in kept.excerpt)
