"""Compaction of a journal: a new file with one line for each live object, written beside the old one.

- The file is whole and on the disk before it takes the place of the old one; who takes it decides when.
- A `Compaction` writes in a thread of its own, so that a large state holds up nobody.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from trainmaster.devcluster.apiserver.storage.entries import ObjectKey, Record, entry_line, header_line


class Compaction:
    """A thread that writes the new file of a journal."""

    def __init__(self, draft: Path, live: Mapping[ObjectKey, Record], revision: int, *, begin: int) -> None:
        self._draft = draft
        self._begin = begin
        self._file = -1
        self._error: OSError | None = None
        self._thread = Thread(target=self._run, args=(live, revision), name="journal-compaction")
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the new file is written, or cannot be."""
        return not self._thread.is_alive()

    def finish(self, old: int, size: int) -> int:
        """Wait for the new file, append what the old one got meanwhile, and return its descriptor; raises OSError."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        position = self._begin
        while position < size:
            part = os.pread(old, min(size - position, 1 << 20), position)
            write_all(self._file, part)
            position += len(part)
        return self._file

    def discard(self) -> None:
        """Drop the new file."""
        self._thread.join()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)

    def _run(self, live: Mapping[ObjectKey, Record], revision: int) -> None:
        try:
            self._file = write_snapshot(self._draft, live, revision)
        except OSError as error:
            self._error = error


def draft_of(path: Path) -> Path:
    """Return where the new file of a journal is written."""
    return path.with_name(path.name + ".new")


def write_snapshot(draft: Path, records: Mapping[ObjectKey, Record], revision: int) -> int:
    """Write a new file, all the way to the disk; returns its descriptor."""
    descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, header_line(revision=revision, objects=len(records)))
        for chunk in _chunks(entry_line(key, record.revision, record) for key, record in records.items()):
            write_all(descriptor, chunk)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            draft.unlink()
        raise
    return descriptor


def _chunks(lines: Iterable[bytes], size: int = 1 << 20) -> Iterable[bytes]:
    buffer = bytearray()
    for line in lines:
        buffer += line
        if len(buffer) >= size:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; the operating system may take it in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
