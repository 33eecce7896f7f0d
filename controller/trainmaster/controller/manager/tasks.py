"""Tasks of the manager: each has an owner that waits for its end (P-30)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class RunnableFailed(Exception):
    """A runnable of the manager ended although nobody told it to; without it the rest is of no use."""


@asynccontextmanager
async def background_task(
    coroutine: Coroutine[Any, Any, T], *, name: str | None = None
) -> AsyncIterator[asyncio.Task[T]]:
    """Run a task in the background of the block; it has ended, whatever way, when the block has."""
    task = asyncio.create_task(coroutine, name=name)
    try:
        yield task
    finally:
        await cancel_and_wait([task])


async def wait_for_first(*futures: asyncio.Future[Any]) -> None:
    """Wait until one of several futures ends, whatever way."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def cancel_and_wait(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, whatever way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def raise_if_ended(task: asyncio.Task[Any]) -> None:
    """Refuse to go on if a task of the manager has ended by itself.

    Raises:
        RunnableFailed: It has.
    """
    if not task.done():
        return
    error = None if task.cancelled() else task.exception()
    cause = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    what = f"failed: {type(cause).__name__}: {cause}" if cause is not None else "ended without being told to"
    raise RunnableFailed(f"the part {task.get_name()!r} of the manager {what}") from error
