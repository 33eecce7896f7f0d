"""Reading logs to their present ends, as bytes: one as it is, several merged by the times of their lines, one line of
each in memory.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.jobs.log_sources import LogSource
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS

_LINE_LIMIT: Final = 1 << 20
"""Longer ones are delivered in pieces."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a log is wanted, and how it is shown."""

    tail: int | None = None
    since_seconds: int | None = None
    timestamps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of it is wanted."""
        return self.tail is None and self.since_seconds is None

    def params(self, source: LogSource) -> dict[str, str]:
        """Return the parameters of the request."""
        wanted = {
            "container": source.container,
            "previous": "true" if source.previous else None,
            "tailLines": self.tail,
            "sinceSeconds": self.since_seconds,
            "timestamps": "true" if self.timestamps else None,
        }
        return {name: str(value) for name, value in wanted.items() if value is not None}


async def read(client: KubeClient, namespace: str, source: LogSource, options: LogOptions) -> AsyncIterator[bytes]:
    """Read a log to its present end.

    Raises:
        KubeError: It cannot be read.
    """
    async with client.stream(PODS.path(namespace, source.pod, "log"), options.params(source)) as chunks:
        async for chunk in chunks:
            yield chunk


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut a stream into lines, without their ends; of a progress bar only its last state."""
    rest = b""
    async for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield _visible(line)
        if len(rest) > _LINE_LIMIT:
            yield _visible(rest)
            rest = b""
    if rest:
        yield _visible(rest)


def _visible(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


async def merged(streams: Mapping[str, AsyncIterator[bytes]]) -> AsyncIterator[tuple[str, bytes]]:
    """Merge logs with timestamps, by name, in the order of these; yields the name and the line, its time included."""
    cut = {name: lines(chunks) for name, chunks in streams.items()}
    firsts = await asyncio.gather(*(anext(stream, None) for stream in cut.values()))
    heap = [
        (line.partition(b" ")[0], number, line, name)
        for number, (name, line) in enumerate(zip(cut, firsts, strict=True))
        if line is not None
    ]
    heapq.heapify(heap)
    while heap:
        stamp, number, line, name = heap[0]
        yield name, line
        following = await anext(cut[name], None)
        if following is None:
            heapq.heappop(heap)
        else:
            # A line that is not in order, or the rest of a long one, belongs behind the one before it.
            heapq.heapreplace(heap, (max(stamp, following.partition(b" ")[0]), number, following, name))
