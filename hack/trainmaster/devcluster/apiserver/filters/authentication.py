"""The authentication filter: who makes a request, from a bearer token, of the cluster or of a service account.

Guarantees:
- every path needs a token, except the ones a real cluster also opens to everyone: health checks and the version;
- tokens are compared in constant time, whatever bytes they consist of, and never appear in a log.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ISSUER, InvalidToken, ServiceAccountTokens
from trainmaster.devcluster.apiserver.auth.user import ADMINISTRATOR, User

ALWAYS_ALLOW_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
"""What everyone may get, with and without credentials."""


class Authenticator:
    """Knows the token of the administrator, and where to verify those of service accounts."""

    def __init__(self, token: str, accounts: ServiceAccountTokens) -> None:
        if not token:
            raise ValueError("the token of the cluster must not be empty: it would let everyone in")
        self._token = token.encode()
        self._accounts = accounts

    def authenticate_token(self, token: str, *, audiences: Sequence[str] = (ISSUER,)) -> tuple[User, list[str]]:
        """Return the user that a token stands for and the audiences, among those given, that it is for.

        Raises:
            InvalidToken: It lets nobody in; the text says why.
        """
        # Bytes that are no UTF-8 arrive as lone surrogates.
        if hmac.compare_digest(token.encode(errors="surrogatepass"), self._token):
            if ISSUER not in audiences:
                raise InvalidToken("the token of the cluster is for the API server only")
            return ADMINISTRATOR, [ISSUER]
        return self._accounts.authenticate_token(token, audiences=audiences)

    def authenticate_request(self, *, path: str, authorization: str) -> User | None:
        """Return the user of a request; 401 for all others.

        None: it has no credentials, and its path is open to everyone.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            try:
                return self.authenticate_token(token.strip())[0]
            except InvalidToken as error:
                raise errors.unauthorized() from error
        if authorization or path not in ALWAYS_ALLOW_PATHS:
            raise errors.unauthorized()
        return None


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
