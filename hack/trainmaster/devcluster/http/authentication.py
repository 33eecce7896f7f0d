"""Who is asking: a bearer token, or nobody.

Guarantees:
- every path needs the token, except the ones a real cluster also opens to everyone: health checks and the version;
- tokens are compared in constant time and never appear in an answer or a log.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from trainmaster.devcluster import errors
from trainmaster.runtime.jsontree import JsonObject

_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...]

    def info(self) -> JsonObject:
        """Return the user as reviews show it."""
        return {"username": self.name, "groups": list(self.groups)}


ADMINISTRATOR = User("trainmaster-admin", ("system:masters", "system:authenticated"))


class Authenticator:
    """Knows the one token of the cluster; whoever holds it may do everything."""

    def __init__(self, token: str) -> None:
        if not token:
            raise ValueError("the token of the cluster must not be empty: it would let everyone in")
        self._token = token.encode()

    def user_of(self, token: str) -> User | None:
        """Return the user that a token stands for."""
        return ADMINISTRATOR if hmac.compare_digest(token.encode(), self._token) else None

    def authenticate(self, *, path: str, authorization: str) -> User | None:
        """Return the user of a request, None on a public path without credentials; 401 in every other case."""
        scheme, _, token = authorization.partition(" ")
        user = self.user_of(token.strip()) if scheme.lower() == "bearer" else None
        if user is None and (authorization or path not in _PUBLIC):
            raise errors.unauthorized()
        return user
