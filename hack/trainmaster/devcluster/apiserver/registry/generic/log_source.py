"""Where the logs of containers come from: the kubelet implements this, the HTTP server reads from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from trainmaster.runtime.jsontree import JsonObject


class LogSource(Protocol):
    """Reads what a container has printed."""

    async def read(
        self,
        *,
        namespace: str,
        pod: JsonObject,
        container: str,
        follow: bool,
        previous: bool,
        tail_lines: int | None,
        since_seconds: int | None,
        since_time: datetime | None,
        timestamps: bool,
        limit_bytes: int | None,
    ) -> AsyncIterator[bytes]:
        """Open the log of a container and return its content piece by piece.

        A coroutine that returns an iterator, not a generator: whatever speaks against reading the log (the container
        has not started, there is no previous one) is raised as `StatusError` here, before the client has been promised
        a stream. With `follow` the iterator ends when the container does. The reader calls `aclose` if there is one.
        """
        ...
