"""Logs of containers, line by line.

- A stream that breaks is opened again and goes on where it stopped; it ends when the container has ended or is gone.
- Lines of any length are delivered, very long ones in pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, KubeError, ServerError
from trainmaster.controller.kube.rest.resources import PODS

_LINE_LIMIT = 64 * 1024
_PAUSE = 1.0


async def follow_log(
    client: KubeClient,
    *,
    namespace: str,
    pod: str,
    container: str,
    is_running: Callable[[], bool],
    deliver: Callable[[str], None],
) -> None:
    """Deliver the lines of one run of a container until it has ended."""
    path = PODS.path(namespace, pod, "log")
    lines = _Lines(deliver)
    received = 0
    while True:
        try:
            async with client.stream(path, {"container": container, "follow": "true"}) as chunks:
                # A log is opened from its beginning: what was delivered before the stream broke is skipped.
                skip = received
                async for chunk in chunks:
                    lines.feed(chunk[skip:])
                    received += len(chunk[skip:])
                    skip = max(0, skip - len(chunk))
        except ServerError:
            pass
        except ApiError:
            break  # the pod is gone, or its log is: there is nothing more to come
        except KubeError:
            pass
        if not is_running():
            break
        await asyncio.sleep(_PAUSE)
    lines.close()


async def last_lines(client: KubeClient, *, namespace: str, pod: str, container: str, count: int) -> list[str]:
    """Return the end of a log; nothing if it cannot be read any more."""
    found: list[str] = []
    lines = _Lines(found.append)
    try:
        params = {"container": container, "tailLines": str(count)}
        async with client.stream(PODS.path(namespace, pod, "log"), params) as chunks:
            await _drain(chunks, lines)
    except KubeError:
        pass  # it is an extra; the failure itself is told in any case
    lines.close()
    return found[-count:]


async def _drain(chunks: AsyncIterator[bytes], lines: _Lines) -> None:
    async for chunk in chunks:
        lines.feed(chunk)


class _Lines:
    """Cuts a stream of bytes into lines of text."""

    def __init__(self, deliver: Callable[[str], None]) -> None:
        self._deliver = deliver
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        for line in complete:
            self._report(line)
        if len(self._rest) > _LINE_LIMIT:
            self.close()

    def close(self) -> None:
        if self._rest:
            self._report(self._rest)
            self._rest = b""

    def _report(self, line: bytes) -> None:
        self._deliver(line.decode("utf-8", "replace").removesuffix("\r"))
