"""The history in a database of PostgreSQL, for several replicas, or where a volume is harder to have than a database.

The URL is read from a file for each connection: it holds a password, which may change.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from trainmaster.controller.history.store import Connection, Dialect, HistoryStore, HistoryUnavailable
from trainmaster.controller.redaction import redact

if TYPE_CHECKING:
    import psycopg

_CONNECT_TIMEOUT: Final = 10
_STATEMENT_TIMEOUT: Final = "30s"
_SILENCE_TIMEOUT: Final = 30
"""Seconds."""

_LOCK: Final = 7_278_102_459
"""The number of the lock that writers hold, one at a time; any that nobody else uses."""


class PostgresMissing(Exception):
    """The extra `postgres` is not installed; the text says so."""


def postgres_store(url_file: Path) -> HistoryStore:
    """Make the store of a database.

    Args:
        url_file: A file with its URL, `postgresql://user:password@host/database`.

    Raises:
        PostgresMissing: Nothing is there to connect with.
    """
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PostgresMissing(
            "history.databaseUrlFile needs psycopg, which is not installed: pip install 'trainmaster[postgres]'"
        ) from error

    def connect() -> Connection:
        return cast("Connection", _connect(url_file))

    return HistoryStore(
        Dialect(
            connect=connect,
            errors=(psycopg.Error, OSError),
            explain=lambda error: (
                f"the history in the database of {url_file} cannot be used: {_in_a_line(error)}; "
                "check the URL in that file, and that its user may create tables there; it goes on by itself"
            ),
            begin=("BEGIN", f"SELECT pg_advisory_xact_lock({_LOCK})"),
            placeholder="%s",
            exists="SELECT 1 FROM pg_tables WHERE schemaname = current_schema() "
            "AND tablename = 'trainmaster_history_schema'",
        )
    )


def _connect(url_file: Path) -> psycopg.Connection:
    import psycopg  # noqa: PLC0415 - an extra

    url = url_file.read_text(encoding="utf-8").strip()
    if not url:
        raise HistoryUnavailable(
            f"the file of history.databaseUrlFile, {url_file}, is empty; it goes on when it is not"
        )
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=_CONNECT_TIMEOUT,
        application_name="trainmaster-history",
        # A server that is gone without a word ends what waits for it as one does that says so.
        tcp_user_timeout=_SILENCE_TIMEOUT * 1000,
        keepalives_idle=_SILENCE_TIMEOUT // 3,
        keepalives_interval=_SILENCE_TIMEOUT // 3,
        keepalives_count=2,
    )
    try:
        # Not as options of the connection: these would replace those of the URL.
        for name in ("statement_timeout", "lock_timeout"):
            connection.execute(f"SET {name} = '{_STATEMENT_TIMEOUT}'")
    except BaseException:
        connection.close()
        raise
    return connection


def _in_a_line(error: Exception) -> str:
    return redact(" ".join(str(error).split()))
