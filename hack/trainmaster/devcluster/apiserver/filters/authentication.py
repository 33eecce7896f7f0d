"""The authentication filter: who makes a request, from a bearer token, of the cluster or of a service account.

Guarantees:
- every path needs a token, except the ones a real cluster also opens to everyone: health checks and the version;
- tokens are compared in constant time, whatever bytes they consist of, and never appear in a log.

The impersonation filter: acting as another user, which `kubectl --as` wants by headers.

Guarantees:
- the real user needs the right to `impersonate` every part of the other identity: user, groups, uid and extra fields;
- the rights of the request are then those of the other user alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDictProxy

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authorizer import (
    ADMINISTRATOR,
    AUTHENTICATED,
    Attributes,
    Authorizer,
    User,
    make_group_names,
    require,
    split_username,
)
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ISSUER, InvalidToken, ServiceAccountTokens

ALWAYS_ALLOW_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
"""What everyone may get, with and without credentials."""

_PREFIX = "impersonate-"
_EXTRA_PREFIX = "impersonate-extra-"
_ANONYMOUS = "system:anonymous"
_GROUP = "authentication.k8s.io"

IMPERSONATOR = web.RequestKey("impersonator", User)
"""Where a request in the name of another user holds the one who made it."""


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


@dataclass(slots=True)
class _Wanted:
    """The identity that the headers ask for."""

    name: str = ""
    uid: str = ""
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)


def with_impersonation(authorizer: Authorizer) -> Middleware:
    """Return the filter that puts the user whom the headers name in the place of the one who makes the request."""

    @web.middleware
    async def impersonate(request: web.Request, handler: Handler) -> web.StreamResponse:
        user = request.get(USER)
        if user is not None and (other := _impersonated(user, request.headers, authorizer)) is not user:
            request[USER], request[IMPERSONATOR] = other, user
        return await handler(request)

    return impersonate


def _impersonated(user: User, headers: CIMultiDictProxy[str], authorizer: Authorizer) -> User:
    """Return the user whose rights count: the one that the headers name, or else the real one."""
    wanted = _wanted(headers)
    if wanted is None:
        return user
    if not wanted.name:
        raise errors.internal("requested impersonation of groups, uid or extra fields without impersonating a user")
    for attributes in _needed(wanted):
        require(authorizer, user, attributes)
    account = split_username(wanted.name)
    groups = wanted.groups or (list(make_group_names(account[0])) if account is not None else [])
    if wanted.name != _ANONYMOUS and AUTHENTICATED not in groups:
        groups = [*groups, AUTHENTICATED]
    return User(wanted.name, tuple(groups), wanted.uid, {key: tuple(values) for key, values in wanted.extra.items()})


def _wanted(headers: CIMultiDictProxy[str]) -> _Wanted | None:
    wanted = None
    for header, value in headers.items():
        name = header.lower()
        if not name.startswith(_PREFIX):
            continue
        wanted = wanted or _Wanted()
        match name:
            case "impersonate-user":
                wanted.name = value
            case "impersonate-group":
                wanted.groups.append(value)
            case "impersonate-uid":
                wanted.uid = value
            case _ if name.startswith(_EXTRA_PREFIX):
                wanted.extra.setdefault(unquote(name.removeprefix(_EXTRA_PREFIX)), []).append(value)
    return wanted


def _needed(wanted: _Wanted) -> Iterator[Attributes]:
    """Yield the rights that the impersonation needs."""
    if account := split_username(wanted.name):
        namespace, name = account
        yield Attributes(verb="impersonate", resource="serviceaccounts", version="v1", namespace=namespace, name=name)
    else:
        yield Attributes(verb="impersonate", resource="users", version="v1", name=wanted.name)
    for group in wanted.groups:
        yield Attributes(verb="impersonate", resource="groups", version="v1", name=group)
    if wanted.uid:
        yield Attributes(verb="impersonate", group=_GROUP, resource="uids", version="v1", name=wanted.uid)
    for key, values in wanted.extra.items():
        for value in values:
            yield Attributes(
                verb="impersonate", group=_GROUP, resource="userextras", subresource=key, version="v1", name=value
            )
