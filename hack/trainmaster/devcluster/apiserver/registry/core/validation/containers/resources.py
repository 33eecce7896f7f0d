"""Rules of resources: their names, amounts, requests against limits, and the claims of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    forbidden,
    invalid,
    label,
    one_of,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.labels import label_key_problems
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import qualified_name
from trainmaster.runtime.quantity import Quantity, QuantityError

_HUGE_PAGES = "hugepages-"
_COMPUTE = ("cpu", "memory")
_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
_STANDARD = frozenset(
    {
        *(f"{side}{name}" for side in ("", "requests.", "limits.") for name in _OF_CONTAINERS),
        *("storage", "requests.storage"),
        *_COUNTED,
    }
)
_POD_LEVEL = ("cpu", "hugepages-", "memory")

_NameRule: TypeAlias = Callable[[str, str], Iterator[FieldError]]


def is_native(name: str) -> bool:
    """Return whether a resource is one of Kubernetes itself."""
    return "/" not in name or "kubernetes.io/" in name


def is_huge_page(name: str) -> bool:
    """Return whether a resource is memory in pages of one size."""
    return name.startswith(_HUGE_PAGES)


def is_extended(name: str) -> bool:
    """Return whether a resource is one that a device plugin or an administrator gives, such as `nvidia.com/gpu`."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    """Return whether a limit may be above the request."""
    return is_native(name) and not is_huge_page(name)


def resource_name(path: str, name: str) -> Iterator[FieldError]:
    """Check the name of any resource."""
    problems = label_key_problems(name)
    if problems:
        yield from invalid(path, name, problems)
    elif "/" not in name and name not in _STANDARD and not name.startswith((_HUGE_PAGES, f"requests.{_HUGE_PAGES}")):
        yield FieldError(path, "Invalid", name, "must be a standard resource type or fully qualified")


def _container_resource(path: str, name: str) -> Iterator[FieldError]:
    yield from resource_name(path, name)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not is_huge_page(name):
            yield FieldError(path, "Invalid", name, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        yield FieldError(path, "Invalid", name, "doesn't follow extended resource name standard")


def _pod_resource(path: str, name: str) -> Iterator[FieldError]:
    yield from resource_name(path, name)
    if not is_huge_page(name):
        yield from one_of(path, name, _POD_LEVEL)


def amount(path: str, name: str, value: str) -> Iterator[FieldError]:
    """Check the amount of a resource."""
    quantity = Quantity.parse(value)
    if quantity.nano < 0:
        yield FieldError(path, "Invalid", value, "must be greater than or equal to 0")
    if (name in _COUNTED or is_extended(name)) and quantity.nano % 10**9:
        yield FieldError(path, "Invalid", value, "must be an integer")
    if is_huge_page(name) and not _divides(name.removeprefix(_HUGE_PAGES), quantity):
        yield FieldError(path, "Invalid", value, f"{value} is not positive integer multiple of {name}")


def _divides(size: str, quantity: Quantity) -> bool:
    try:
        page = Quantity.parse(size)
    except QuantityError:
        return False
    return page.nano > 0 and page.nano % 10**9 == 0 and quantity.ceil() % page.ceil() == 0


def validate_container_resources(path: str, resources: JsonObject, claims: set[str]) -> Iterator[FieldError]:
    """Check what a container asks for; `claims` are the names of the pod's resource claims."""
    if resources:
        yield from _requirements(path, resources, _container_resource)
        yield from _claim_names(f"{path}.claims", resources.get("claims") or [], claims)


def _requirements(path: str, resources: JsonObject, check_name: _NameRule) -> Iterator[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            here = f"{path}.{side}[{name}]"
            if name not in _COMPUTE:
                yield from check_name(here, name)
            yield from amount(here, name, value)
    for name, value in requests.items():
        if name in limits:
            yield from _request_and_limit(f"{path}.requests", name, value, limits[name])
        elif not may_overcommit(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    names = {*limits, *requests}
    if any(map(is_huge_page, names)) and names.isdisjoint(_COMPUTE):
        yield forbidden(path, "HugePages require cpu or memory")


def _request_and_limit(path: str, name: str, request: str, limit: str) -> Iterator[FieldError]:
    if request == limit:
        return
    requested, most = Quantity.parse(request), Quantity.parse(limit)
    if requested != most and not may_overcommit(name):
        yield FieldError(path, "Invalid", request, f"must be equal to {name} limit of {limit}")
    elif requested > most:
        yield FieldError(path, "Invalid", request, f"must be less than or equal to {name} limit of {limit}")


def _claim_names(path: str, given: list[JsonObject], claims: set[str]) -> Iterator[FieldError]:
    """Check that every claim exists and is used once: as a whole, or each of its requests."""
    seen: set[str] = set()
    for index, claim in enumerate(given):
        here = f"{path}[{index}]"
        name, request = claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(here)
            continue
        if name in seen:
            yield FieldError(here, "Duplicate", name)
        else:
            if request:
                yield from label(f"{here}.request", request)
            key = f"{name}/{request}" if request else name
            if key in seen:
                yield FieldError(here, "Duplicate", key)
            elif not request and any(each.partition("/")[0] == name for each in seen):
                yield FieldError(here, "Duplicate", name)
            seen.add(key)
        if name not in claims:
            which = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            yield FieldError(here, "NotFound", name, f"must be one of the names in pod.spec.resourceClaims{which}")


def validate_resource_claims(path: str, claims: list[JsonObject]) -> Iterator[FieldError]:
    """Check the claims of devices that a pod has."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here = f"{path}[{index}]"
        name = claim.get("name") or ""
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield FieldError(f"{here}.name", "Duplicate", name)
        else:
            yield from label(f"{here}.name", name)
            seen.add(name)
        sources = [
            field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field) is not None
        ]
        shown = {"Name": name} | {
            f"{field[0].upper()}{field[1:]}": claim.get(field)
            for field in ("resourceClaimName", "resourceClaimTemplateName")
        }
        if len(sources) > 1:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield FieldError(here, "Invalid", shown, text)
        elif not sources:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield FieldError(here, "Invalid", shown, text)
        for field in sources:
            yield from subdomain(f"{here}.{field}", claim[field])


def validate_pod_resources(path: str, spec: JsonObject, claims: set[str]) -> Iterator[FieldError]:
    """Check what a pod asks for as a whole: enough for its containers."""
    resources = spec.get("resources")
    if resources is None:
        return
    if resources.get("claims"):
        yield forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from _requirements(path, resources, _pod_resource)
    yield from _claim_names(f"{path}.claims", resources.get("claims") or [], claims)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, total in sorted(requested_by_containers(spec).items()):
        given = requests.get(name, "0")
        if _is_pod_level(name) and total > Quantity.parse(given):
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield FieldError(f"{path}.requests[{name}]", "Invalid", given, text)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and Quantity.parse(limit) > Quantity.parse(limits[name]):
                text = f"must be less than or equal to pod limits of {limits[name]}"
                yield FieldError(f"{path}.containers[{index}][{name}].limits", "Invalid", limit, text)


def _is_pod_level(name: str) -> bool:
    return name in _COMPUTE or is_huge_page(name)


def requested_by_containers(spec: JsonObject) -> dict[str, Quantity]:
    """Return what the containers of a pod ask for together: those that run at once, or a greater one before them."""
    totals: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(totals, container)
    sidecars: dict[str, Quantity] = {}
    most: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(totals, container)
            _add(sidecars, container)
            now = sidecars
        else:
            now = dict(sidecars)
            _add(now, container)
        for name, value in now.items():
            most[name] = max(most.get(name, value), value)
    for name, value in most.items():
        totals[name] = max(totals.get(name, value), value)
    return totals


def _add(totals: dict[str, Quantity], container: JsonObject) -> None:
    for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
        quantity = Quantity.parse(value)
        totals[name] = totals[name] + quantity if name in totals else quantity


def validate_overhead(path: str, overhead: JsonObject) -> Iterator[FieldError]:
    """Check what a runtime class adds to the needs of a pod."""
    # The real server takes it for the limits of a container.
    return _requirements(path, {"limits": overhead}, _container_resource)
