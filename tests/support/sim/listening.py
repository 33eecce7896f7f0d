"""What the programs of a simulation log, instead of on the terminal of the tests."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from support.sim.loop import PROCESS

from trainmaster.controller.log_context import merge_reconciled

LogEntry = dict[str, Any]


@contextmanager
def listening() -> Iterator[list[LogEntry]]:
    """Collect every log entry; `process` names the program that wrote it."""
    entries: list[LogEntry] = []

    def collect(_: object, method: str, entry: MutableMapping[str, Any]) -> LogEntry:
        entries.append({**entry, "level": method, "process": PROCESS.get()})
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[
            merge_reconciled,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            collect,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    try:
        yield entries
    finally:
        structlog.configure(**before)
