"""The logs of the pods of followed jobs: which are passed on, and which are only kept at hand.

- The logs of the ranks that are followed are passed on as they are written, of every pod and every run of it.
- Of small jobs the ends of all other logs are kept as well: what a rank said last is of interest when it fails, and by
  then its pod may be gone.
- A training that is started anew often fails as before, at the same place. Of a traceback whose frames were printed
  already only the last line is passed on, which says what was raised, with the number of lines that are left out.
  Nothing is held back before a first traceback has been seen.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from trainmaster.controller.cli.follow.job_status import JobStatus, container_attempt
from trainmaster.controller.cli.follow.pod_logs import KEPT_LINES, FollowedPod, LogLines, PodLog
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.container_failures import (
    REPLICATED_JOB_LABEL,
    ContainerFailure,
    log_container,
)
from trainmaster.controller.explain.view import role_of
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.runtime.api.constants import LAUNCHER
from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jsontree import JsonObject

_BEGINNING: Final = "Traceback (most recent call last):"
_RANK: Final = re.compile(r"\[(?:default|rank)\d+\]:(?:\[rank\d+\]:)? ?")
"""What torchrun and torch.distributed put before each line of a traceback."""

_LONGEST: Final = 1000

_SMALL: Final = 32
"""Ranks, up to which the ends of all logs are kept: each costs the server a stream."""

_HELD_FOR: Final = 1.0
"""Seconds for which the beginning of a traceback waits for its end."""


class Tracebacks:
    """The tracebacks of one log, through all runs of what writes it."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()
        self._held: list[str] = []
        self._frames: list[str] = []

    @property
    def is_holding(self) -> bool:
        """Whether the beginning of a traceback is kept back, since its end is yet to come."""
        return bool(self._held)

    def shorten(self, lines: list[str]) -> list[str]:
        """Return the lines that are to be printed now."""
        if not self._frames and not any(_BEGINNING in line for line in lines):
            return lines
        printed: list[str] = []
        for line in lines:
            text = _RANK.sub("", line, count=1)
            if self._frames and text.startswith((" ", "\t")) and len(self._frames) < _LONGEST:
                self._frames.append(text)
                self._hold(line, printed)
            elif self._frames:
                self._end(line, printed)
            elif text == _BEGINNING:
                self._frames = [text]
                self._hold(line, printed)
            else:
                printed.append(line)
        return printed

    def release(self) -> list[str]:
        """Return what was kept back, as no more comes."""
        held, self._held, self._frames = self._held, [], []
        return held

    def _hold(self, line: str, printed: list[str]) -> None:
        (self._held if self._seen else printed).append(line)

    def _end(self, line: str, printed: list[str]) -> None:
        frames = tuple(self._frames)
        held = self.release()
        if frames in self._seen:
            printed.append(f"[{len(held)} lines of a traceback as before] {line}")
        else:
            self._seen.add(frames)
            printed.extend([*held, line])


class JobLogs:
    """The logs of some jobs.

    Args:
        client: How they are read.
        reporter: Where lines go.
        ranks: The ranks whose logs are passed on; None: all.
        tail_lines: How many lines of those that are there already are passed on; None: all.
        is_prefixed: Whether lines tell of which job they are.
        start: Starts a task that ends with the follower.
    """

    def __init__(
        self,
        client: KubeClient,
        reporter: Reporter,
        *,
        ranks: Collection[int] | None,
        tail_lines: int | None,
        is_prefixed: bool,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.is_prefixed = is_prefixed
        self._client = client
        self._reporter = reporter
        self._ranks = ranks
        self._tail_lines = tail_lines
        self._start = start
        self._followed: dict[str, FollowedPod] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._refused = False
        self._tracebacks: dict[tuple[str, int | None], Tracebacks] = {}

    def observe_pod(self, status: JobStatus, pod: JsonObject) -> None:
        """Take the state of a pod."""
        uid = pod["metadata"]["uid"]
        if (followed := self._followed.get(uid)) is not None:
            followed.observe(pod)
            return
        container, shown = log_container(pod), self._is_shown(status, pod)
        if container_attempt(pod, container) is None or not (shown or self._is_kept(status, pod)):
            return
        lines, finish = self._lines_of(status, pod) if shown else (LogLines(is_tail=True), lambda: None)
        log = PodLog(
            self._client,
            namespace=status.job.namespace,
            pod=pod["metadata"]["name"],
            container=container,
            lines=lines,
            tail_lines=self._tail_lines if shown else KEPT_LINES,
        )
        followed = self._followed[uid] = FollowedPod(pod, container, log)
        self._reading[uid] = self._start(self._follow(pod["metadata"]["name"], followed, finish))

    def forget_pod(self, uid: str) -> None:
        """Take note that a pod was deleted."""
        if (followed := self._followed.get(uid)) is not None:
            followed.observe(None)

    def passes_on(self, failure: ContainerFailure) -> bool:
        """Whether what failed has printed its last lines for everybody to see."""
        followed = self._followed.get(failure.pod_uid)
        return followed is not None and followed.log.lines.is_delivered and failure.container == followed.container

    async def last_lines(self, failure: ContainerFailure, *, since: str, until: str) -> list[str]:
        """Return the last lines of a run as far as they were kept, once there is nothing more to come."""
        followed = self._followed.get(failure.pod_uid)
        if followed is None or failure.container != followed.container:
            return []
        if followed.pod is None:
            await asyncio.wait([self._reading[failure.pod_uid]])
        return followed.log.lines.between(since, until)

    @property
    def reading(self) -> Iterable[asyncio.Task[None]]:
        """What is still being read."""
        return [task for task in self._reading.values() if not task.done()]

    @property
    def received(self) -> int:
        """How many bytes were read so far."""
        return sum(followed.log.received for followed in self._followed.values())

    async def _follow(self, name: str, followed: FollowedPod, finish: Callable[[], None]) -> None:
        try:
            await followed.follow()
        finally:
            finish()
        if followed.log.refusal is not None:
            if not self._refused:
                self._refused = True
                self._reporter.report(f"logs cannot be read: {followed.log.refusal}", bad=True)
        elif followed.log.lines.is_delivered and followed.log.is_lost:
            self._reporter.report(f"pod {name} was deleted before its log could be read")

    def _is_shown(self, status: JobStatus, pod: JsonObject) -> bool:
        rank = status.job.rank(pod)
        if rank is None:
            # The ranks of MPI print to their launcher.
            labels = pod["metadata"].get("labels") or {}
            return LAUNCHER in {labels.get(REPLICATED_JOB_LABEL), str(labels.get(REPLICA_TYPE_LABEL)).lower()}
        return self._ranks is None or rank in self._ranks

    def _is_kept(self, status: JobStatus, pod: JsonObject) -> bool:
        return status.job.rank(pod) is not None and (status.nodes or len(status.pods)) <= _SMALL

    def _lines_of(self, status: JobStatus, pod: JsonObject) -> tuple[LogLines, Callable[[], None]]:
        key, rank = status.job.key, status.job.rank(pod)
        tracebacks = self._tracebacks.setdefault((key, rank), Tracebacks())
        several = (self._ranks is None or len(self._ranks) > 1) and rank is not None
        whose = [status.job.name] if self.is_prefixed else []
        whose += [role_of(pod)] if several else []
        prefix = f"{' '.join(whose)} | " if whose else ""
        # Of these the reporter may read how far the training is.
        job = key if rank in {None, 0} else ""

        def pass_on(lines: list[str]) -> None:
            if lines:
                self._reporter.log([prefix + line for line in lines] if prefix else lines, job=job)

        def finish() -> None:
            pass_on(tracebacks.release())

        def deliver(lines: list[str]) -> None:
            pass_on(tracebacks.shorten(lines))
            if tracebacks.is_holding:
                asyncio.get_running_loop().call_later(_HELD_FOR, finish)

        def partial(text: str) -> None:
            if not several or rank == 0:
                self._reporter.partial(prefix + text if text else "", job=job)

        return LogLines(deliver, partial, is_tail=self._tail_lines is not None), finish
