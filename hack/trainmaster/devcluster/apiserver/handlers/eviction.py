"""POST to the eviction subresource of a pod, as `kubectl drain` does: the pod goes if its disruption budget allows it.

As in kube-apiserver, no budget holds a pod that has ended, has not started or is being deleted, and a budget that is
used up refuses with 429. What was allowed is counted in the status of the budget at once, so that two evictions side by
side do not both use the last one up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.handlers.write_options import (
    parse_delete_options,
    read_strictly,
    read_write_options,
)
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import POD_DISRUPTION_BUDGETS, PODS
from trainmaster.devcluster.apiserver.selectors import label_selector_from_object
from trainmaster.runtime.jsontree import JsonObject

_EVICTED: Final = Disruption("EvictionByEvictionAPI", "Eviction API: evicting")
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_RETRY_AFTER: Final = 10
_UNGUARDED: Final = frozenset({"Succeeded", "Failed", "Pending"})


async def evict_pod(api: Api, request: web.Request, info: RequestInfo) -> web.Response:
    """Handle the request: 201 if the pod is being deleted, 429 if it has to stay for now."""
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
    phase = (pod.get("status") or {}).get("phase", "Pending")
    if phase not in _UNGUARDED and "deletionTimestamp" not in pod["metadata"]:
        await _use_budget(api, pod, options)
    await disrupt(api, pod, _EVICTED, write=options, delete=replace(delete, dry_run=options.dry_run))
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    return json_response(status, status=201, warnings=options.warnings)


async def _use_budget(api: Api, pod: JsonObject, options: WriteOptions) -> None:
    """Take one disruption from the budget of a pod, if it has one."""
    labels = pod["metadata"].get("labels")
    namespace = pod["metadata"]["namespace"]
    records, _ = api.list(POD_DISRUPTION_BUDGETS, namespace)
    budgets = [
        record.object
        for record in records
        if label_selector_from_object(record.object["spec"].get("selector")).matches(labels)
    ]
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, "InternalError", text)
    for budget in budgets:
        changed = _one_less(budget, pod, timestamp(api.clock()))
        await api.update(POD_DISRUPTION_BUDGETS, changed, namespace=namespace, subresource="status", options=options)


def _one_less(budget: JsonObject, pod: JsonObject, now: str) -> JsonObject:
    """Return the budget after the eviction of a pod; raises the refusal."""
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise _refusal(f"The disruption budget {name} is still being processed by the server.")
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refusal(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    return {**budget, "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}}


def _refusal(why: str) -> StatusError:
    cause = {"reason": "DisruptionBudget", "message": why}
    return StatusError(429, "TooManyRequests", _REFUSED, details={"causes": [cause]}, retry_after=_RETRY_AFTER)
