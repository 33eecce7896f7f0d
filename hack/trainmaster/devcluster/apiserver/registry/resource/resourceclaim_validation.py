"""Rules of the spec of a ResourceClaim, which templates of claims share, and what of it this cluster serves. Pure.

A claim that asks for more than an exact number of devices of a class would wait for ever here: it is judged like any
other, and then answered with 501.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, too_many, unsupported
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_MOST_ITEMS = 32
_MOST_ALTERNATIVES = 8
_LONGEST_DRIVER = 63
_MODES = ["All", "ExactCount"]
_C_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_C_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_UNSUPPORTED = {
    "adminAccess": "administrative access to devices",
    "capacity": "consumable capacity of devices",
    "derivedAttributes": "derived attributes of devices",
    "selectors": "selectors in requests for devices; select by the device class",
    "tolerations": "tolerations of device taints",
}


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
    """Check requests, constraints and configurations of a spec with its defaults; `path` is that of `devices`."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    yield from _validate_list(requests, f"{path}.requests", _MOST_ITEMS, key="name")
    for index, request in enumerate(requests):
        yield from _validate_request(request, f"{path}.requests[{index}]")
    names = {request.get("name") for request in requests}
    names |= {f"{request.get('name')}/{each.get('name')}" for request in requests for each in _alternatives(request)}
    for index, constraint in enumerate(devices.get("constraints") or ()):
        here = f"{path}.constraints[{index}]"
        yield from _validate_references(constraint.get("requests") or [], names, f"{here}.requests")
        attribute = constraint.get("matchAttribute")
        if attribute is None:
            yield FieldError(f"{here}.matchAttribute", "Required")
        else:
            yield from _validate_attribute(attribute, f"{here}.matchAttribute")
    for index, config in enumerate(devices.get("config") or ()):
        here = f"{path}.config[{index}]"
        yield from _validate_references(config.get("requests") or [], names, f"{here}.requests")
        yield from _validate_opaque(config.get("opaque"), f"{here}.opaque")
    for field in ("constraints", "config"):
        yield from _validate_list(devices.get(field) or [], f"{path}.{field}", _MOST_ITEMS)


def _alternatives(request: JsonObject) -> list[JsonObject]:
    return request.get("firstAvailable") or []


def _validate_list(items: Sequence[Any], path: str, limit: int, *, key: str = "") -> Iterator[FieldError]:
    """Check the length of a list, and with a key that no two items have the same."""
    if len(items) > limit:
        yield too_many(path, len(items), limit)
    seen = set()
    for index, item in enumerate(items):
        name = item.get(key, "") if key else None
        if key and name in seen:
            yield FieldError(f"{path}[{index}].{key}", "Duplicate", name)
        seen.add(name)


def _validate_request(request: JsonObject, path: str) -> Iterator[FieldError]:
    yield from _validate_name(request.get("name", ""), f"{path}.name")
    exactly, alternatives = request.get("exactly"), _alternatives(request)
    if exactly is None and not alternatives:
        detail = "exactly one of `exactly` or `firstAvailable` is required"
        yield FieldError(path, "Required", detail=detail)
    elif exactly is not None and alternatives:
        detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        yield FieldError(path, "Invalid", None, detail)
    if exactly is not None:
        yield from _validate_devices(exactly, f"{path}.exactly")
    yield from _validate_list(alternatives, f"{path}.firstAvailable", _MOST_ALTERNATIVES, key="name")
    for index, alternative in enumerate(alternatives):
        here = f"{path}.firstAvailable[{index}]"
        yield from _validate_name(alternative.get("name", ""), f"{here}.name")
        yield from _validate_devices(alternative, here)


def _validate_name(name: str, path: str) -> Iterator[FieldError]:
    yield from (FieldError(path, "Invalid", name, problem) for problem in dns_label(name))


def _validate_devices(devices: JsonObject, path: str) -> Iterator[FieldError]:
    """Check which and how many devices are meant."""
    class_name = devices.get("deviceClassName", "")
    if not class_name:
        yield FieldError(f"{path}.deviceClassName", "Required")
    for problem in dns_subdomain(class_name) if class_name else ():
        yield FieldError(f"{path}.deviceClassName", "Invalid", class_name, problem)
    selectors = devices.get("selectors") or []
    yield from _validate_list(selectors, f"{path}.selectors", _MOST_ITEMS)
    for index, selector in enumerate(selectors):
        if "cel" not in selector:
            yield FieldError(f"{path}.selectors[{index}].cel", "Required")
        elif not selector["cel"].get("expression"):
            yield FieldError(f"{path}.selectors[{index}].cel.expression", "Required")
    mode, count = devices["allocationMode"], devices.get("count", 0)
    if mode not in _MODES:
        yield unsupported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        yield FieldError(f"{path}.count", "Invalid", count, detail)
    elif mode == "ExactCount" and count <= 0:
        yield FieldError(f"{path}.count", "Invalid", count, "must be greater than zero")


def _validate_references(references: list[str], names: set[str | None], path: str) -> Iterator[FieldError]:
    if len(references) > _MOST_ITEMS:
        yield too_many(path, len(references), _MOST_ITEMS)
    for index, reference in enumerate(references):
        here = f"{path}[{index}]"
        if reference in references[:index]:
            yield FieldError(here, "Duplicate", reference)
        segments = reference.split("/")
        problems = [each for part in segments for each in _validate_name(part, here)] if len(segments) < 3 else []
        yield from problems
        if not problems and reference not in names:
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            yield FieldError(here, "Invalid", reference, detail)


def _validate_attribute(name: str, path: str) -> Iterator[FieldError]:
    domain, slash, identifier = name.partition("/")
    if not name:
        yield FieldError(path, "Required", detail="name required")
    elif not slash:
        yield FieldError(path, "Invalid", name, "must include a domain")
    else:
        if not domain:
            yield FieldError(path, "Invalid", "", "the domain must not be empty")
        else:
            yield from _validate_driver(domain, path)
        if not identifier:
            yield FieldError(path, "Invalid", "", "the name must not be empty")
        elif not _C_IDENTIFIER.fullmatch(identifier):
            yield FieldError(path, "Invalid", identifier, _C_IDENTIFIER_TEXT)


def _validate_driver(driver: str, path: str) -> Iterator[FieldError]:
    if not driver:
        yield FieldError(path, "Required")
        return
    if len(driver) > _LONGEST_DRIVER:
        yield FieldError(path, "TooLong", detail=f"may not be more than {_LONGEST_DRIVER} bytes")
    yield from (FieldError(path, "Invalid", driver, problem) for problem in dns_subdomain(driver.lower()))


def _validate_opaque(opaque: JsonObject | None, path: str) -> Iterator[FieldError]:
    if opaque is None:
        yield FieldError(path, "Required")
        return
    yield from _validate_driver(opaque.get("driver", ""), f"{path}.driver")
    if opaque.get("parameters") is None:
        yield FieldError(f"{path}.parameters", "Required")
    elif not isinstance(opaque["parameters"], dict):
        yield FieldError(f"{path}.parameters", "Invalid", "<value omitted>", "must be a valid JSON object")


def validate_consumers(status: JsonObject) -> Iterator[FieldError]:
    """Check who a claim is reserved for, according to its status."""
    path, limit = "status.reservedFor", 256
    consumers = status.get("reservedFor") or []
    if len(consumers) > limit:
        yield too_many(path, len(consumers), limit)
    if consumers and "allocation" not in status:
        yield FieldError(path, "Forbidden", detail="may not be specified when `allocated` is not set")
    for index, consumer in enumerate(consumers):
        for field in ("resource", "name", "uid"):
            if not consumer.get(field):
                yield FieldError(f"{path}[{index}].{field}", "Required")
