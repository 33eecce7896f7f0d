"""Strategies of the kinds of dynamic resource allocation (DRA, `resource.k8s.io/v1`).

Served: requests for an exact number of devices of a class, from classes that select by driver or not at all. A claim
that asks for anything else would wait for ever, so it is answered with 501: prioritized alternatives, all devices,
administrative access, selectors of a request, constraints, consumable capacity and tolerations.
"""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.names import dns_label, dns_subdomain
from trainmaster.devcluster.apiserver.registry.strategies.base import Strategy, immutable, restore
from trainmaster.runtime.jsontree import JsonObject

_LONGEST_LIST = 32
_MOST_DEVICES = 128
_MOST_CONSUMERS = 256
_UNSUPPORTED = {
    "adminAccess": "administrative access to devices",
    "capacity": "consumable capacity of devices",
    "derivedAttributes": "derived attributes of devices",
    "selectors": "selectors in requests for devices; select by the device class",
    "tolerations": "tolerations of device taints",
}
_BY_DRIVER = re.compile(r"""\s*device\.driver\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*""")


def selected_driver(selector: JsonObject) -> str | None:
    """Return the driver that a selector of a device class asks for; None if it asks for anything else."""
    match = _BY_DRIVER.fullmatch((selector.get("cel") or {}).get("expression", ""))
    return None if match is None else match[1] or match[2] or ""


class ClaimStrategy(Strategy):
    """ResourceClaims: what they ask for is fixed, who uses it is written to their status."""

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        _default_claim(obj.setdefault("spec", {}))

    def check_create(self, obj: JsonObject) -> None:
        """Refuse what would never be allocated."""
        _check_claim(obj.get("spec") or {})

    def prepare_create(self, obj: JsonObject) -> None:
        """Start without a status."""
        obj["status"] = {}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check requests and consumers."""
        problems = list(_claim_problems(obj["spec"], "spec.devices"))
        if len((obj.get("status") or {}).get("reservedFor") or ()) > _MOST_CONSUMERS:
            problems.append(_too_many("status.reservedFor", _MOST_CONSUMERS))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another request."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]

    def prepare_status(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep everything but the status."""
        super().prepare_status(obj, old)
        for field in ("annotations", "finalizers", "labels", "ownerReferences"):
            restore(obj["metadata"], old["metadata"], field)


class ClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplates never change."""

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        _default_claim(obj.setdefault("spec", {}).setdefault("spec", {}))

    def check_create(self, obj: JsonObject) -> None:
        """Refuse claims that would never be allocated."""
        _check_claim((obj.get("spec") or {}).get("spec") or {})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the requests."""
        return list(_claim_problems(obj["spec"]["spec"], "spec.spec.devices"))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse every change of the spec."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]


class DeviceClassStrategy(Strategy):
    """DeviceClasses select the devices of one driver, or all."""

    has_generation = True

    def default(self, obj: JsonObject) -> None:
        """Give every class a spec."""
        obj.setdefault("spec", {})

    def check_create(self, obj: JsonObject) -> None:
        """Refuse selectors that cannot be evaluated."""
        spec = obj.get("spec") or {}
        if spec.get("extendedResourceName"):
            raise errors.not_implemented("extended resources that are backed by device classes")
        for selector in spec.get("selectors") or ():
            if (selector.get("cel") or {}).get("expression") and selected_driver(selector) is None:
                raise errors.not_implemented('selectors of devices other than device.driver == "<driver>"')

    def prepare_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Refuse selectors that cannot be evaluated."""
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check that selectors say something."""
        selectors = obj["spec"].get("selectors") or []
        problems = [
            FieldError(f"spec.selectors[{index}].cel", "Required")
            for index, selector in enumerate(selectors)
            if not (selector.get("cel") or {}).get("expression")
        ]
        return problems + ([_too_many("spec.selectors", _LONGEST_LIST)] if len(selectors) > _LONGEST_LIST else [])


class SliceStrategy(Strategy):
    """ResourceSlices: devices of one driver in one pool, for one node, some nodes or all."""

    has_generation = True

    def check_create(self, obj: JsonObject) -> None:
        """Refuse devices that would have to be shared or bound in ways that are not served."""
        spec = obj.get("spec") or {}
        if spec.get("sharedCounters") or spec.get("perDeviceNodeSelection"):
            raise errors.not_implemented("shared counters and node selection of single devices")
        for device in spec.get("devices") or ():
            if device.get("consumesCounters") or device.get("allowMultipleAllocations") or device.get("taints"):
                raise errors.not_implemented("devices with counters, several allocations or taints")

    def prepare_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Refuse devices that are not served."""
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check driver, pool, nodes and the names of devices."""
        return list(_slice_problems(obj.get("spec") or {}))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to move the devices elsewhere."""
        new, before = obj["spec"], old["spec"]
        problems = [
            immutable(f"spec.{field}", new.get(field))
            for field in ("driver", "nodeName", "nodeSelector", "allNodes")
            if new.get(field) != before.get(field)
        ]
        if new["pool"]["name"] != before["pool"]["name"]:
            problems.append(immutable("spec.pool.name", new["pool"]["name"]))
        return problems


def _default_claim(spec: JsonObject) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        if exactly is not None:
            exactly.setdefault("allocationMode", "ExactCount")
            if exactly["allocationMode"] == "ExactCount":
                exactly.setdefault("count", 1)


def _check_claim(spec: JsonObject) -> None:
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


def _claim_problems(spec: JsonObject, path: str) -> Iterator[FieldError]:
    requests = (spec.get("devices") or {}).get("requests") or []
    if len(requests) > _LONGEST_LIST:
        yield _too_many(f"{path}.requests", _LONGEST_LIST)
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


def _slice_problems(spec: JsonObject) -> Iterator[FieldError]:
    pool = spec.get("pool") or {}
    for field, name in (("driver", spec.get("driver")), ("pool.name", pool.get("name"))):
        if not name:
            yield FieldError(f"spec.{field}", "Required")
        else:
            yield from (FieldError(f"spec.{field}", "Invalid", name, problem) for problem in dns_subdomain(name))
    count = pool.get("resourceSliceCount", 0)
    if count <= 0:
        yield FieldError("spec.pool.resourceSliceCount", "Invalid", count, "must be greater than zero")
    places = [field for field in ("nodeName", "nodeSelector", "allNodes") if spec.get(field)]
    if len(places) != 1:
        detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
        yield FieldError("spec", "Invalid" if places else "Required", errors.OMITTED if places else None, detail)
    devices = spec.get("devices") or []
    if len(devices) > _MOST_DEVICES:
        yield _too_many("spec.devices", _MOST_DEVICES)
    seen: set[str] = set()
    for index, device in enumerate(devices):
        name = device.get("name", "")
        here = f"spec.devices[{index}].name"
        yield from (FieldError(here, "Invalid", name, problem) for problem in dns_label(name))
        if name in seen:
            yield FieldError(here, "Duplicate", name)
        seen.add(name)


def _too_many(path: str, limit: int) -> FieldError:
    return FieldError(path, "TooMany", errors.OMITTED, f"must have at most {limit} items")
