"""PUT and PATCH, of objects and of their scale subresource.

Guarantees:
- the options of a write are checked before its body is read.
"""

from __future__ import annotations

from aiohttp import web

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.handlers.create import read_strictly
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.handlers.write_options import invalid_options, read_patch_type, read_write_options
from trainmaster.devcluster.apiserver.http.bodies import decode_json, decode_yaml, read_body, read_object
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.registry.generic.scale import Scaler


async def update_resource(
    api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a PUT."""
    options = read_write_options(request, "UpdateOptions")
    body = await read_strictly(request, options)
    written, created = await api.put(
        encoder.kind.resource,
        body,
        namespace=info.namespace,
        name=name,
        subresource=info.subresource,
        options=options,
    )
    return json_response(encoder.object(written), status=201 if created else 200, warnings=options.warnings)


async def patch_resource(
    api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a PATCH of any type."""
    patch_type = read_patch_type(request)
    options = read_write_options(request, "PatchOptions")
    applying = patch_type is PatchType.APPLY
    if applying and not request.query.get("fieldManager"):
        raise invalid_options("PatchOptions", FieldError("fieldManager", "Required", "", "is required for apply patch"))
    if "force" in request.query and not applying:
        raise invalid_options(
            "PatchOptions", FieldError("force", "Forbidden", "", "may not be specified for non-apply patch")
        )
    content = await read_body(request)
    patched, created = await api.patch(
        encoder.kind.resource,
        info.namespace,
        name,
        decode_yaml(content) if applying else decode_json(content),
        patch_type=patch_type,
        subresource=info.subresource,
        options=options,
    )
    return json_response(encoder.object(patched), status=201 if created else 200, warnings=options.warnings)


async def serve_scale(
    scaler: Scaler, request: web.Request, kind: Kind, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a GET, PUT or PATCH of the scale subresource."""
    resource, namespace = kind.resource, info.namespace
    if request.method == "GET":
        return json_response(scaler.get(resource, namespace, name))
    if request.method == "PUT":
        options = read_write_options(request, "UpdateOptions")
        body = await read_object(request, duplicates=None)
        scale = await scaler.update(resource, namespace, name, body, options=options)
    else:
        patch_type = read_patch_type(request)
        options = read_write_options(request, "PatchOptions")
        patch = decode_json(await read_body(request))
        scale = await scaler.patch(resource, namespace, name, patch, patch_type=patch_type, options=options)
    return json_response(scale, warnings=options.warnings)
