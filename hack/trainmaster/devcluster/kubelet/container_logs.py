"""What containers leave to be read: their logs, as `kubectl logs` shows them, and their termination messages.

A shim writes one file per attempt, each line as `<time> F <text>`, or `P` for a part that the next continues. What
came before is in a second file when the log has reached half of its limit; both are shown as one.
A log that is followed ends when the container does; everything that the container printed is delivered before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.kubelet.directories import PodFiles, rotated
from trainmaster.devcluster.kubelet.former_pods import FormerPods
from trainmaster.devcluster.kubelet.pod_status import container_identity
from trainmaster.runtime.jsontree import JsonObject

POLL_INTERVAL = 0.1
"""How often a followed log is looked at, in seconds."""

_BLOCK = 64 * 1024
_MESSAGE_LIMIT = 4096
_FALLBACK_LIMIT = 2048
_FALLBACK_LINES = 80
_STAMP = len("2026-01-01T00:00:00.000000000Z")
_TEXT = _STAMP + len(" F ")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """Which part of a log is wanted, and how it is shown."""

    tail_lines: int | None = None
    since: bytes = b""
    timestamps: bool = False
    limit_bytes: int | None = None


class PodLogs:
    """The logs of all pods of this node: the kubelet's part as a `LogSource`."""

    def __init__(self, pods: FormerPods, *, is_active: Callable[[str], bool], clock: Callable[[], datetime]) -> None:
        self._pods = pods
        self._is_active = is_active
        self._clock = clock

    def find_deleted(self, namespace: str, name: str, uid: str) -> JsonObject | None:
        """Find a deleted pod whose logs are kept."""
        return self._pods.find(namespace, name, uid)

    async def read(
        self,
        *,
        pod: JsonObject,
        container: str,
        follow: bool,
        previous: bool,
        run: int | None,
        tail_lines: int | None,
        since_seconds: int | None,
        since_time: datetime | None,
        timestamps: bool,
        limit_bytes: int | None,
    ) -> AsyncIterator[bytes]:
        """Open a container's log; raises StatusError when there is nothing to open."""
        uid = pod["metadata"]["uid"]
        attempt, path = _attempt(pod, container, self._pods.files(uid), previous=previous, run=run)
        if since_seconds is not None:
            since_time = self._clock() - timedelta(seconds=since_seconds)
        view = LogView(
            tail_lines=tail_lines,
            since=_stamp(since_time) if since_time is not None else b"",
            timestamps=timestamps,
            limit_bytes=limit_bytes,
        )
        identity = container_identity(uid, container, attempt)
        return _stream(path, view, running=(lambda: self._is_active(identity)) if follow else None)


async def _stream(path: Path, view: LogView, *, running: Callable[[], bool] | None) -> AsyncIterator[bytes]:
    left = view.limit_bytes
    opened = _open(path, view.tail_lines)
    lines = _Lines(view)
    try:
        while True:
            # Before reading: what a container printed is in its file before it counts as ended.
            more = running is not None and running()
            for block in _blocks_of(opened, path, lines):
                if left is not None and len(block) >= left:
                    yield block[:left]
                    return
                left = left - len(block) if left is not None else None
                yield block
                await asyncio.sleep(0)  # a long log must not keep the loop from its other work
            if not more:
                return
            await asyncio.sleep(POLL_INTERVAL)
    finally:
        for log in opened:
            log.close()


def _open(path: Path, tail_lines: int | None) -> list[IO[bytes]]:
    """Open the files of a log, the older one first, each at the place where reading starts."""
    logs: list[IO[bytes]] = [path.open("rb")]
    with contextlib.suppress(FileNotFoundError):
        logs.insert(0, rotated(path).open("rb"))
        if os.path.sameopenfile(logs[0].fileno(), logs[1].fileno()):  # set aside between the two
            logs.pop(0).close()
            logs.append(path.open("rb"))
    if tail_lines is not None:
        for log in reversed(logs):
            log.seek(_tail_offset(log, tail_lines))
            begin = log.tell()
            tail_lines = max(0, tail_lines - sum(1 for record in log if not _is_part(record)))
            log.seek(begin)
    return logs


def _blocks_of(logs: list[IO[bytes]], path: Path, lines: _Lines) -> Iterator[bytes]:
    """Read all files to their present ends. The last one stays open; it may have been set aside meanwhile."""
    while True:
        yield from _blocks(logs[0], lines)
        if len(logs) == 1:
            with contextlib.suppress(FileNotFoundError):  # between being set aside and being made anew
                if not os.path.samestat(os.fstat(logs[0].fileno()), path.stat()):
                    logs.append(path.open("rb"))
        if len(logs) == 1:
            return
        yield from _blocks(logs[0], lines)  # what was written between the last look and its being set aside
        logs.pop(0).close()


def _blocks(log: IO[bytes], lines: _Lines) -> Iterator[bytes]:
    """Read to the present end of the file, whole records at a time."""
    while records := log.readlines(_BLOCK):
        if not records[-1].endswith(b"\n"):  # still being written; the next look starts with it
            log.seek(-len(records.pop()), 1)
        if shown := b"".join(lines.shown(record) for record in records):
            yield shown
        if not records:
            return


class _Lines:
    """Makes lines of the records of a log, as they are wanted."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._begins = True
        self._time = b""
        """Of the line, until it is shown."""

    def shown(self, record: bytes) -> bytes:
        """Return what is shown of a record.

        A line that comes in parts has the time of the first one, also if that is too old to be shown: whoever reads a
        log again knows the line by it.
        """
        is_part = _is_part(record)
        if self._begins and self._view.timestamps:
            self._time = record[: _STAMP + 1]
        self._begins = not is_part
        if record[:_STAMP] < self._view.since:
            return b""
        time, self._time = self._time, b""
        return time + (record[_TEXT:-1] if is_part else record[_TEXT:])


def _is_part(record: bytes) -> bool:
    return record[_STAMP + 1 : _STAMP + 2] == b"P"


def _tail_offset(log: IO[bytes], count: int) -> int:
    """Find where the last `count` lines start, reading backwards; what has no end yet is a line too."""
    position = end = log.seek(0, 2)
    if count <= 0:
        return end
    found, beginning = 0, b""
    while position > 0:
        start = max(0, position - _BLOCK)
        log.seek(start)
        data = log.read(position - start) + beginning
        records = [record + b"\n" for record in data.split(b"\n")]
        records[-1] = records[-1][:-1]  # nothing, or what is still being written
        after = start + len(data)
        beginning = records.pop(0) if start > 0 else b""  # more of it may come before
        for record in reversed(records):
            if record and (after == end or not _is_part(record)):
                found += 1
                if found > count:
                    return after
            after -= len(record)
        position = start
    return 0


def tail(path: Path, *, lines: int) -> bytes:
    """Read the last lines of a log, without their times."""
    logs = _open(path, lines)
    shown = _Lines(LogView())
    try:
        return b"".join(block for log in logs for block in _blocks(log, shown))
    finally:
        for log in logs:
            log.close()


def termination_message(container: JsonObject, *, files: PodFiles, attempt: int, failed: bool) -> str:
    """Read the termination message; the log stands in for it if the policy says so and the container failed."""
    name = container["name"]
    try:
        with files.termination_message(name).open("rb") as message:
            text = message.read(_MESSAGE_LIMIT)
        if not text and failed and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = tail(files.log(name, attempt), lines=_FALLBACK_LINES)[-_FALLBACK_LIMIT:]
    except OSError:  # the program may have replaced its file by anything
        return ""
    return text.decode(errors="replace")


def _stamp(moment: datetime) -> bytes:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def _attempt(pod: JsonObject, container: str, files: PodFiles, *, previous: bool, run: int | None) -> tuple[int, Path]:
    """Choose the log file: of a run, of the newest one, or of the one that the status names as the last state."""
    name = pod["metadata"]["name"]
    status = _status(pod, container)
    waiting = (status.get("state") or {}).get("waiting")
    logs = files.logs(container)
    if run is not None:
        if run not in dict(logs):
            raise errors.bad_request(f'run {run} of container "{container}" in pod "{name}" has no log any more')
        return run, dict(logs)[run]
    if previous:
        last = (status.get("lastState") or {}).get("terminated") or {}
        number = str(last.get("containerID") or "").rpartition("/")[2]
        found = next((log for log in logs if str(log[0]) == number), None)
        if found is None:
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return found
    if not logs:
        reason = (waiting or {}).get("reason") or "ContainerCreating"
        raise errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return logs[-1]


def _status(pod: JsonObject, container: str) -> JsonObject:
    status = pod.get("status") or {}
    for entry in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        if entry.get("name") == container:
            found: JsonObject = entry
            return found
    return {}
