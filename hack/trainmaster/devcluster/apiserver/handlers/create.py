"""POST: objects, and tokens of service accounts."""

from __future__ import annotations

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ServiceAccountTokens
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.filters.audit import log_created_name
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.handlers.write_options import read_strictly, read_write_options, warning
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.resources import PODS


async def create_resource(api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo) -> web.Response:
    """Handle a POST to a collection."""
    options = read_write_options(request, "CreateOptions")
    body, options = await read_strictly(request, options)
    log_created_name(request, body)
    with warning(options):
        created = await api.create(encoder.kind.resource, body, namespace=info.namespace, options=options)
    return json_response(encoder.object(created), status=201, warnings=options.warnings)


async def create_token(tokens: ServiceAccountTokens, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle a POST to the token subresource of a service account."""
    body = await read_object(request)
    return json_response(tokens.create(info.namespace or "", info.name or "", body), status=201)


async def bind_pod(api: Api, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle a POST to the binding subresource of a pod: give it the node that the body names."""
    body, options = await read_strictly(request, read_write_options(request, "CreateOptions"))
    target, metadata, name = body.get("target"), body.get("metadata") or {}, info.name or ""
    if body.get("kind", "Binding") != "Binding" or not isinstance(metadata, dict):
        raise errors.bad_request(f"a Binding gives a pod its node, not a {body.get('kind')}: send one")
    if metadata.get("name") not in (None, "", name):
        raise errors.bad_request("name in URL does not match name in Binding object")
    target = target if isinstance(target, dict) else {}
    problems = []
    if (kind := target.get("kind") or "Node") != "Node":
        problems.append(FieldError("target.kind", "NotSupported", kind, 'supported values: "Node", "<empty>"'))
    if not target.get("name"):
        problems.append(FieldError("target.name", "Required"))
    if problems:
        # The real server gives this error no reason, and so no better code.
        texts = [str(problem) for problem in problems]
        raise errors.StatusError(500, "", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    bound = {"spec": {"nodeName": str(target["name"])}}
    await api.patch(
        PODS, info.namespace, name, bound, patch_type=PatchType.MERGE, subresource="binding", options=options
    )
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return json_response(status, status=201, warnings=options.warnings)
