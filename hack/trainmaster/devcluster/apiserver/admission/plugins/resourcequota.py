"""Resource quotas: what a namespace has may not become more than its quotas allow.

Looked at is every creation, last of all, when nothing that is awaited can come between the check and the store; so two
creations side by side never both take the last of a quota. What is used is counted from the objects that there are, not
from the status of the quota. Pods that have ended use nothing. What changes later (a resize) is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.plugins.limitranger import pod_limits
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.resources import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    GroupResource,
)
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests, sum_resources

_ONE: Final = Quantity.parse("1")
_ZERO: Final = Quantity.parse("0")
_BY_NAME: Final = {
    "configmaps": CONFIGMAPS,
    "persistentvolumeclaims": PERSISTENT_VOLUME_CLAIMS,
    "pods": PODS,
    "resourcequotas": RESOURCE_QUOTAS,
    "secrets": SECRETS,
    "services": SERVICES,
}
"""Resources that are counted under their plain names as well."""

_WITHOUT_PREFIX: Final = ("cpu", "memory", "ephemeral-storage")
"""Requests that quotas may name without `requests.` before them."""

_OF_CONTAINERS: Final = tuple(f"{part}{name}" for part in ("requests.", "limits.") for name in ("cpu", "memory"))
_COUNT: Final = "count/"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


def usage(resource: GroupResource, obj: JsonObject) -> Resources:
    """Return what an object uses, by the names that quotas have for it."""
    if resource == PODS and (obj.get("status") or {}).get("phase") in _ENDED:
        return {f"{_COUNT}pods": _ONE}
    used = {f"{_COUNT}{resource}": _ONE}
    if _BY_NAME.get(resource.resource) == resource:
        used[resource.resource] = _ONE
    if resource == PODS:
        requests = pod_requests(obj["spec"])
        used |= {f"requests.{name}": amount for name, amount in requests.items()}
        used |= {f"limits.{name}": amount for name, amount in pod_limits(obj["spec"]).items()}
        used |= {name: requests[name] for name in _WITHOUT_PREFIX if name in requests}
    elif resource == PERSISTENT_VOLUME_CLAIMS:
        storage = ((obj["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
        used["requests.storage"] = Quantity.parse(storage)
    return used


def used_in(store: Store, namespace: str, hard: Iterable[str]) -> Resources:
    """Return what a namespace uses of what a quota limits."""
    names = set(hard)
    parts = [
        usage(resource, record.object) for resource in counted(names) for record in store.list(resource, namespace)
    ]
    total = sum_resources(parts)
    return {name: total.get(name, _ZERO) for name in sorted(names)}


def counted(names: Iterable[str]) -> set[GroupResource]:
    """Return which resources have to be counted for the names of a quota."""
    found = set()
    for name in names:
        if name.startswith(_COUNT):
            plural, _, group = name.removeprefix(_COUNT).partition(".")
            found.add(GroupResource(group, plural))
        else:
            found.add(PERSISTENT_VOLUME_CLAIMS if name == "requests.storage" else _BY_NAME.get(name, PODS))
    return found


def quota_check(store: Store) -> Callable[[Kind, JsonObject], None]:
    """Return what refuses a creation that a quota of its namespace does not allow."""

    def check(kind: Kind, obj: JsonObject) -> None:
        namespace = obj["metadata"].get("namespace")
        if not kind.namespaced or not namespace:
            return
        new: Resources | None = None
        for record in store.list(RESOURCE_QUOTAS, namespace):
            new = usage(kind.stored_as, obj) if new is None else new
            _check(store, record.object, kind, obj, new)

    return check


def _check(store: Store, quota: JsonObject, kind: Kind, obj: JsonObject, new: Resources) -> None:
    name, hard = quota["metadata"]["name"], quota["spec"].get("hard") or {}
    if kind.stored_as == PODS and (missing := _unspecified(obj, hard)):
        text = f"failed quota: {name}: must specify {missing}"
        raise errors.forbidden(text, resource=kind.resource, name=obj["metadata"].get("name", ""))
    limits = {limited: Quantity.parse(hard[limited]) for limited in hard.keys() & new.keys()}
    if not limits:
        return
    used = used_in(store, obj["metadata"]["namespace"], limits)
    exceeded = [
        limited for limited in sorted(limits) if new[limited] and used[limited] + new[limited] > limits[limited]
    ]
    if exceeded:
        shown = [_listed(exceeded, amounts) for amounts in (new, used, limits)]
        text = f"exceeded quota: {name}, requested: {shown[0]}, used: {shown[1]}, limited: {shown[2]}"
        raise errors.forbidden(text, resource=kind.resource, name=obj["metadata"].get("name", ""))


def _unspecified(pod: JsonObject, hard: JsonObject) -> str:
    """Name the limited resources of which containers do not say how much they need."""
    found = []
    for limited in sorted(hard):
        full = limited if limited in _OF_CONTAINERS else f"requests.{limited}"
        if full not in _OF_CONTAINERS:
            continue
        part, _, resource = full.partition(".")
        without = [
            container["name"]
            for container in (*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ()))
            if resource not in ((container.get("resources") or {}).get(part) or {})
        ]
        if without:
            found.append(f"{limited} for: {','.join(sorted(without))}")
    return "; ".join(found)


def _listed(names: Iterable[str], amounts: Resources) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)
