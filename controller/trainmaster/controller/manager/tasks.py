"""Tasks of the manager: each has an owner that waits for its end (P-30)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class PartFailed(Exception):
    """A part of the manager ended although nobody told it to; without it the rest is of no use."""


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, T], *, name: str | None = None) -> AsyncIterator[asyncio.Task[T]]:
    """Run something beside the block; it has ended, whatever way, when the block has."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        await cancel([task])


async def first_of(*awaited: asyncio.Future[Any]) -> None:
    """Wait until one of several ends, whatever way."""
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, whatever way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def check(part: asyncio.Task[Any]) -> None:
    """Look whether a part has ended by itself.

    Raises:
        PartFailed: It has.
    """
    if not part.done():
        return
    error = None if part.cancelled() else part.exception()
    cause = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    what = f"failed: {type(cause).__name__}: {cause}" if cause is not None else "ended without being told to"
    raise PartFailed(f"the part {part.get_name()!r} of the manager {what}") from error
