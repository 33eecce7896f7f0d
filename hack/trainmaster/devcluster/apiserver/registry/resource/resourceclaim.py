"""ResourceClaims of dynamic resource allocation (DRA, `resource.k8s.io/v1`).

Served: requests for an exact number of devices of a class, from classes that select by driver or not at all. A claim
that asks for anything else would wait for ever, so it is answered with 501: prioritized alternatives, all devices,
administrative access, selectors of a request, constraints, consumable capacity and tolerations.

The templates of claims share the spec of a claim: its defaults, what of it is served, and its rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, immutable, too_many
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_MOST_REQUESTS = 32
_UNSUPPORTED = {
    "adminAccess": "administrative access to devices",
    "capacity": "consumable capacity of devices",
    "derivedAttributes": "derived attributes of devices",
    "selectors": "selectors in requests for devices; select by the device class",
    "tolerations": "tolerations of device taints",
}


def default_claim_spec(spec: JsonObject) -> None:
    """Fill in how many devices the requests mean."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        if exactly is not None:
            exactly.setdefault("allocationMode", "ExactCount")
            if exactly["allocationMode"] == "ExactCount":
                exactly.setdefault("count", 1)


def check_claim_spec(spec: JsonObject) -> None:
    """Raise a StatusError for a claim that would never be allocated."""
    devices = spec.get("devices") or {}
    if devices.get("constraints"):
        raise errors.not_implemented("constraints between devices")
    for request in devices.get("requests") or ():
        if request.get("firstAvailable"):
            raise errors.not_implemented("prioritized alternatives of devices (firstAvailable)")
        exactly = request.get("exactly") or {}
        if exactly.get("allocationMode") == "All":
            raise errors.not_implemented("the allocation of all devices of a node (allocationMode All)")
        for field, what in _UNSUPPORTED.items():
            if exactly.get(field):
                raise errors.not_implemented(what)


def validate_claim_spec(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Check the requests and the configuration; `path` is that of `devices`."""
    requests = (spec.get("devices") or {}).get("requests") or []
    if len(requests) > _MOST_REQUESTS:
        yield too_many(f"{path}.requests", errors.OMITTED, _MOST_REQUESTS)
    seen: set[str] = set()
    for index, request in enumerate(requests):
        here = f"{path}.requests[{index}]"
        name = request.get("name", "")
        yield from (FieldError(f"{here}.name", "Invalid", name, problem) for problem in dns_label(name))
        if name in seen:
            yield FieldError(f"{here}.name", "Duplicate", name)
        seen.add(name)
        exactly = request.get("exactly")
        if exactly is None:
            detail = "exactly one of `exactly` or `firstAvailable` is required"
            yield FieldError(here, "Required", detail=detail)
            continue
        class_name = exactly.get("deviceClassName", "")
        if not class_name:
            yield FieldError(f"{here}.exactly.deviceClassName", "Required")
        for problem in dns_subdomain(class_name) if class_name else ():
            yield FieldError(f"{here}.exactly.deviceClassName", "Invalid", class_name, problem)
        mode = exactly["allocationMode"]
        if mode not in ("All", "ExactCount"):
            detail = 'supported values: "All", "ExactCount"'
            yield FieldError(f"{here}.exactly.allocationMode", "NotSupported", mode, detail)
        elif exactly.get("count", 1) <= 0:
            yield FieldError(f"{here}.exactly.count", "Invalid", exactly["count"], "must be greater than zero")
    known = [name for request in requests if (name := request.get("name"))]
    for index, config in enumerate((spec.get("devices") or {}).get("config") or ()):
        for number, name in enumerate(config.get("requests") or ()):
            if name not in known:
                detail = "must be the name of a request in the claim"
                yield FieldError(f"{path}.config[{index}].requests[{number}]", "Invalid", name, detail)


_MOST_CONSUMERS = 256


class ResourceClaimStrategy(Strategy):
    """ResourceClaims: what they ask for is fixed, who uses it is written to their status."""

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        default_claim_spec(obj.setdefault("spec", {}))

    def check_create(self, obj: JsonObject) -> None:
        """Refuse what would never be allocated."""
        check_claim_spec(obj.get("spec") or {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status."""
        obj["status"] = {}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check requests and consumers."""
        problems = list(validate_claim_spec(obj["spec"], "spec.devices"))
        if len((obj.get("status") or {}).get("reservedFor") or ()) > _MOST_CONSUMERS:
            problems.append(too_many("status.reservedFor", errors.OMITTED, _MOST_CONSUMERS))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another request."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep everything but the status."""
        super().prepare_for_status_update(obj, old)
        for field in ("annotations", "finalizers", "labels", "ownerReferences"):
            restore(obj["metadata"], old["metadata"], field)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "resource.k8s.io",
        "ResourceClaim",
        "resourceclaims",
        strategy=ResourceClaimStrategy(),
        subresources=("status",),
        columns=printers.RESOURCE_CLAIMS,
    )
