"""The authentication filter: who makes a request."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from trainmaster.devcluster.apiserver.auth.authenticator import Authenticator
from trainmaster.devcluster.apiserver.auth.user import User

USER = web.RequestKey("user", User)
"""Where a request that got in holds its user: the one whose rights count. Those of health checks may have none."""


def with_authentication(authenticator: Authenticator) -> Middleware:
    """Return the filter that refuses requests of nobody known with 401."""

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        header = request.headers.get("Authorization", "")
        user = authenticator.authenticate_request(path=request.path, authorization=header)
        if user is not None:
            request[USER] = user
        return await handler(request)

    return authenticate
