"""The gate: nobody gets past it who is not known, or may not do what the request asks for.

Guarantees:
- a request is authenticated, and its user authorized, before anything else looks at it;
- an apply that would create its object needs the right to create, besides the right to patch.
"""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from trainmaster.devcluster.apiserver.auth.authenticator import IMPERSONATOR, PUBLIC_PATHS, USER, Authenticator
from trainmaster.devcluster.apiserver.auth.authorizer import Attributes, Authorizer, require
from trainmaster.devcluster.apiserver.auth.impersonation import impersonated
from trainmaster.devcluster.apiserver.http.query import read_boolean
from trainmaster.devcluster.apiserver.http.request_info import parse_target
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.storage import ObjectKey

_VERBS = {"HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_BY_NAME = "metadata.name="


class Guard:
    """Lets requests in."""

    def __init__(self, api: Api, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._api = api
        self._authenticator = authenticator
        self._authorizer = authorizer

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request if it may be handled."""
        path = request.path
        user = self._authenticator.authenticate(path=path, authorization=request.headers.get("Authorization", ""))
        if user is not None:
            request[USER] = known = user
            user = impersonated(known, request.headers, self._authorizer)
            if user is not known:
                request[USER], request[IMPERSONATOR] = user, known
            if path not in PUBLIC_PATHS:
                wanted = attributes_of(request)
                require(self._authorizer, user, wanted)
                if self._creates_by_applying(request, wanted):
                    creation = Attributes(
                        verb="create",
                        group=wanted.group,
                        version=wanted.version,
                        resource=wanted.resource,
                        namespace=wanted.namespace,
                        name=wanted.name,
                    )
                    require(self._authorizer, user, creation)
        return await handler(request)

    def _creates_by_applying(self, request: web.Request, wanted: Attributes) -> bool:
        if wanted.verb != "patch" or wanted.subresource or request.content_type != PatchType.APPLY:
            return False
        kind = self._api.registry.find(wanted.group, wanted.version, wanted.resource)
        if kind is None:
            return False
        namespace = wanted.namespace if kind.namespaced else ""
        return self._api.store.get(ObjectKey(kind.stored_as, namespace, wanted.name)) is None


def attributes_of(request: web.Request) -> Attributes:
    """Return what a request wants to do, in the words of rules."""
    target = parse_target(request.rel_url.raw_path)
    if target is None:
        return Attributes(verb=_VERBS.get(request.method, request.method.lower()), path=request.path)
    namespace, name = target.namespace or "", target.name or ""
    if (target.group, target.plural) == ("", "namespaces"):
        namespace = name  # what concerns a namespace itself may be allowed by its own roles
    verb = _VERBS.get(request.method, request.method.lower())
    if request.method in {"GET", "HEAD"}:
        watching = request.method == "GET" and read_boolean(request.query, "watch")
        verb = "watch" if watching else ("get" if name else "list")
        selected = request.query.get("fieldSelector", "")
        if not name and selected.startswith(_BY_NAME) and "," not in selected:
            name = selected.removeprefix(_BY_NAME)
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return Attributes(
        verb=verb,
        group=target.group,
        version=target.version,
        resource=target.plural,
        subresource=target.subresource or "",
        namespace=namespace,
        name=name,
    )
