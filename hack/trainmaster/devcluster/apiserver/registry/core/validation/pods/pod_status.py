"""Rules of changes of the status of a pod."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, negative
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    address,
    forbidden,
    parse_address,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.labels import label_key
from trainmaster.runtime.jsontree import JsonObject

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")


def validate_pod_status_update(pod: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check a new status against the old one and the spec."""
    status, before, spec = pod.get("status") or {}, old.get("status") or {}, old["spec"]
    for index, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        if kind not in _SYSTEM_CONDITIONS:
            # The real server takes the conditions for a part of the metadata.
            yield from label_key(f"metadata.conditions[{index}].Type", kind)
        if (condition.get("observedGeneration") or 0) < 0:
            yield negative(f"status.conditions[{index}].observedGeneration", condition["observedGeneration"])
    if (status.get("observedGeneration") or 0) < 0:
        yield negative("status.observedGeneration", status["observedGeneration"])
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        yield from subdomain("status.nominatedNodeName", nominated)
    if (status.get("qosClass") or "") != (before.get("qosClass") or ""):
        yield immutable("status.qosClass", status.get("qosClass") or "")
    yield from _container_states(status, before, spec)
    yield from _claims("status.resourceClaimStatuses", status.get("resourceClaimStatuses") or [], spec)
    yield from _addresses("status.podIPs", status.get("podIPs") or [])
    yield from _host_addresses(status)
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for index, container in enumerate(status.get(field) or ()):
            yield from _user(f"status.{field}[{index}]", container, spec)


def _container_states(status: JsonObject, before: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    """Check that what ended for good does not come back."""
    policy = spec.get("restartPolicy")
    for field, containers, default in (
        ("containerStatuses", "containers", policy),
        ("initContainerStatuses", "initContainers", policy),
        ("ephemeralContainerStatuses", "ephemeralContainers", "Never"),
    ):
        known = {each.get("name"): each for each in spec.get(containers) or ()}
        for index, old in enumerate(before.get(field) or ()):
            ended = (old.get("state") or {}).get("terminated")
            container = known.get(old.get("name")) or {}
            restarts = container.get("restartPolicy") or default
            if ended is None or restarts == "Always" or container.get("restartPolicyRules"):
                continue
            if ended.get("exitCode") and restarts == "OnFailure":
                continue
            for new in status.get(field) or ():
                if new.get("name") == old.get("name") and (new.get("state") or {}).get("terminated") is None:
                    text = "may not be transitioned to non-terminated state"
                    yield forbidden(f"status.{field}[{index}].state", text)


def _claims(path: str, statuses: list[JsonObject], spec: JsonObject) -> Iterator[FieldError]:
    known = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for index, claim in enumerate(statuses):
        here, name = f"{path}[{index}].name", claim.get("name") or ""
        if name not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield FieldError(here, "Invalid", name, text)
        if name in seen:
            yield FieldError(here, "Duplicate", name)
        seen.add(name)
        if (made := claim.get("resourceClaimName")) is not None:
            yield from subdomain(here, made)


def _addresses(path: str, addresses: list[JsonObject]) -> Iterator[FieldError]:
    """Check that there is at most one address of each family."""
    given = [each.get("ip") or "" for each in addresses]
    for index, text in enumerate(given):
        yield from address(f"{path}[{index}]", text)
    if len(given) < 2:
        return
    families = {parsed.version for text in given if (parsed := parse_address(text)) is not None}
    if len(families) < 2 or len(given) > 2:
        shown = [{"IP": text} for text in given]
        yield FieldError(path, "Invalid", shown, "may specify no more than one IP for each IP family")
    for index, text in enumerate(given):
        if text in given[:index]:
            yield FieldError(f"{path}[{index}]", "Duplicate", {"IP": text})


def _host_addresses(status: JsonObject) -> Iterator[FieldError]:
    addresses = status.get("hostIPs") or []
    if not addresses:
        return
    first = addresses[0].get("ip") or ""
    if first != (status.get("hostIP") or ""):
        yield FieldError("status.hostIPs[0].ip", "Invalid", first, "must be equal to `hostIP`")
    yield from _addresses("status.hostIPs", addresses)


def _user(path: str, container: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    """Check as whom a container runs."""
    linux = (container.get("user") or {}).get("linux")
    if linux is None:
        return
    if ((spec.get("os") or {}).get("name")) == "windows":
        yield forbidden(f"{path}.linux", "cannot be set for a windows pod")
        return
    for field in ("uid", "gid"):
        value = linux.get(field) or 0
        if not 0 <= value < 2**31:
            text = "must be between 0 and 2147483647, inclusive"
            yield FieldError(f"{path}.linux.{field}", "Invalid", value, text)
    for index, group in enumerate(linux.get("supplementalGroups") or ()):
        if not 0 <= group < 2**31:
            text = "must be between 0 and 2147483647, inclusive"
            yield FieldError(f"{path}.linux.supplementalGroups[{index}]", "Invalid", group, text)
