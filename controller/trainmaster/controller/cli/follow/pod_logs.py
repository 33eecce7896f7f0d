"""The log of a container, through all its runs.

- It is read to the end of the last run. What breaks is opened again: the server is asked for the lines from the last
  time on, and for times, so that none is delivered twice. Nothing is counted in bytes, since the log may be that of
  another run by then, or may have been rotated.
- The first look at a log is a single request, over a connection that is there already: a stream takes a new one, and by
  the time that stands, the pod may have been deleted, since another one failed.
- Before the log of a new run is opened, the end of that of the run before is read once more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Final

from trainmaster.controller.cli.follow.job_status import container_attempt, pod_phase
from trainmaster.controller.cli.follow.log_lines import KEPT_LINES, LogLines
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    KubeError,
    ServerError,
    TooManyRequests,
    from_response,
)
from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

_GLANCE: Final = str(2**20)
"""Bytes."""

_LOOK_EVERY: Final = 1.0
"""Seconds after which a log is opened again that broke without news of its pod."""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """What a pod says of one of its containers at a moment."""

    number: int | None
    """How often it had been restarted before the run whose log can be read; None if it has not been started."""

    is_last: bool
    """Whether the pod has come to its end, or is gone: there will be no more than there is."""


class _End(Enum):
    COMPLETE = "the server had no more"
    BROKEN = "the connection broke"
    ABSENT = "there is nothing to read yet"
    GONE = "the pod is gone, or we may not read"


class PodLog:
    """The log of one container of one pod.

    Args:
        client: How it is read.
        namespace: Of the pod.
        pod: Its name.
        container: Its name.
        lines: What takes it.
        tail_lines: How many of the lines that are there already are of interest; None: all.
        since_seconds: How old they may be; None: of any age.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        pod: str,
        container: str,
        lines: LogLines,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
    ) -> None:
        self._client = client
        self._path = PODS.path(namespace, pod, "log")
        self._container = container
        self._beginning = {"tailLines": tail_lines, "sinceSeconds": since_seconds}
        self.lines = lines
        self.refusal: str | None = None
        """What the server said if we may not read it."""

        self.is_lost = False
        """Whether the pod was gone before anything could be read."""

        self.received = 0
        """Bytes, so far."""

    async def follow(self, run: Callable[[], ContainerRun], changed: Callable[[], Awaitable[object]]) -> None:
        """Read until the last run has ended.

        Args:
            run: What the pod says of the container now.
            changed: Waits until the pod says something else, and not for ever: a connection may break without that.
        """
        opened: int | None = None
        try:
            while True:
                before = run()
                if before.number is None and before.is_last:
                    return
                if before.number is not None:
                    if opened is None and self.lines.is_delivered:
                        await self.glance()
                    elif opened is not None and before.number > opened:
                        # Its end may have been missed, as the connection was broken or the restart not known yet.
                        await self._read(previous=True)
                        self.lines.close()
                    end = await self._read(follow=True)
                    if end is _End.GONE or (end is not _End.BROKEN and before.is_last):
                        return
                    if end is not _End.ABSENT:
                        opened = before.number
                if run() == before:
                    await changed()
        finally:
            self.lines.close()

    async def _read(self, *, follow: bool = False, previous: bool = False) -> _End:
        params = self._params(follow="true" if follow else None, previous="true" if previous else None)
        self.lines.reopen()
        try:
            async with self._client.stream(self._path, params) as chunks:
                async for chunk in chunks:
                    self.received += len(chunk)
                    self.lines.feed(chunk)
        except (ServerError, TooManyRequests):
            return _End.BROKEN
        except BadRequest:
            return _End.ABSENT
        except ApiError as error:
            if isinstance(error, Forbidden):
                self.refusal = str(error)
            elif self.received == 0:
                self.is_lost = True
            return _End.GONE
        except KubeError:
            return _End.BROKEN
        return _End.COMPLETE

    async def glance(self, *, previous: bool = False) -> None:
        """Read the beginning of what there is at once; nothing if it cannot be had."""
        params = self._params(limitBytes=_GLANCE, previous="true" if previous else None)
        with contextlib.suppress(KubeError):
            status, _, body = await self._client.raw("GET", self._path, params=params, accept="*/*")
            if status == HTTPStatus.OK:
                self.received += len(body)
                self.lines.feed(body)
            elif status == HTTPStatus.FORBIDDEN:
                self.refusal = str(from_response(status, {}, body, request=f"GET {self._path}"))

    def _params(self, **wanted: str | None) -> dict[str, str]:
        params = {"container": self._container, "timestamps": "true"}
        if (since := self.lines.since) is not None:
            params["sinceTime"] = since
        else:
            params |= {name: str(value) for name, value in self._beginning.items() if value is not None}
        return params | {name: value for name, value in wanted.items() if value is not None}


@dataclass(slots=True)
class FollowedPod:
    """The log of a container, read as its pod comes to have runs of it."""

    pod: JsonObject | None
    """As it was seen last; None once it is deleted."""

    container: str
    log: PodLog
    has_ended: bool = False
    """Whether there is no run to come, whatever the pod says."""

    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def observe(self, pod: JsonObject | None) -> None:
        """Take the state of the pod; None: it is deleted."""
        self.pod = pod
        self._changed.set()

    async def follow(self) -> None:
        """Read until the last run has ended."""
        await self.log.follow(self._run, self._wait)

    def _run(self) -> ContainerRun:
        if self.pod is None:
            return ContainerRun(None, is_last=True)
        is_last = self.has_ended or pod_phase(self.pod) in {"Succeeded", "Failed"}
        return ContainerRun(container_attempt(self.pod, self.container), is_last=is_last)

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY):
                await self._changed.wait()
        self._changed.clear()


async def last_lines(
    client: KubeClient,
    *,
    namespace: str,
    pod: str,
    container: str,
    previous: bool,
    since: str,
    until: str,
    refused: Callable[[str], object] | None = None,
) -> list[str]:
    """Return the last lines of a run of a container; none if they cannot be read any more.

    Args:
        client: How they are read.
        namespace: Of the pod.
        pod: Its name.
        container: Its name.
        previous: Whether another run has started since.
        since: When the run started, RFC 3339: the log may be that of yet another run by now.
        until: When it ended.
        refused: Is told why they may not be read, if that is so.
    """
    log = PodLog(client, namespace=namespace, pod=pod, container=container, lines=LogLines(), tail_lines=KEPT_LINES)
    await log.glance(previous=previous)
    log.lines.close()
    if log.refusal is not None and refused is not None:
        refused(log.refusal)
    return log.lines.between(since, until)
