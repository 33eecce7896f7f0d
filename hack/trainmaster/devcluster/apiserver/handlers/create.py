"""POST: objects, and tokens of service accounts."""

from __future__ import annotations

from aiohttp import web

from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.filters.audit import log_created_name
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.handlers.write_options import read_strictly, read_write_options
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry.generic import Api


async def create_resource(api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo) -> web.Response:
    """Handle a POST to a collection."""
    options = read_write_options(request, "CreateOptions")
    body, options = await read_strictly(request, options)
    log_created_name(request, body)
    created = await api.create(encoder.kind.resource, body, namespace=info.namespace, options=options)
    return json_response(encoder.object(created), status=201, warnings=options.warnings)


async def create_token(tokens: ServiceAccountTokens, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle a POST to the token subresource of a service account."""
    body = await read_object(request)
    return json_response(tokens.create(info.namespace or "", info.name or "", body), status=201)
