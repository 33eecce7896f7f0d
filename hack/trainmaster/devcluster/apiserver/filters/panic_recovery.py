"""Panic recovery: whatever a handler raises becomes a Status.

Guarantees:
- a refusal is the Status of its `StatusError`;
- a defect of the server is a 500 Status without a traceback; the traceback is in the server's log;
- a response that fails halfway breaks the connection: the client cannot take what it has for the whole.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.http.responsewriters import response_started, status_response

_log = logging.getLogger(__name__)


@web.middleware
async def with_panic_recovery(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions into Status responses."""
    try:
        return await handler(request)
    except ConnectionError:
        raise  # the client went away: nobody is there to respond to, and aiohttp takes it for an ordinary end
    except Exception as error:
        response = _error_response(request, error)
        if not response_started(request):
            return response
        # The client holds half a list or a log: a broken connection is the one way left to tell it so.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the answer failed halfway") from error


def _error_response(request: web.Request, error: Exception) -> web.Response:
    match error:
        case StatusError():
            return status_response(error)
        case web.HTTPRequestEntityTooLarge():
            return status_response(errors.too_large(f"the body is larger than {request.client_max_size} bytes"))
        case web.HTTPException():
            return status_response(StatusError(error.status, "BadRequest", error.reason))
    _log.error("the handler of %s %s failed", request.method, request.path, exc_info=error)
    return status_response(errors.internal("the embedded cluster hit a defect; its log has the details"))
