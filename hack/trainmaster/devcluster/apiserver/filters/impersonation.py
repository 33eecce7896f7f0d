"""The impersonation filter: acting as another user, which `kubectl --as` wants by headers.

Guarantees:
- the real user needs the right to `impersonate` every part of the other identity: user, groups, uid and extra fields;
- the rights of the request are then those of the other user alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDictProxy

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authorizer import Attributes, Authorizer, require
from trainmaster.devcluster.apiserver.auth.user import AUTHENTICATED, User, make_group_names, split_username
from trainmaster.devcluster.apiserver.filters.authentication import USER

_PREFIX = "impersonate-"
_EXTRA_PREFIX = "impersonate-extra-"
_ANONYMOUS = "system:anonymous"
_GROUP = "authentication.k8s.io"


IMPERSONATOR = web.RequestKey("impersonator", User)
"""Where a request in the name of another user holds the one who made it."""


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
