"""Limit ranges: defaults for containers that name no requests or limits, and bounds for what pods and claims ask for.

Only new objects are looked at, as by the LimitRanger plugin of the API server; its words are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS, GroupResource
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

_ANNOTATION = "kubernetes.io/limit-ranger"
_ROLES = (("containers", "container"), ("initContainers", "init container"))


def pod_admission(api: Api) -> AdmissionHook:
    """Return the hook for pods."""

    def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation != "CREATE":
            return pod
        items = _items(api, pod)
        for item in items:
            if item["type"] == "Container":
                _fill_in(pod, item)
        _refuse(PODS, pod, chain.from_iterable(_pod_problems(pod["spec"], item) for item in items))
        return pod

    return admit


def claim_admission(api: Api) -> AdmissionHook:
    """Return the hook for volume claims."""

    def admit(operation: Operation, claim: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation != "CREATE":
            return claim
        requests = _parsed(((claim.get("spec") or {}).get("resources") or {}).get("requests"))
        items = [item for item in _items(api, claim) if item["type"] == "PersistentVolumeClaim"]
        _refuse(PERSISTENT_VOLUME_CLAIMS, claim, chain.from_iterable(_bounds(item, requests, {}) for item in items))
        return claim

    return admit


def _items(api: Api, obj: JsonObject) -> list[JsonObject]:
    """Return all limits of the namespace."""
    ranges = (record.object for record in api.store.list(LIMIT_RANGES, obj["metadata"]["namespace"]))
    return [item for each in ranges for item in (each.get("spec") or {}).get("limits") or ()]


def _refuse(resource: GroupResource, obj: JsonObject, problems: Iterable[str]) -> None:
    texts = list(dict.fromkeys(problems))
    if texts:
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        raise errors.forbidden(text, resource=resource, name=obj["metadata"].get("name", ""))


def _fill_in(pod: JsonObject, item: JsonObject) -> None:
    """Give containers the requests and limits that they leave out, and note that in an annotation."""
    notes = []
    for field, role in _ROLES:
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for part, source in (("requests", "defaultRequest"), ("limits", "default")):
                own, defaults = resources.get(part) or {}, item.get(source) or {}
                missing = sorted(defaults.keys() - own.keys())
                if missing:
                    resources[part] = {**own, **copy_tree({name: defaults[name] for name in missing})}
                    notes.append(f"{', '.join(missing)} {part.removesuffix('s')} for {role} {container['name']}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _pod_problems(spec: JsonObject, item: JsonObject) -> Iterator[str]:
    match item["type"]:
        case "Container":
            for field, _ in _ROLES:
                for container in spec.get(field) or ():
                    resources = container.get("resources") or {}
                    yield from _bounds(item, _parsed(resources.get("requests")), _parsed(resources.get("limits")))
        case "Pod":
            # Overhead belongs to the node, not to what the author asks for.
            yield from _bounds(item, pod_requests({**spec, "overhead": {}}), pod_limits(spec))
        case _:
            pass


def _parsed(amounts: Mapping[str, Any] | None) -> Resources:
    return {name: Quantity.parse(value) for name, value in (amounts or {}).items()}


def pod_limits(spec: JsonObject) -> Resources:
    """Add up the limits of a pod, by the rules by which its requests are added up."""
    lists = {
        field: [_with_limits_as_requests(each) for each in spec.get(field) or ()]
        for field in ("containers", "initContainers")
    }
    return pod_requests({**_with_limits_as_requests(spec), **lists, "overhead": {}})


def _with_limits_as_requests(holder: JsonObject) -> JsonObject:
    """Return a pod spec or container that requests its limits."""
    return {**holder, "resources": {"requests": (holder.get("resources") or {}).get("limits") or {}}}


def _bounds(item: JsonObject, requests: Resources, limits: Resources) -> Iterator[str]:
    kind = item["type"]
    for name, bound in sorted(_parsed(item.get("min")).items()):
        text = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{text}.  No request is specified"
        elif requests[name] < bound:
            yield f"{text}, but request is {requests[name]}"
        elif name in limits and limits[name] < bound:
            yield f"{text}, but limit is {limits[name]}"
    for name, bound in sorted(_parsed(item.get("max")).items()):
        text = f"maximum {name} usage per {kind} is {bound}"
        if kind != "PersistentVolumeClaim" and name not in limits:
            yield f"{text}.  No limit is specified"
        elif name in limits and limits[name] > bound:
            yield f"{text}, but limit is {limits[name]}"
        elif name in requests and requests[name] > bound:
            yield f"{text}, but request is {requests[name]}"
    for name, bound in sorted(_parsed(item.get("maxLimitRequestRatio")).items()):
        text = f"{name} max limit to request ratio per {kind} is {bound}"
        if not requests.get(name):
            yield f"{text}, but no request is specified or request is 0"
        elif not limits.get(name):
            yield f"{text}, but no limit is specified or limit is 0"
        elif (ratio := limits[name].nano / requests[name].nano) > bound.nano / 10**9:
            yield f"{text}, but provided ratio is {ratio:f}"
