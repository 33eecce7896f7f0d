"""The journal: an append-only file of JSON lines from which a store is rebuilt.

- A write is in the file before the store acknowledges it, so a killed process loses nothing that it acknowledged.
  (The file is not synced to the disk on every write: a power cut may lose the last moments, a SIGKILL may not.)
- A torn last line, the trace of a kill in the middle of a write, is cut off: nobody was told that it succeeded.
- A broken line anywhere else is damage that the journal does not repair: opening raises `JournalError`.
- A failed append leaves the file as it was before.
- Opening compacts: the file is replaced atomically by one line for each live object. Revisions are kept.
- One process at a time: a second one that opens the same file gets `JournalError`.

Lines: once, at the top, `{"format":1,"revision":N}`; then for each write
`{"revision":N,"key":[group,resource,namespace,name],"object":{...}}`, and the same without `object` for a deletion.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage.records import ObjectKey, Record

_FORMAT = 1


class JournalError(Exception):
    """The journal cannot be used; the message names the file, the reason and the way out."""


class Journal:
    """An open journal; `load` must be called once, before the first `append`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _lock(path)
        self._file = -1

    def load(self) -> tuple[dict[ObjectKey, Record], int]:
        """Read and compact the file; return the live records in the order of their revisions, and the last revision."""
        records, revision = self._read()
        ordered = dict(sorted(records.items(), key=lambda item: item[1].revision))
        self._compact(ordered, revision)
        return ordered, revision

    def append(self, key: ObjectKey, revision: int, record: Record | None) -> None:
        """Write one line through to the operating system; `record` is None for a deletion."""
        line = _line(key, revision, record)
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            _write(self._file, line)
        except OSError:
            with suppress(OSError):  # the error that counts is the one of the write
                os.ftruncate(self._file, end)
            raise

    def close(self) -> None:
        """Close the file and let another process use it; closing twice is harmless."""
        for name in ("_file", "_lock"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                os.close(descriptor)

    def _read(self) -> tuple[dict[ObjectKey, Record], int]:
        records: dict[ObjectKey, Record] = {}
        revision = 0
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return records, revision
        lines = content.split(b"\n")
        # Every complete line ends in a newline: what follows the last one was never acknowledged.
        for number, line in enumerate(lines[:-1], start=1):
            try:
                entry = orjson.loads(line)
                revision = max(revision, entry["revision"])
                if number == 1:
                    _check_format(entry)
                else:
                    _replay(records, entry)
            except (ValueError, KeyError, TypeError) as error:
                raise JournalError(
                    f"{self.path}: line {number} is not a journal entry ({error}); "
                    "restore the file from a backup, or delete it to start with an empty cluster"
                ) from error
        return records, revision

    def _compact(self, records: dict[ObjectKey, Record], revision: int) -> None:
        fresh = self.path.with_name(self.path.name + ".new")
        descriptor = os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, orjson.dumps({"format": _FORMAT, "revision": revision}) + b"\n")
            for chunk in _chunks(_line(key, record.revision, record) for key, record in records.items()):
                _write(descriptor, chunk)
            os.fsync(descriptor)
            fresh.replace(self.path)
        except BaseException:
            os.close(descriptor)
            raise
        self._file = descriptor


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


def _check_format(header: dict[str, Any]) -> None:
    if header["format"] != _FORMAT:
        raise ValueError(f"format {header['format']}, this version reads format {_FORMAT}")


def _replay(records: dict[ObjectKey, Record], entry: dict[str, Any]) -> None:
    group, resource, namespace, name = entry["key"]
    key = ObjectKey(GroupResource(group, resource), namespace, name)
    if "object" in entry:
        records[key] = Record(entry["object"], entry["revision"])
    else:
        records.pop(key, None)


def _line(key: ObjectKey, revision: int, record: Record | None) -> bytes:
    head = orjson.dumps({"revision": revision, "key": [*key.resource, key.namespace, key.name]})
    if record is None:
        return head + b"\n"
    # The record's own JSON is reused: encoding it a second time would double the price of a write.
    return b'%s,"object":%s}\n' % (head[:-1], record.json)


def _chunks(lines: Iterable[bytes], size: int = 1 << 20) -> Iterable[bytes]:
    buffer = bytearray()
    for line in lines:
        buffer += line
        if len(buffer) >= size:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def _write(descriptor: int, data: bytes) -> None:
    """Write everything; the operating system may take it in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
