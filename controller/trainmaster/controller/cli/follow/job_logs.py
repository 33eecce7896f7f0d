"""The logs of the pods of followed jobs: which are passed on, and which are only kept at hand.

- The logs of the ranks that are followed are passed on as they are written, of every pod and every run of it.
- Of small jobs the ends of all other logs are kept as well: what a rank said last is of interest when it fails, and by
  then its pod may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from trainmaster.controller.cli.follow.job_status import JobStatus, container_attempt
from trainmaster.controller.cli.follow.pod_logs import EVERYTHING, KEPT_LINES, LogLines, LogOptions, PodLog
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.container_failures import ContainerFailure, is_launcher, log_container, ranks_of
from trainmaster.controller.explain.view import role_of
from trainmaster.controller.kube.clock import parse_time
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.runtime.jsontree import JsonObject

_SMALL: Final = 32
"""Ranks, up to which the ends of all logs are kept: each costs the server a stream."""


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which logs of jobs are passed on, and what of them."""

    rank: int | None = None
    """That of the node which runs this rank; None: of the first node, and of launchers."""

    is_all: bool = False
    """Whether those of all pods are."""

    options: LogOptions = EVERYTHING
    """Those of the logs that are there already; of what starts later all is passed on."""

    tells_of_empty: bool = False
    """Whether it is told that a container has written nothing."""

    def has(self, pod: JsonObject, node: int | None) -> bool:
        """Whether the log of a pod, which may be a node, is passed on."""
        if self.is_all or node is None:
            # The ranks of MPI print to their launcher.
            return self.is_all or (self.rank is None and is_launcher(pod))
        ranks = ranks_of(pod, node) or range(node, node + 1)
        return node == 0 if self.rank is None else self.rank in ranks

    def pods_of(self, status: JobStatus) -> list[JsonObject]:
        """Return the pods of a job whose logs are passed on."""
        return [pod for pod in status.all_pods if self.has(pod, status.job.rank(pod))]


FIRST_NODE: Final = LogChoice()


class JobLogs:
    """The logs of some jobs.

    `start` starts a task that ends with the follower.
    """

    def __init__(
        self,
        client: KubeClient,
        reporter: Reporter,
        choice: LogChoice,
        *,
        is_prefixed: bool,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.is_prefixed = is_prefixed
        self._client = client
        self._reporter = reporter
        self._choice = choice
        self._is_up_to_date = False
        self._start = start
        self._logs: dict[str, PodLog] = {}
        """By UID of the pod, as the tasks that read them."""

        self._reading: dict[str, asyncio.Task[None]] = {}
        self._refused = False

    def observe_pod(self, status: JobStatus, pod: JsonObject) -> None:
        """Take the state of a pod."""
        uid, name, container = pod["metadata"]["uid"], pod["metadata"]["name"], log_container(pod)
        if (log := self._logs.get(uid)) is not None:
            log.observe(pod)
            return
        shown = self._choice.has(pod, status.job.rank(pod))
        if container_attempt(pod, container) is None or not (shown or self._is_kept(status, pod)):
            return
        log = self._logs[uid] = PodLog(
            self._client,
            namespace=status.job.namespace,
            pod=name,
            container=container,
            lines=self._lines_of(status, pod) if shown else LogLines(is_tail=True),
            options=self._options if shown else LogOptions(KEPT_LINES),
        )
        log.observe(pod)
        who = role_of(pod) if shown and self._choice.tells_of_empty and self._choice.options.is_whole else ""
        self._reading[uid] = self._start(self._follow(name, log, who, is_late=self._is_up_to_date))

    def forget_pod(self, uid: str) -> None:
        """Take note that a pod was deleted."""
        if (log := self._logs.get(uid)) is not None:
            log.observe(None)

    def close(self, uids: Iterable[str]) -> None:
        """Read what pods have written, and nothing of later runs of their containers."""
        for log in (self._logs[uid] for uid in uids if uid in self._logs):
            log.close()

    def is_up_to_date(self) -> None:
        """Take note that all pods that are there were observed: of later ones no line was there before."""
        self._is_up_to_date = True

    def passes_on(self, failure: ContainerFailure) -> bool:
        """Whether what failed has printed its last lines for everybody to see."""
        log = self._logs.get(failure.pod_uid)
        return log is not None and log.lines.is_delivered and failure.container == log.container

    async def last_lines(self, failure: ContainerFailure, *, since: str, until: str) -> list[str]:
        """Return the last lines of a run as far as they were kept, once there is nothing more to come."""
        log = self._logs.get(failure.pod_uid)
        if log is None or failure.container != log.container:
            return []
        if log.pod is None:
            await asyncio.wait([self._reading[failure.pod_uid]])
        return log.lines.between(since, until)

    @property
    def reading(self) -> Iterable[asyncio.Task[None]]:
        """What is still being read."""
        return [task for task in self._reading.values() if not task.done()]

    @property
    def received(self) -> int:
        """How many bytes were read so far."""
        return sum(log.received or 0 for log in self._logs.values())

    @property
    def last_output(self) -> dict[str, datetime | None]:
        """When each pod wrote its last line, None if it wrote none, by UID, of those whose logs are read."""
        read = ((uid, log.lines.since) for uid, log in self._logs.items() if log.received is not None)
        return {uid: None if last is None else parse_time(last) for uid, last in read}

    @property
    def _options(self) -> LogOptions:
        options = self._choice.options
        return LogOptions(timestamps=options.timestamps) if self._is_up_to_date else options

    async def _follow(self, name: str, log: PodLog, who: str, *, is_late: bool) -> None:
        """Follow a log; `who` writes it if it is to be told that nothing was written."""
        if who and not is_late:
            await log.glance()
            if log.received == 0:
                self._reporter.report(f"{who}: its container has written nothing yet")
        await log.follow()
        if log.refusal is not None:
            if not self._refused:
                self._refused = True
                self._reporter.report(f"logs cannot be read: {log.refusal}", bad=True)
        elif log.lines.is_delivered and log.is_lost:
            self._reporter.report(f"pod {name} was deleted before its log could be read")
        elif who and log.received == 0:
            self._reporter.report(f"{who}: its container ended, and wrote nothing")

    def _is_kept(self, status: JobStatus, pod: JsonObject) -> bool:
        return status.job.rank(pod) is not None and (status.nodes or len(status.pods)) <= _SMALL

    def _lines_of(self, status: JobStatus, pod: JsonObject) -> LogLines:
        rank = status.job.rank(pod)
        whose = [status.job.name] if self.is_prefixed else []
        whose += [role_of(pod)] if self._choice.is_all else []
        prefix = f"{' '.join(whose)} | " if whose else ""
        # Of these the reporter may read how far the training is.
        job = status.job.key if rank in {None, 0} else ""

        def deliver(lines: list[str]) -> None:
            # Of what was drawn over, the last state, which would hide the prefix.
            shown = [prefix + line.rpartition("\r")[2] for line in lines] if prefix else lines
            self._reporter.log(shown, job=job)

        def partial(text: str) -> None:
            if not self._choice.is_all or rank == 0:
                self._reporter.partial(prefix + text if text else "", job=job)

        return LogLines(deliver, partial, is_tail=not self._options.is_whole, with_times=self._options.timestamps)
