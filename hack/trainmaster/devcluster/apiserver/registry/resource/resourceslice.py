"""ResourceSlices. Devices with counters, taints or several allocations are answered with 501."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, immutable, too_many
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_MOST_DEVICES = 128


class ResourceSliceStrategy(Strategy):
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

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Refuse devices that are not served."""
        self.check_create(obj)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check driver, pool, nodes and the names of devices."""
        return list(_validate_spec(obj.get("spec") or {}))

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


def _validate_spec(spec: JsonObject) -> Iterator[FieldError]:
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
        yield too_many("spec.devices", errors.OMITTED, _MOST_DEVICES)
    seen: set[str] = set()
    for index, device in enumerate(devices):
        name = device.get("name", "")
        here = f"spec.devices[{index}].name"
        yield from (FieldError(here, "Invalid", name, problem) for problem in dns_label(name))
        if name in seen:
            yield FieldError(here, "Duplicate", name)
        seen.add(name)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "resource.k8s.io",
        "ResourceSlice",
        "resourceslices",
        strategy=ResourceSliceStrategy(),
        namespaced=False,
        columns=printers.RESOURCE_SLICES,
        field_labels=field_labels("spec.driver", "spec.nodeName"),
    )
