"""Answers: JSON responses, and Status objects for whatever goes wrong.

Guarantees:
- every refusal is a Status object with the code, reason and details that clients match on;
- a defect of the server is a 500 Status without a traceback; the traceback is in the server's log;
- warnings travel in `Warning` headers, in the form that kubectl prints.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)

# Marks a request whose answer is on its way, so that no second one is sent after it.
_STARTED = web.RequestKey("stream_started", bool)


def json_response(
    body: bytes | JsonObject, *, status: int = 200, warnings: Iterable[str] = (), content_type: str = "application/json"
) -> web.Response:
    """Build a response; a body in bytes is JSON already."""
    encoded = body if isinstance(body, bytes) else orjson.dumps(body)
    response = web.Response(body=encoded, status=status)
    # Set as a header: aiohttp's own argument would add a charset and refuse the parameters of discovery.
    response.headers["Content-Type"] = content_type
    for warning in dict.fromkeys(warnings):
        response.headers.add("Warning", f"299 - {_quoted(warning)}")
    return response


def status_response(error: StatusError) -> web.Response:
    """Build the response that tells a client why it was refused."""
    response = json_response(error.status(), status=error.code, warnings=error.warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    if error.code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="trainmaster"'
    return response


def page_not_found() -> web.Response:
    """Build the answer for a path that the server knows nothing about, in the plain text of a real API server."""
    return web.Response(status=404, text="404 page not found\n")


async def start_stream(request: web.Request, *, content_type: str) -> web.StreamResponse:
    """Send the headers of an answer that arrives in pieces; errors from here on can only cut it off."""
    response = web.StreamResponse()
    response.headers["Content-Type"] = content_type
    response.headers["Cache-Control"] = "no-cache, private"
    request[_STARTED] = True
    await response.prepare(request)
    return response


def answer_started(request: web.Request) -> bool:
    """Whether the headers of an answer in pieces have left."""
    return _STARTED in request


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions into Status responses."""
    try:
        return await handler(request)
    except ConnectionError:
        raise  # the client went away: nobody is there to answer, and aiohttp takes it for an ordinary end
    except Exception as error:
        answer = _refusal(request, error)
        if not request.get(_STARTED):
            return answer
        # The client holds half a list or a log: a broken connection is the one way left to tell it so.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the answer failed halfway") from error


def _refusal(request: web.Request, error: Exception) -> web.Response:
    match error:
        case StatusError():
            return status_response(error)
        case web.HTTPRequestEntityTooLarge():
            return status_response(errors.too_large(f"the body is larger than {request.client_max_size} bytes"))
        case web.HTTPException():
            return status_response(StatusError(error.status, "BadRequest", error.reason))
    _log.error("the handler of %s %s failed", request.method, request.path, exc_info=error)
    return status_response(errors.internal("the embedded cluster hit a defect; its log has the details"))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(character if character.isprintable() else " " for character in escaped) + '"'
