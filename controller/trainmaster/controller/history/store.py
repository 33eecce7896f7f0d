"""The store of the history: records in a table of a relational database, SQLite's or PostgreSQL's.

Guarantees:
- One row for each UID. What comes again is merged into what is there, in one transaction with the reading of it, so
  that two writers, one of which thinks that it still leads, lose nothing and count nothing twice.
- A transaction is all or nothing, whatever ends the process.
- Where there is too much, the namespaces that have most lose of it: no user can push the jobs of others out.
- A schema of a later version is left alone: whoever goes back to an earlier one is told so.
- Everything that goes wrong is a `HistoryUnavailable` that says where and what to do; the next call begins anew.

A store is used by one thread at a time, and blocks it. The reader reads in a thread of its own, for those who wait on
the event loop, and by a connection of its own, so that nobody waits for a writer, nor a writer for anybody who reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, Protocol, TypeVar

import orjson

from trainmaster.controller.history.query import Position, Query
from trainmaster.controller.history.record import JobRecord, bounded, gone, merged, read_record, stored
from trainmaster.controller.kube.clock import parse_time, time_text

MIGRATIONS: Final[Sequence[Sequence[str]]] = (
    (
        """CREATE TABLE trainmaster_history (
            uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
            runtime TEXT NOT NULL, result TEXT NOT NULL, cause TEXT NOT NULL,
            ended BIGINT, updated BIGINT NOT NULL, record TEXT NOT NULL)""",
        "CREATE INDEX trainmaster_history_ended ON trainmaster_history (ended, uid)",
        "CREATE INDEX trainmaster_history_namespace ON trainmaster_history (namespace, ended)",
    ),
)
"""What makes of a schema the next one; the number of them is the version. None of them is ever changed."""

_IN_A_STATEMENT: Final = 200
"""Values; SQLite takes some thousands."""

T = TypeVar("T")

MAX_WAITING: Final = 64
"""Requests that wait for the one that reads; more are refused."""


class HistoryUnavailable(Exception):
    """The store cannot be used; the text says where it is, what is wrong, and what to do."""


class Connection(Protocol):
    """What we need of a connection of sqlite3 or psycopg, which commits each statement that is in no transaction."""

    def execute(self, statement: Any, parameters: Any = (), /) -> Any:
        """Execute a statement; returns a cursor."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the databases."""

    connect: Callable[[], Connection]
    errors: tuple[type[Exception], ...]
    """What goes wrong when connecting or later."""

    explain: Callable[[Exception], str]
    """Says where the store is, what is wrong and what to do."""

    begin: Sequence[str]
    """Begins a transaction that excludes other writers."""

    is_current: Callable[[], bool] = lambda: True
    """Tells whether the connection that was made last still leads to where the store is."""

    placeholder: str = "?"
    exists: str = ""
    """Finds the table of the version, if there is one."""


class HistoryStore:
    """Records of jobs."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._connection: Connection | None = None

    def write(self, records: Iterable[JobRecord], *, now: datetime) -> int:
        """Write records, each merged with what is there of its job; returns how many have changed.

        Raises:
            HistoryUnavailable: None of them is written.
        """
        with self._transaction() as execute:
            return sum(self._merge(execute, record, now) for record in records)

    def end_missing(self, *, live: Collection[str], kind: str, namespaces: Collection[str], now: datetime) -> int:
        """End the jobs that were deleted while nobody recorded them; returns how many there were.

        Args:
            live: The UIDs of all jobs of the kind that were there.
            namespaces: The namespaces of which these are all; none: all.
            now: When that was so; what was written later is left alone.

        Raises:
            HistoryUnavailable: Nothing is written.
        """
        with self._transaction() as execute:
            rows = execute(
                "SELECT uid, namespace, record FROM trainmaster_history "
                "WHERE ended IS NULL AND kind = ? AND updated < ?",
                (kind, int(now.timestamp())),
            ).fetchall()
            missing = [
                last
                for uid, namespace, text in rows
                if uid not in live and (not namespaces or namespace in namespaces) and (last := _record(text))
            ]
            for last in missing:
                text = "the job was deleted while nobody recorded it, at the latest now,"
                self._put(execute, bounded(gone(last, at=time_text(now), text=text)), now)
        return len(missing)

    def prune(self, *, most: int, before: datetime) -> int:
        """Remove what is too old, or too much; returns how many records.

        Args:
            most: How many ended jobs may stay: of each namespace as many as of any other, those that ended last.
            before: Jobs that ended before are removed, and those that are not heard of since and did not end.

        Raises:
            HistoryUnavailable: Nothing is removed.
        """
        with self._transaction() as execute:
            moment = int(before.timestamp())
            removed = int(
                execute(
                    "DELETE FROM trainmaster_history WHERE ended < ? OR (ended IS NULL AND updated < ?)",
                    (moment, moment),
                ).rowcount
            )
            counts: dict[str, int] = dict(
                execute(
                    "SELECT namespace, COUNT(*) FROM trainmaster_history WHERE ended IS NOT NULL GROUP BY namespace"
                ).fetchall()
            )
            for namespace, kept in _shares(counts, most).items():
                removed += int(
                    execute(
                        "DELETE FROM trainmaster_history WHERE uid IN (SELECT uid FROM trainmaster_history "
                        "WHERE ended IS NOT NULL AND namespace = ? "
                        "ORDER BY ended DESC, uid DESC LIMIT 1000000 OFFSET ?)",
                        (namespace, kept),
                    ).rowcount
                )
        return removed

    def find(self, query: Query) -> tuple[list[JobRecord], Position | None]:
        """Return jobs that have ended, those that ended last first, and where the next ones are if there are more.

        Raises:
            HistoryUnavailable: They cannot be read.
        """
        if query.namespaces is not None and not query.namespaces:
            return [], None
        conditions, values = ["ended IS NOT NULL"], list[Any]()
        if query.namespaces is not None:
            conditions.append(f"namespace IN ({', '.join('?' * len(query.namespaces))})")
            values += query.namespaces
        for column in ("name", "runtime", "result", "cause"):
            if wanted := getattr(query, column):
                conditions.append(f"{column} = ?")
                values.append(wanted)
        if query.since is not None:
            conditions.append("ended >= ?")
            values.append(int(query.since.timestamp()))
        if query.after is not None:
            conditions.append("(ended < ? OR (ended = ? AND uid < ?))")
            values += (query.after.ended, query.after.ended, query.after.uid)
        statement = (
            f"SELECT ended, uid, record FROM trainmaster_history WHERE {' AND '.join(conditions)} "  # noqa: S608 - names of ours
            "ORDER BY ended DESC, uid DESC LIMIT ?"
        )
        with self._reading() as execute:
            rows = execute(statement, [*values, query.limit + 1]).fetchall()
        shown = rows[: query.limit]
        following = Position(shown[-1][0], shown[-1][1]) if len(rows) > query.limit else None
        return [record for _, _, text in shown if (record := _record(text))], following

    def get(self, uid: str) -> JobRecord | None:
        """Return what is recorded of a job, whether it has ended or not.

        Raises:
            HistoryUnavailable: It cannot be read.
        """
        with self._reading() as execute:
            return self._get(execute, uid)

    def namespaces(self) -> list[str]:
        """Return the namespaces of the jobs that have ended.

        Raises:
            HistoryUnavailable: They cannot be read.
        """
        with self._reading() as execute:
            rows = execute("SELECT DISTINCT namespace FROM trainmaster_history WHERE ended IS NOT NULL").fetchall()
        return sorted(namespace for (namespace,) in rows)

    def close(self) -> None:
        """Close the connection, if there is one; the next call makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self._dialect.errors):
                connection.close()

    # Details

    def _merge(self, execute: _Execute, record: JobRecord, now: datetime) -> bool:
        known = self._get(execute, record.uid)
        whole = record if known is None else merged(known, record)
        if known is not None and whole.to_json() == known.to_json():
            return False
        self._put(execute, whole, now)
        return True

    @staticmethod
    def _get(execute: _Execute, uid: str) -> JobRecord | None:
        row = execute("SELECT record FROM trainmaster_history WHERE uid = ?", (uid,)).fetchone()
        return None if row is None else _record(row[0])

    @staticmethod
    def _put(execute: _Execute, record: JobRecord, now: datetime) -> None:
        moment = int(now.timestamp())
        execute(
            "INSERT INTO trainmaster_history "
            "(uid, namespace, name, kind, runtime, result, cause, ended, updated, record) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (uid) DO UPDATE SET runtime = excluded.runtime, result = excluded.result, "
            "cause = excluded.cause, ended = excluded.ended, updated = excluded.updated, record = excluded.record",
            (
                record.uid,
                record.namespace,
                record.name,
                record.kind,
                record.runtime,
                record.result,
                record.cause,
                _seconds(record.ended, moment) if record.has_ended else None,
                moment,
                stored(record),
            ),
        )

    @contextmanager
    def _reading(self) -> Iterator[_Execute]:
        with self._errors():
            yield self._executor()

    @contextmanager
    def _transaction(self) -> Iterator[_Execute]:
        with self._errors():
            execute = self._executor()
            self._begin(execute)
            yield execute
            execute("COMMIT")

    def _begin(self, execute: _Execute) -> None:
        for statement in self._dialect.begin:
            execute(statement)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._dialect.errors as error:
            # Whatever is half done is undone with the connection.
            self.close()
            raise HistoryUnavailable(self._dialect.explain(error)) from error
        except BaseException:
            self.close()
            raise

    def _executor(self) -> _Execute:
        placeholder = self._dialect.placeholder
        if self._connection is not None and not self._dialect.is_current():
            self.close()
        if self._connection is None:
            self._connection = self._dialect.connect()
            self._migrate(_executor_of(self._connection, placeholder))
        return _executor_of(self._connection, placeholder)

    def _migrate(self, execute: _Execute) -> None:
        """Make the schema what this version needs; whoever comes second finds it done."""
        if self._version(execute) == len(MIGRATIONS):
            return
        self._begin(execute)
        version = self._version(execute)
        if version > len(MIGRATIONS):
            raise HistoryUnavailable(
                f"the history was written by a later version of Trainmaster (schema {version}, this one knows "
                f"{len(MIGRATIONS)}); go back to that version, or give history another place"
            )
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                execute(statement)
        if version == 0:
            execute("CREATE TABLE trainmaster_history_schema (version BIGINT NOT NULL)")
            execute("INSERT INTO trainmaster_history_schema (version) VALUES (?)", (len(MIGRATIONS),))
        else:
            execute("UPDATE trainmaster_history_schema SET version = ?", (len(MIGRATIONS),))
        execute("COMMIT")

    def _version(self, execute: _Execute) -> int:
        if execute(self._dialect.exists).fetchone() is None:
            return 0
        row = execute("SELECT version FROM trainmaster_history_schema").fetchone()
        return 0 if row is None else int(row[0])


def _shares(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many may stay of the namespaces that have too many: those with fewer leave the rest to the others."""
    shares: dict[str, int] = {}
    by_count = sorted(counts.items(), key=itemgetter(1))
    for others, (namespace, count) in zip(range(len(counts), 0, -1), by_count, strict=True):
        kept = min(count, most // others)
        most -= kept
        if kept < count:
            shares[namespace] = kept
    return shares


_Execute = Callable[..., Any]


def _executor_of(connection: Connection, placeholder: str) -> _Execute:
    def execute(statement: str, parameters: Sequence[Any] = ()) -> Any:
        return connection.execute(statement.replace("?", placeholder), parameters)

    return execute


def _record(text: str) -> JobRecord | None:
    """Read a record; None if somebody else has written it: it counts as missing."""
    try:
        return read_record(orjson.loads(text))
    except ValueError:
        return None


def _seconds(text: str, default: int) -> int:
    """Return a time as seconds since 1970, for sorting; what cannot be read ended now, as far as we know."""
    try:
        return max(0, int(parse_time(text).astimezone(UTC).timestamp()))
    except (ValueError, OverflowError):
        return default


class HistoryReader:
    """Reads the history, one request after the other.

    Args:
        store: Where it is; used by the reader only.
    """

    def __init__(self, store: HistoryStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history-reader")
        self._waiting = 0

    async def find(self, query: Query) -> tuple[list[JobRecord], Position | None]:
        """Return jobs that have ended (see the store).

        Raises:
            HistoryUnavailable: They cannot be read.
        """
        return await self._read(lambda: self._store.find(query))

    async def get(self, uid: str) -> JobRecord | None:
        """Return what is recorded of a job; errors as of `find`."""
        return await self._read(lambda: self._store.get(uid))

    async def namespaces(self) -> list[str]:
        """Return the namespaces of jobs that have ended; errors as of `find`."""
        return await self._read(self._store.namespaces)

    async def close(self) -> None:
        """End; whoever still waits gets an error."""
        await asyncio.to_thread(self._close)

    async def _read(self, read: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise HistoryUnavailable("too many requests wait for the history already; try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, read)
        except RuntimeError as error:
            raise HistoryUnavailable("the manager ends; ask again in a moment") from error
        finally:
            self._waiting -= 1

    def _close(self) -> None:
        self._thread.submit(self._store.close)
        self._thread.shutdown(wait=True, cancel_futures=False)
