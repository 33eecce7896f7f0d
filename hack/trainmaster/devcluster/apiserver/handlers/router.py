"""The resource handler: from the RequestInfo of a request to the handler of its verb.

Guarantees:
- a path that names nothing is 404, a verb that the resource lacks 405, a feature that only a real cluster has 501: the
  server never pretends to have done something.
"""

from __future__ import annotations

from typing import get_args

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.handlers.get import GetHandler
from trainmaster.devcluster.apiserver.handlers.pod_exec import ContainerExecutor, serve_exec
from trainmaster.devcluster.apiserver.handlers.pod_log import LogSource, serve_log
from trainmaster.devcluster.apiserver.handlers.proxy import ProxyHandler, ResourceLocator
from trainmaster.devcluster.apiserver.handlers.response import IncludeObject, ResponseEncoder
from trainmaster.devcluster.apiserver.handlers.reviews import ReviewHandler
from trainmaster.devcluster.apiserver.handlers.watch import WatchServer
from trainmaster.devcluster.apiserver.handlers.write import (
    bind_pod,
    create_resource,
    create_token,
    delete_collection,
    delete_resource,
    evict_pod,
    patch_resource,
    serve_scale,
    update_resource,
)
from trainmaster.devcluster.apiserver.http.negotiation import OBJECT, check_representations, negotiate_media_type
from trainmaster.devcluster.apiserver.http.query import read_boolean, read_list_options
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo, request_info_of, verb_of
from trainmaster.devcluster.apiserver.http.responsewriters import page_not_found
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.generic.scale import Scaler

# Subresources of a real cluster that are not served here; a request for one deserves a better error than "not found".
_NOT_IMPLEMENTED = frozenset(
    {
        "approval",
        "attach",
        "portforward",
        "proxy",  # of nodes; that of pods and Services is served
    }
)


_METHODS = {
    "log": {"GET"},
    "exec": {"GET", "POST"},
    "finalize": {"PUT"},
    "token": {"POST"},
    "binding": {"POST"},
    "eviction": {"POST"},
    "proxy": {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
}
"""Those of subresources that are not read and written as objects are."""


class ResourceHandler:
    """Handles every request below /api/v1 and /apis/<group>/<version>."""

    def __init__(
        self,
        api: Api,
        *,
        getter: GetHandler,
        watch_server: WatchServer,
        reviews: ReviewHandler,
        tokens: ServiceAccountTokens,
        log_source: LogSource | None,
        executor: ContainerExecutor | None,
        locator: ResourceLocator,
    ) -> None:
        self._api = api
        self._getter = getter
        self._watch_server = watch_server
        self._reviews = reviews
        self._tokens = tokens
        self._scaler = Scaler(api)
        self._log_source = log_source
        self._executor = executor
        self._proxy = ProxyHandler(api, locator)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle one request."""
        info = request_info_of(request)
        if info is None:
            return page_not_found()
        if (review := self._reviews.find(info)) is not None:
            return await self._reviews.create(request, review, info)
        kind = self._api.registry.find(info.group, info.version, info.resource)
        if kind is None or (info.namespace is not None and not kind.namespaced):
            if self._api.registry.is_built_in(info.group, info.version):
                raise errors.route_not_found()
            return page_not_found()
        if info.subresource is not None:
            return await self._handle_subresource(request, kind, info, info.subresource)
        return await self._handle_verb(request, kind, info)

    async def _handle_verb(self, request: web.Request, kind: Kind, info: RequestInfo) -> web.StreamResponse:
        # On the path of one object the parameter means nothing.
        watching = request.method == "GET" and info.name is None and read_boolean(request.query, "watch")
        verb = verb_of(request.method, named=info.name is not None, watching=watching)
        all_namespaces = kind.namespaced and info.namespace is None
        if verb is None or verb not in kind.verbs or (all_namespaces and verb not in {"list", "watch"}):
            raise errors.method_not_allowed()
        if verb == "deletecollection":
            selected = read_list_options(request.query, watching=False)
            return await delete_collection(self._api, request, kind, info, selected=selected)
        encoder = self._encoder(request, kind, collection=info.name is None, watching=watching)
        if verb == "watch":
            options = read_list_options(request.query, watching=True)
            return await self._watch_server.serve(request, encoder, namespace=info.namespace, options=options)
        if info.name is None:
            if verb == "create":
                return await create_resource(self._api, request, encoder, info)
            options = read_list_options(request.query, watching=False)
            return await self._getter.list(request, encoder, namespace=info.namespace, options=options)
        return await self._handle_object(request, encoder, info, name=info.name)

    async def _handle_subresource(
        self, request: web.Request, kind: Kind, info: RequestInfo, subresource: str
    ) -> web.StreamResponse:
        if subresource not in kind.subresources:
            if kind.custom:
                raise errors.not_found(kind.resource, info.name or "")
            if subresource in _NOT_IMPLEMENTED:
                raise errors.not_implemented(f"the {subresource} subresource of {kind.resource}")
            return page_not_found()
        if request.method not in _METHODS.get(subresource, {"GET", "PUT", "PATCH"}):
            raise errors.method_not_allowed()
        name = info.name or ""
        if subresource == "token":
            return await create_token(self._tokens, request, info)
        if subresource == "binding":
            return await bind_pod(self._api, request, info)
        if subresource == "eviction":
            return await evict_pod(self._api, request, info)
        if subresource == "scale":
            return await serve_scale(self._scaler, request, kind, info, name=name)
        if subresource == "log":
            return await serve_log(request, self._api, self._log_source, namespace=info.namespace, name=name)
        if subresource == "exec":
            return await serve_exec(request, self._api, self._executor, namespace=info.namespace, name=name)
        if subresource == "proxy":
            return await self._proxy.handle(request, kind.resource, namespace=info.namespace or "", identifier=name)
        return await self._handle_object(request, self._encoder(request, kind), info, name=name)

    async def _handle_object(
        self, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
    ) -> web.Response:
        match request.method:
            case "PUT":
                return await update_resource(self._api, request, encoder, info, name=name)
            case "PATCH":
                return await patch_resource(self._api, request, encoder, info, name=name)
            case "DELETE":
                return await delete_resource(self._api, request, encoder, info, name=name)
        version = request.query.get("resourceVersion", "")
        return await self._getter.get(encoder, namespace=info.namespace, name=name, resource_version=version)

    def _encoder(
        self, request: web.Request, kind: Kind, *, collection: bool = False, watching: bool = False
    ) -> ResponseEncoder:
        accept = request.headers.get("Accept", "")
        if not kind.custom:
            check_representations(accept, collection=collection and request.method == "GET")
        media_type = negotiate_media_type(accept, watching=watching)
        include: IncludeObject = "Metadata"
        if media_type.convert != OBJECT.convert and (wanted := request.query.get("includeObject")):
            if wanted not in get_args(IncludeObject):
                raise errors.bad_request(f'includeObject: "{wanted}" is none of {", ".join(get_args(IncludeObject))}')
            include = wanted  # type: ignore[assignment]  # checked by the line above
        return ResponseEncoder(kind=kind, media_type=media_type, include=include, clock=self._api.clock)
