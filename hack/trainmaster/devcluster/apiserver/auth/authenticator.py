"""Who is asking: the token of the cluster, the token of a service account, or nobody.

Guarantees:
- every path needs a token, except the ones a real cluster also opens to everyone: health checks and the version;
- tokens are compared in constant time and never appear in an answer or a log.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ISSUER, AccountTokens, InvalidToken
from trainmaster.devcluster.apiserver.auth.user import ADMINISTRATOR, MASTERS, User

PUBLIC_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
"""What everyone may ask, with and without credentials."""

USER = web.RequestKey("user", User)
"""Where a request that got in holds its user: the one whose rights count."""

IMPERSONATOR = web.RequestKey("impersonator", User)
"""Where a request in the name of another user holds the one who made it."""


class Authenticator:
    """Knows the token of the administrator, and where to verify those of service accounts."""

    def __init__(self, token: str, accounts: AccountTokens | None = None) -> None:
        if not token:
            raise ValueError("the token of the cluster must not be empty: it would let everyone in")
        self._token = token.encode()
        self._accounts = accounts

    def verify(self, token: str, *, audiences: Sequence[str] = (ISSUER,)) -> tuple[User, list[str]]:
        """Return the user that a token stands for and the audiences, among those given, that it is for.

        Raises:
            InvalidToken: It lets nobody in; the text says why.
        """
        if hmac.compare_digest(token.encode(), self._token):
            if ISSUER not in audiences:
                raise InvalidToken("the token of the cluster is for the API server only")
            return ADMINISTRATOR, [ISSUER]
        if self._accounts is None:
            raise InvalidToken("invalid bearer token")
        return self._accounts.verify(token, audiences=audiences)

    def authenticate(self, *, path: str, authorization: str) -> User | None:
        """Return the user of a request, None on a public path without credentials; 401 in every other case."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            try:
                return self.verify(token.strip())[0]
            except InvalidToken as error:
                raise errors.unauthorized() from error
        if authorization or path not in PUBLIC_PATHS:
            raise errors.unauthorized()
        return None


def require_administrator(request: web.Request, what: str) -> None:
    """Refuse a request of anybody else; `what` completes "only administrators may"."""
    user = request.get(USER)
    if user is None or MASTERS not in user.groups:
        raise errors.forbidden(f"only administrators may {what}")
