"""The journal: an append-only file of lines (see `entries`) from which a store is rebuilt.

- A write is in the file before the store acknowledges it, so a killed process loses nothing that it acknowledged.
  (The file is not synced to the disk on every write: a power cut may lose the last moments, a SIGKILL may not.)
- A torn last line, the trace of a kill in the middle of a write, is kept in a file of its own (`torn`): nobody was told
  that it succeeded.
- Anything else that is wrong, an empty file too, is damage: opening raises `JournalError`.
- A failed append leaves the file as it was before; `problem` is what keeps the file from being written.
- Compaction replaces the file atomically by one line for each live object; revisions are kept. It happens at opening,
  and beside the writes when the file has grown: it never takes more than twice its live lines and 8 MiB, unless there
  is no room for the new file.
- One process at a time: a second one that opens the same file gets `JournalError`.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from trainmaster.devcluster.apiserver.storage.compaction import Compaction, draft_of, write_all, write_snapshot
from trainmaster.devcluster.apiserver.storage.entries import (
    Contents,
    ObjectKey,
    Record,
    Unreadable,
    entry_line,
    read_contents,
)

SLACK: Final = 8 * 2**20
"""Bytes that a journal may take beyond twice its live lines."""

_TRIAL = b" " * 4096

_log = logging.getLogger(__name__)


class JournalError(Exception):
    """The journal cannot be used; the message names the file and the reason."""


class Journal:
    """An open journal; `load` must be called once, before the first `append`. Used by one thread."""

    def __init__(self, path: Path, *, slack: int = SLACK) -> None:
        self.path = path
        self.torn: Path | None = None
        """Where the torn end of the file is that was found at opening."""

        self.problem: OSError | None = None
        """Why the last write failed; None if it did not."""

        self._slack = slack
        self._lock = _lock(path)
        self._file = -1
        self._size = 0
        self._cut = False
        """Whether a failed write may have left something after the first `_size` bytes."""

        self._live: dict[ObjectKey, tuple[Record, int]] = {}
        """The live records, in the order of their revisions, and the length of their lines."""

        self._live_size = 0
        self._revision = 0
        self._compaction: Compaction | None = None
        self._next_compaction = 0

    def load(self) -> tuple[dict[ObjectKey, Record], int]:
        """Read and compact the file; return the live records in the order of their revisions, and the last revision."""
        found = _read(self.path)
        if found.torn:
            self.torn = self.path.with_name(f"{self.path.name}.torn-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
            self.torn.touch(mode=0o600)
            self.torn.write_bytes(found.torn)
        ordered = dict(sorted(found.records.items(), key=lambda item: item[1].revision))
        for key, record in ordered.items():
            self._note(key, record, len(entry_line(key, record.revision, record)))
        self._revision = found.revision
        self._file = write_snapshot(draft_of(self.path), ordered, found.revision)
        draft_of(self.path).replace(self.path)
        self._size = os.fstat(self._file).st_size
        return ordered, found.revision

    def append(self, key: ObjectKey, revision: int, record: Record | None) -> None:
        """Write one line through to the operating system; `record` is None for a deletion. Raises OSError."""
        line = entry_line(key, revision, record)
        self._write(line)
        self._size += len(line)
        self._revision = revision
        self._note(key, record, len(line))
        self._keep_small()

    def check(self) -> OSError | None:
        """Find out whether the file can be written again, if the last write failed; returns the problem."""
        if self.problem is not None:
            with suppress(OSError):
                self._write(_TRIAL)
                self._cut = True
                self._truncate()
        return self.problem

    def close(self) -> None:
        """Close the file and let another process use it; closing twice is harmless."""
        if self._compaction is not None:
            self._compaction.discard()
            self._compaction = None
        for name in ("_file", "_lock"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                os.close(descriptor)

    def _write(self, data: bytes) -> None:
        try:
            self._truncate()
            self._cut = True
            write_all(self._file, data)
            self._cut = False
        except OSError as error:
            if self.problem is None:
                reason = error.strerror or error
                _log.error("%s cannot be written: %s; the cluster takes no changes until it can", self.path, reason)
            self.problem = error
            with suppress(OSError):  # the error that counts is the one of the write; the next one tries again
                self._truncate()
            raise
        if self.problem is not None:
            reason = self.problem.strerror or self.problem
            _log.warning("%s can be written again; until now: %s", self.path, reason)
            self.problem = None

    def _truncate(self) -> None:
        """Cut off what a failed write left: the next line would be joined to it."""
        if self._cut:
            os.ftruncate(self._file, self._size)
            self._cut = False

    def _note(self, key: ObjectKey, record: Record | None, length: int) -> None:
        _, before = self._live.pop(key, (None, 0))
        self._live_size -= before
        if record is not None:
            self._live[key] = (record, length)
            self._live_size += length

    # Compaction

    def _keep_small(self) -> None:
        """Compact beside the writes when the file has grown; wait for that only if the writes are faster."""
        # Half of what may be wasted is left for what is written meanwhile.
        if self._compaction is None and self._size > self._live_size * 3 // 2 + self._slack // 2:
            self._begin_compaction()
        if self._compaction is not None and (self._compaction.done or self._is_too_large()):
            self._end_compaction()
        if self._is_too_large():  # what was deleted meanwhile is in the new file as well
            self._begin_compaction()
            self._end_compaction()

    def _is_too_large(self) -> bool:
        return self._size > 2 * self._live_size + self._slack

    def _begin_compaction(self) -> None:
        if self._compaction is None and self._size >= self._next_compaction:
            live = {key: record for key, (record, _) in self._live.items()}
            self._compaction = Compaction(draft_of(self.path), live, self._revision, begin=self._size)

    def _end_compaction(self) -> None:
        """Replace the file by the new one and what was written meanwhile, or go on with the old one."""
        if self._compaction is None:
            return
        compaction, self._compaction = self._compaction, None
        try:
            fresh = compaction.finish(self._file, self._size)
            draft_of(self.path).replace(self.path)
        except OSError as error:
            compaction.discard()
            # The old file is as good as before. Not at once again: the reason is a full disk, as a rule.
            self._next_compaction = self._size + self._slack // 2
            _log.warning("%s cannot be compacted: %s; trying again later", self.path, error)
            return
        os.close(self._file)
        self._file = fresh
        self._size = os.fstat(fresh).st_size
        self._next_compaction = 0


def _read(path: Path) -> Contents:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Contents()
    try:
        return read_contents(content)
    except Unreadable as error:
        raise JournalError(f"{path} {error}") from error


def _lock(path: Path) -> int:
    """Take the lock beside the journal; the journal itself cannot carry it because compaction replaces the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock")
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise JournalError(f"{path} is in use by another process; stop that cluster or choose another state") from error
    return descriptor
