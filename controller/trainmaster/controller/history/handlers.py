"""The history as JSON, below `/history/v1/`, where metrics are served and behind the same authentication.

    GET /history/v1/jobs        jobs that have ended, those that ended last first; see `query` for the parameters
    GET /history/v1/jobs/UID    all that is recorded of one job

Guarantees:
- Only namespaces are shown in which whoever asks may list TrainJobs. Of a job elsewhere nobody learns that it exists.
  Whoever may list them in all namespaces is asked for once, everybody else for each namespace, and answers are
  remembered as long as those about metrics are. Where metrics are for everybody who reaches them, so is this.
- Every answer has bounds, and every refusal a text that says what is wrong: `{"error": TEXT}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any, Final

import orjson
import structlog
from aiohttp import web

from trainmaster.controller.history.query import PATH, InvalidQuery, Query, read_query
from trainmaster.controller.history.store import HistoryReader, HistoryUnavailable
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.server.filters import USER, DelegatingAuth

MAX_NAMESPACES: Final = 300
"""About so many it is asked for one request."""

log = structlog.get_logger(__name__)

_LONGEST_UID: Final = 253

Handler = Callable[[web.Request], Awaitable[web.Response]]


class TooManyNamespaces(Exception):
    """Somebody who may not see all namespaces has to name one."""


class NamespaceAccess:
    """Decides about namespaces.

    Args:
        auth: Who asks the API server; None: nobody has to be asked.
    """

    def __init__(self, auth: DelegatingAuth | None) -> None:
        self._auth = auth

    async def sees_all(self, request: web.Request) -> bool:
        """Tell whether whoever asks may see all namespaces.

        Raises:
            KubeError: The API server could not be asked.
            TimeoutError: It does not answer.
        """
        return await self.sees(request, "")

    async def sees(self, request: web.Request, namespace: str) -> bool:
        """Tell whether whoever asks may see a namespace; errors as of `sees_all`."""
        return self._auth is None or await self._auth.may_list(request[USER], TRAINJOBS, namespace)

    async def visible(self, request: web.Request, namespaces: Collection[str]) -> list[str]:
        """Return those namespaces that whoever asks may see; errors as of `sees_all`.

        Raises:
            TooManyNamespaces: There are more than can be asked about.
        """
        if len(namespaces) > MAX_NAMESPACES:
            raise TooManyNamespaces
        answers = await asyncio.gather(*(self.sees(request, each) for each in namespaces))
        return [namespace for namespace, sees in zip(namespaces, answers, strict=True) if sees]


def add_history_handlers(app: web.Application, reader: HistoryReader, access: NamespaceAccess, *, clock: Clock) -> None:
    """Add the pages to an application."""

    async def jobs(request: web.Request) -> web.Response:
        query = read_query(request.query, now=clock.now())
        records, following = await reader.find(await visible_query(request, query, reader, access))
        items = [each.summary() for each in records]
        return _json({"items": items, "continue": str(following) if following is not None else ""})

    async def job(request: web.Request) -> web.Response:
        uid = request.match_info["uid"]
        record = await reader.get(uid) if len(uid) <= _LONGEST_UID else None
        if record is None or not await access.sees(request, record.namespace):
            return refusal(404, "no job with this UID is recorded in a namespace that you may see")
        return _json(record.to_json())

    app.add_routes([web.get(PATH, _answering(jobs)), web.get(PATH + "/{uid}", _answering(job))])


async def visible_query(request: web.Request, query: Query, reader: HistoryReader, access: NamespaceAccess) -> Query:
    """Return a query for what whoever asks may see of what they ask for.

    Raises:
        web.HTTPForbidden: They ask for a namespace that they may not see.
        TooManyNamespaces: They have to name one.
        HistoryUnavailable: The namespaces cannot be read.
        KubeError: The API server could not be asked.
        TimeoutError: It does not answer.
    """
    if await access.sees_all(request):
        return query
    if query.namespaces is None:
        return replace(query, namespaces=await access.visible(request, await reader.namespaces()))
    if not await access.visible(request, query.namespaces):
        raise web.HTTPForbidden(
            text=f"you may not list TrainJobs in namespace {', '.join(query.namespaces)}, so its history is not shown"
        )
    return query


def _answering(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except InvalidQuery as error:
            return refusal(400, str(error))
        except web.HTTPForbidden as error:
            return refusal(403, error.text or "")
        except TooManyNamespaces:
            return refusal(403, f"there are more than {MAX_NAMESPACES} namespaces; name the one that you want to see")
        except HistoryUnavailable as error:
            return refusal(503, str(error))
        except (KubeError, TimeoutError) as error:
            log.warning("who reads the history cannot be checked, so it is not served", error=str(error))
            return refusal(500, "what you may see cannot be checked at present; try again")

    return answer


def refusal(status: int, text: str) -> web.Response:
    """Refuse a request."""
    return _json({"error": text}, status=status)


def _json(value: Any, *, status: int = 200) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
