"""The history in a file of SQLite, which the standard library brings.

Guarantees:
- A new file can be read by nobody else (0600): it tells of all namespaces.
- A process that is killed at any moment leaves a file that the next one reads (WAL; each write is all or nothing).
- A file that is damaged is left as it is, for whoever wants to save something of it; nothing is recorded until it has
  been moved away. Who has had it open begins a new one then, or finds the one that another has begun.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from trainmaster.controller.history.store import Dialect, HistoryStore

_BUSY_TIMEOUT: Final = 5.0
"""Seconds to wait for another process that writes; a transaction takes milliseconds."""

_BUSY_PAUSE: Final = 0.01

_LARGEST_WAL: Final = 4 * 1024 * 1024

_DAMAGED: Final = ("malformed", "not a database")


def sqlite_store(path: Path, *, read_only: bool = False) -> HistoryStore:
    """Make the store of a file, which is made when it is first written.

    Args:
        path: The file; its directory has to exist.
        read_only: Whether to write nothing, so that a file that is missing is an error.
    """

    opened: _Identity | None = None

    def connect() -> sqlite3.Connection:
        nonlocal opened
        mode = "ro" if read_only else "rwc"
        if not read_only:
            with suppress(OSError):  # SQLite says better what is wrong
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # what SQLite puts beside it is like it
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_TIMEOUT,
            isolation_level=None,  # transactions are ours
            check_same_thread=False,  # one thread after the other, as executors have them
        )
        try:
            if not read_only:
                _use_wal(connection)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_WAL}")
        except BaseException:
            connection.close()
            raise
        opened = _identity(path)
        return connection

    return HistoryStore(
        Dialect(
            connect=connect,
            errors=(sqlite3.Error, OSError),
            explain=lambda error: (
                f"the history in {path} cannot be {'read' if read_only else 'used'}: {error}; "
                f"{_remedy(error, path, read_only=read_only)}"
            ),
            is_current=lambda: _identity(path) == opened,
            begin=("BEGIN IMMEDIATE",),
            exists="SELECT 1 FROM sqlite_master WHERE name = 'trainmaster_history_schema'",
        )
    )


_Identity = tuple[int, int]


def _identity(path: Path) -> _Identity | None:
    """Return what tells a file from another one of its name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _use_wal(connection: sqlite3.Connection) -> None:
    """Have what is written go to a log beside the file first.

    Of two that open a new file at once, as the writer and the reader of a manager do, SQLite refuses one at once,
    whatever its timeout.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


def _remedy(error: Exception, path: Path, *, read_only: bool) -> str:
    text = str(error)
    if any(word in text for word in _DAMAGED):
        return "move the file away, with its -wal and -shm, and a new one is begun"
    if read_only:
        return "name the file of history.file, on the machine on which it is"
    if "locked" in text:
        return "another process holds it for longer than a write takes; it goes on by itself when that lets go"
    if "full" in text or "disk I/O" in text:
        return "make room there, or lower history.maxRecords; it goes on by itself"
    return f"make {path.parent} a directory that the manager may write to, on a volume that stays"
