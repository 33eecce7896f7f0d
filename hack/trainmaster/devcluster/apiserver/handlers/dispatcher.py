"""From a request for a resource to the handler of its verb.

Guarantees:
- a path that names nothing is 404, a verb that the resource lacks 405, a feature that only a real cluster has 501: the
  server never pretends to have done something.
"""

from __future__ import annotations

from typing import get_args

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authenticator import USER
from trainmaster.devcluster.apiserver.auth.oidc_discovery import Identity
from trainmaster.devcluster.apiserver.handlers.get import Reader
from trainmaster.devcluster.apiserver.handlers.pod_log import serve_log
from trainmaster.devcluster.apiserver.handlers.presentation import IncludeObject, Presenter
from trainmaster.devcluster.apiserver.handlers.reviews import Reviewer
from trainmaster.devcluster.apiserver.handlers.watch import Watcher
from trainmaster.devcluster.apiserver.handlers.write import Writer
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.negotiation import OBJECT, negotiate
from trainmaster.devcluster.apiserver.http.query import read_boolean, read_list_options
from trainmaster.devcluster.apiserver.http.request_info import RequestTarget, parse_target, verb_of
from trainmaster.devcluster.apiserver.http.responses import json_response, page_not_found
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.generic.log_source import LogSource

# Subresources of a real cluster that are not served here; asking for one deserves a better answer than "not found".
_NOT_IMPLEMENTED = frozenset(
    {
        "approval",
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "portforward",
        "proxy",
        "resize",
        "scale",
    }
)


class Dispatcher:
    """Answers every request below /api/v1 and /apis/<group>/<version>."""

    def __init__(
        self,
        api: Api,
        *,
        reader: Reader,
        writer: Writer,
        watcher: Watcher,
        reviewer: Reviewer,
        identity: Identity,
        log_source: LogSource | None,
    ) -> None:
        self._api = api
        self._reader = reader
        self._writer = writer
        self._watcher = watcher
        self._reviewer = reviewer
        self._identity = identity
        self._log_source = log_source

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        target = parse_target(request.rel_url.raw_path)
        if target is None:
            return page_not_found()
        if (review := self._reviewer.find(target)) is not None:
            if request.method != "POST":
                raise errors.method_not_allowed()
            body = await read_object(request, duplicates=None)
            answer = self._reviewer.answer(review, body, namespace=target.namespace, user=request[USER])
            return json_response(answer, status=201)
        kind = self._api.registry.find(target.group, target.version, target.plural)
        if kind is None or (target.namespace is not None and not kind.namespaced):
            if self._api.registry.is_built_in(target.group, target.version):
                raise errors.route_not_found()
            return page_not_found()
        if target.subresource is not None:
            return await self._handle_subresource(request, kind, target, target.subresource)
        return await self._handle_verb(request, kind, target)

    async def _handle_verb(self, request: web.Request, kind: Kind, target: RequestTarget) -> web.StreamResponse:
        watching = request.method == "GET" and read_boolean(request.query, "watch")
        verb = verb_of(request.method, named=target.name is not None, watching=watching)
        homeless = kind.namespaced and target.namespace is None
        if verb is None or verb not in kind.verbs or (homeless and verb not in {"list", "watch"}):
            raise errors.method_not_allowed()
        if verb == "deletecollection":
            selected = read_list_options(request.query, watching=False)
            return await self._writer.delete_collection(request, kind, target, selected=selected)
        presenter = self._presenter(request, kind)
        if verb == "watch":
            options = read_list_options(request.query, watching=True, name=target.name)
            return await self._watcher.serve(request, presenter, namespace=target.namespace, options=options)
        if target.name is None:
            if verb == "create":
                return await self._writer.create(request, presenter, target)
            options = read_list_options(request.query, watching=False)
            return await self._reader.list(request, presenter, namespace=target.namespace, options=options)
        return await self._handle_object(request, presenter, target, name=target.name)

    async def _handle_subresource(
        self, request: web.Request, kind: Kind, target: RequestTarget, subresource: str
    ) -> web.StreamResponse:
        if subresource not in kind.subresources:
            if subresource in _NOT_IMPLEMENTED:
                raise errors.not_implemented(f"the {subresource} subresource of {kind.resource}")
            return page_not_found()
        allowed = {"log": {"GET"}, "finalize": {"PUT"}, "token": {"POST"}}.get(subresource, {"GET", "PUT", "PATCH"})
        if request.method not in allowed:
            raise errors.method_not_allowed()
        name = target.name or ""
        if subresource == "token":
            return await self._identity.request_token(request, target)
        if subresource == "scale":
            return await self._writer.scale(request, kind, target, name=name)
        if subresource == "log":
            return await serve_log(request, self._api, self._log_source, namespace=target.namespace, name=name)
        return await self._handle_object(request, self._presenter(request, kind), target, name=name)

    async def _handle_object(
        self, request: web.Request, presenter: Presenter, target: RequestTarget, *, name: str
    ) -> web.Response:
        match request.method:
            case "PUT":
                return await self._writer.update(request, presenter, target, name=name)
            case "PATCH":
                return await self._writer.patch(request, presenter, target, name=name)
            case "DELETE":
                return await self._writer.delete(request, presenter, target, name=name)
        version = request.query.get("resourceVersion", "")
        return await self._reader.get(presenter, namespace=target.namespace, name=name, resource_version=version)

    def _presenter(self, request: web.Request, kind: Kind) -> Presenter:
        shape = negotiate(request.headers.get("Accept", ""))
        include: IncludeObject = "Metadata"
        if shape != OBJECT and (asked := request.query.get("includeObject")):
            if asked not in get_args(IncludeObject):
                raise errors.bad_request(f'includeObject: "{asked}" is none of {", ".join(get_args(IncludeObject))}')
            include = asked  # type: ignore[assignment]  # checked by the line above
        return Presenter(kind=kind, shape=shape, include=include, clock=self._api.clock)
