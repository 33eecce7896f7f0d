"""The authorization filter: whether the user of a request may do what it asks for.

Guarantees:
- the user of a request is authorized before anything but the filters looks at it;
- an apply that would create its object needs the right to create, besides the right to patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authorizer import Attributes, Authorizer, require
from trainmaster.devcluster.apiserver.auth.user import MASTERS
from trainmaster.devcluster.apiserver.filters.authentication import ALWAYS_ALLOW_PATHS, USER
from trainmaster.devcluster.apiserver.filters.recording import record
from trainmaster.devcluster.apiserver.http.query import read_boolean
from trainmaster.devcluster.apiserver.http.request_info import request_info_of
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.storage import ObjectKey

_VERBS = {"HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BY_NAME = "metadata.name="


def with_authorization(authorizer: Authorizer, api: Api) -> Middleware:
    """Return the filter that refuses with 403 what the user may not do."""

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        user = request.get(USER)
        if user is not None and request.path not in ALWAYS_ALLOW_PATHS:
            program = request.headers.get("User-Agent", "")
            for demanded in _demanded(api, request):
                record(program, demanded)
                require(authorizer, user, demanded)
        return await handler(request)

    return authorize


def _demanded(api: Api, request: web.Request) -> Iterator[Attributes]:
    """Everything that one needs a right to, to make a request."""
    attributes = authorizer_attributes(request)
    yield attributes
    if _creates_by_applying(api, request, attributes):
        yield replace(attributes, verb="create")


def require_administrator(request: web.Request, what: str) -> None:
    """Refuse a request of anybody else; `what` completes "only administrators may"."""
    user = request.get(USER)
    if user is None or MASTERS not in user.groups:
        raise errors.forbidden(f"only administrators may {what}")


def authorizer_attributes(request: web.Request) -> Attributes:
    """Return what a request wants to do, in the words of rules."""
    info = request_info_of(request)
    if info is None:
        return Attributes(verb=_VERBS.get(request.method, request.method.lower()), path=request.path)
    namespace, name = info.namespace or "", info.name or ""
    if (info.group, info.resource) == ("", "namespaces"):
        namespace = name  # what concerns a namespace itself may be allowed by its own roles
    verb = _VERBS.get(request.method, "")  # OPTIONS of a resource has none, so that only rules for all verbs allow it
    if request.method in {"GET", "HEAD"}:
        watching = request.method == "GET" and not name and read_boolean(request.query, "watch")
        verb = "watch" if watching else ("get" if name else "list")
        selected = request.query.get("fieldSelector", "")
        if not name and selected.startswith(_BY_NAME) and "," not in selected:
            name = selected.removeprefix(_BY_NAME)
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Attributes(
        verb=verb,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource or "",
        namespace=namespace,
        name=name,
    )


def _creates_by_applying(api: Api, request: web.Request, attributes: Attributes) -> bool:
    if attributes.verb != "patch" or attributes.subresource or request.content_type != PatchType.APPLY:
        return False
    kind = api.registry.find(attributes.group, attributes.version, attributes.resource)
    if kind is None:
        return False
    namespace = attributes.namespace if kind.namespaced else ""
    return api.store.get(ObjectKey(kind.stored_as, namespace, attributes.name)) is None
