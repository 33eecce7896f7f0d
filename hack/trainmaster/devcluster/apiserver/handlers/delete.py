"""DELETE, of one object and of a collection."""

from __future__ import annotations

from aiohttp import web

from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder, without_type
from trainmaster.devcluster.apiserver.handlers.write_options import read_delete_options
from trainmaster.devcluster.apiserver.http.query import ListOptions
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject


async def delete_resource(
    api: Api, request: web.Request, encoder: ResponseEncoder, info: RequestInfo, *, name: str
) -> web.Response:
    """Handle a DELETE of one object: the object while it lingers, for most kinds a Status once it is gone."""
    options = await read_delete_options(request)
    kind = encoder.kind
    deleted, gone = await api.delete(kind.resource, info.namespace, name, options=options)
    shows_object = not gone or kind.strategy.return_deleted_object
    body = encoder.object(deleted) if shows_object else _success_status(kind.resource, deleted)
    return json_response(body, warnings=[*options.warnings, *_deletion_warnings(kind, options)])


async def delete_collection(
    api: Api, request: web.Request, kind: Kind, info: RequestInfo, *, selected: ListOptions
) -> web.Response:
    """Handle a DELETE of the selected objects with the list of them."""
    options = await read_delete_options(request)
    deleted = await api.delete_collection(
        kind.resource, info.namespace, labels=selected.labels, fields=selected.fields, options=options
    )
    metadata = {"resourceVersion": str(api.revision)}
    list_kind = kind.list_kind or f"{kind.kind}List"
    items = deleted if kind.custom else [without_type(each) for each in deleted]
    return json_response(
        {"kind": list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items},
        warnings=[*options.warnings, *_deletion_warnings(kind, options)],
    )


def _deletion_warnings(kind: Kind, options: DeleteOptions) -> list[str]:
    if not kind.strategy.orphans_by_default or options.propagation is not None:
        return []
    warning = (
        f"child pods are preserved by default when {kind.plural} are deleted; set propagationPolicy=Background to "
        "remove them or set propagationPolicy=Orphan to suppress this warning"
    )
    return [warning]


def _success_status(resource: GroupResource, deleted: JsonObject) -> JsonObject:
    metadata = deleted["metadata"]
    details = {"name": metadata["name"], "group": resource.group, "kind": resource.resource, "uid": metadata["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
