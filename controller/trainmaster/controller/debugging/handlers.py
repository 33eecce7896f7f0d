"""The pages below `/debug/`, on the server of the metrics and behind its authentication.

Guarantees:
- M-9: they are served only where the configuration switches them on, and to nobody who may not read `/debug/...`: it is
  refused to switch them on for everybody (see `configuration.validation`).
- Every page has an end, and no two profiles are taken at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson
from aiohttp import web

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.debugging import state
from trainmaster.controller.debugging.stacks import profile, task_stacks, thread_stacks
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject

_Page: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]

_LONGEST_KEY: Final = 400
"""Characters; a namespace and a name have 317 at most."""

_PROFILE_SECONDS: Final = 10.0
LONGEST: Final = 60.0
"""Seconds of a profile, by default and at most."""

INDEX: Final = f"""\
/debug/tasks              stacks of all asyncio tasks, those that are the same together
/debug/threads            stacks of all threads
/debug/cache              each cache: objects, bytes, resource version, and why it cannot be read
/debug/cache?key=ns/name  what the caches know of one object, without its spec and data
/debug/queue              each work queue: what waits, until when, after how many retries; what is worked on
/debug/plugins            plugins of each phase in their order, their calls and failures
/debug/leader             who leads, and since when the lease is not renewed
/debug/configuration      the configuration that is in effect
/debug/profile?seconds=N  where all threads are, a hundred times a second, for up to {LONGEST:g} s, as collapsed stacks
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debugged:
    """What is shown."""

    configuration: Configuration
    framework: Framework
    informers: Callable[[], Sequence[Informer]]
    queues: Sequence[tuple[str, WorkQueue]]
    leader: Callable[[], JsonObject]


def add_debugging_handlers(app: web.Application, debugged: Debugged) -> None:
    """Add the pages to an application."""
    profiling = asyncio.Lock()

    async def tasks(_: web.Request) -> web.Response:
        return _text(task_stacks(asyncio.get_running_loop()))

    async def cache(request: web.Request) -> web.Response:
        key = request.query.get("key")
        if key is None:
            return _json(state.caches(debugged.informers()))
        found = state.cached_object(debugged.informers(), key) if len(key) <= _LONGEST_KEY else []
        if not found:
            return _text("no cache has an object of this key; write it as namespace/name, or name\n", status=404)
        return _json(found)

    async def profiled(request: web.Request) -> web.Response:
        seconds = _seconds(request.query.get("seconds"))
        if seconds is None:
            return _text(f"seconds must be a number above 0 and up to {LONGEST:g}\n", status=400)
        if profiling.locked():
            return _text("a profile is being taken already; try again when it has ended\n", status=429)
        async with profiling:
            return _text(await profile(seconds))

    def shown(what: Callable[[], Any]) -> _Page:
        async def page(_: web.Request) -> web.Response:
            return _json(what())

        return page

    def written(what: Callable[[], str]) -> _Page:
        async def page(_: web.Request) -> web.Response:
            return _text(what())

        return page

    pages: dict[str, _Page] = {
        "/debug": written(lambda: INDEX),
        "/debug/": written(lambda: INDEX),
        "/debug/tasks": tasks,
        "/debug/threads": written(thread_stacks),
        "/debug/cache": cache,
        "/debug/queue": shown(lambda: state.queues(debugged.queues)),
        "/debug/plugins": shown(lambda: state.plugins(debugged.framework)),
        "/debug/leader": shown(debugged.leader),
        "/debug/configuration": shown(lambda: state.configuration(debugged.configuration)),
        "/debug/profile": profiled,
    }
    app.add_routes([web.get(path, page) for path, page in pages.items()])


def _seconds(text: str | None) -> float | None:
    if text is None:
        return _PROFILE_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 < seconds <= LONGEST else None


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, headers={"X-Content-Type-Options": "nosniff"})


def _json(value: Any) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, content_type="application/json")
