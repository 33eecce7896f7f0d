"""POST to the eviction subresource of a pod, as `kubectl drain` does.

Disruption budgets are not asked: nothing in this cluster counts what they allow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.handlers.write_options import (
    parse_delete_options,
    read_strictly,
    read_write_options,
)
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.resources import PODS

_EVICTED: Final = Disruption("EvictionByEvictionAPI", "Eviction API: evicting")


async def evict_pod(api: Api, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle the request: the pod says why it goes, and is deleted."""
    body, options = await read_strictly(request, read_write_options(request, "CreateOptions"))
    metadata, name, namespace = body.get("metadata") or {}, info.name or "", info.namespace or ""
    if body.get("kind", "Eviction") != "Eviction" or not isinstance(metadata, dict):
        raise errors.bad_request(f"a pod is evicted by an Eviction, not by a {body.get('kind')}: send one")
    if metadata.get("name") not in (None, "", name):
        raise errors.bad_request("name in URL does not match name in Eviction object")
    given = body.get("deleteOptions") or {}
    if not isinstance(given, dict):
        raise errors.bad_request("deleteOptions must be an object")
    delete = parse_delete_options(given, user=options.user)
    options = replace(options, dry_run=options.dry_run or delete.dry_run)
    pod = api.get(PODS, namespace, name)
    if delete.uid not in (None, pod["metadata"]["uid"]):
        raise errors.conflict(PODS, name, f"the UID in the precondition ({delete.uid}) does not match that of the pod")
    await disrupt(api, pod, _EVICTED, write=options, delete=replace(delete, dry_run=options.dry_run))
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return json_response(status, status=201, warnings=options.warnings)
