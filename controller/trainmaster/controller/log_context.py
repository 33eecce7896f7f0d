"""What is reconciled, for the log lines of a reconcile: bound for each, and spelled out when a line is written.

Most reconciles log nothing at the usual level, and four variables of structlog's own cost ten times as much to set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar, copy_context
from typing import Final, TypeAlias, TypeVar

from structlog.typing import EventDict

T = TypeVar("T")
Reconciled: TypeAlias = tuple[str, str, int]
"""The name of the controller, the key of the object, and a random number of 32 bits."""

RECONCILED: Final[ContextVar[Reconciled | None]] = ContextVar("reconciled", default=None)
"""The reconcile that this is a part of, if it is one."""


def merge_reconciled(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Add to a line, as a processor of structlog, which object is reconciled and the id of the reconcile."""
    reconciled = RECONCILED.get()
    if reconciled is not None:
        controller, key, number = reconciled
        namespace, _, name = key.rpartition("/")
        bound = {"controller": controller, "namespace": namespace, "name": name, "reconcile_id": f"{number:08x}"}
        for field, value in bound.items():
            line.setdefault(field, value)
    return line


async def in_thread(executor: Executor | None, function: Callable[[], T]) -> T:
    """Call a function in a thread, by default one of the event loop; its log lines and traces say the same."""
    return await asyncio.get_running_loop().run_in_executor(executor, copy_context().run, function)
