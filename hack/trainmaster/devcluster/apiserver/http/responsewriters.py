"""Response writers: objects, Status objects and streams as responses.

Guarantees:
- every refusal is a Status object with the code, reason and details that clients match on;
- warnings travel in `Warning` headers, in the form that kubectl prints.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson
from aiohttp import web

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.runtime.jsontree import JsonObject

# Marks a request whose response is on its way, so that no second one is sent after it.
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
    """Build the response to a path that the server knows nothing about, in the plain text of a real API server."""
    return web.Response(status=404, text="404 page not found\n")


async def start_stream(request: web.Request, *, content_type: str) -> web.StreamResponse:
    """Send the headers of a response that arrives in pieces; errors from here on can only cut it off."""
    response = web.StreamResponse()
    response.headers["Content-Type"] = content_type
    await start_response(request, response)
    return response


async def start_response(request: web.Request, response: web.StreamResponse) -> None:
    """Send the headers of a response whose body follows; see `start_stream`."""
    request[_STARTED] = True
    await response.prepare(request)


async def write_common_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Write the headers of every response, as a signal handler of the application: answers are not for shared caches.

    A real server does not say what it is made of.
    """
    response.headers.setdefault("Cache-Control", "no-cache, private")
    response.headers.popall("Server", None)


def response_started(request: web.Request) -> bool:
    """Whether the headers of a response in pieces have left."""
    return _STARTED in request


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(character if character.isprintable() else " " for character in escaped) + '"'
