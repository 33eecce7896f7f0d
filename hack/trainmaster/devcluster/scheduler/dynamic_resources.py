"""The dynamic resources plugin: free devices for claims, an exact number of a class, on one node, all or none.

What is taken is read from the stored claims, so nothing is lost by a restart and no device is given out twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.resource.deviceclass import selected_driver
from trainmaster.devcluster.apiserver.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.controllers.resourceclaim.claims import claim_names, consumer_reference, reserved_for
from trainmaster.devcluster.scheduler.filters import matches_node_selector
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_MOST_CONSUMERS = 256


class Unallocatable(Exception):
    """No node can satisfy the claims of a pod as things are; the text is for its author."""


class Device(NamedTuple):
    """The full name of a device."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What a claim's status has to become before its pod is bound."""

    claim: JsonObject
    status: JsonObject
    devices: tuple[Device, ...] = ()
    """Those that are taken by this allocation; none if the claim had its devices before."""


class DeviceAllocator:
    """Allocates devices for one pod after the other, in memory; what is assumed is taken for those that follow."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._allocated: set[Device] | None = None
        self._assumed: dict[str, JsonObject] = {}
        """Statuses of claims, by uid, as they would be after what was assumed."""

    def claims_of(self, pod: JsonObject) -> list[JsonObject]:
        """Return the claims of a pod; raises `Unallocatable` if one of them cannot be used."""
        found = []
        for entry, name in claim_names(pod):
            if name is None:
                raise Unallocatable(f"waiting for the resource claim of {entry['name']} to be created")
            record = self._api.store.get(ObjectKey(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name))
            if record is None:
                raise Unallocatable(f'resourceclaim "{name}" not found')
            claim = record.object
            if is_terminating(claim):
                raise Unallocatable(f'resourceclaim "{name}" is being deleted')
            for request in (claim["spec"].get("devices") or {}).get("requests") or ():
                self._device_class(request)
            found.append(claim)
        return found

    def allocate(self, pod: JsonObject, claims: Sequence[JsonObject], node: JsonObject) -> list[ClaimAllocation] | None:
        """Return what has to be written for the pod to run on the node; None if that is impossible."""
        allocations = []
        taken: set[Device] = set()
        for claim in claims:
            status: JsonObject = self._assumed.get(claim["metadata"]["uid"]) or claim.get("status") or {}
            devices: tuple[Device, ...] = ()
            if "allocation" not in status:
                results = self._results(claim, node, taken)
                if results is None:
                    return None
                devices = tuple(Device(each["driver"], each["pool"], each["device"]) for each in results)
                taken.update(devices)
                status = {**status, "allocation": _allocation(claim, results, node)}
            elif not _reaches(status["allocation"], node):
                return None
            if all(each["uid"] != pod["metadata"]["uid"] for each in reserved_for({"status": status})):
                status = {**status, "reservedFor": [*reserved_for({"status": status}), consumer_reference(pod)]}
                if len(status["reservedFor"]) > _MOST_CONSUMERS:
                    return None
            allocations.append(ClaimAllocation(claim, status, devices))
        return allocations

    def assume(self, allocations: Iterable[ClaimAllocation]) -> None:
        """Take what was found away from those that follow."""
        for allocation in allocations:
            self._in_use().update(allocation.devices)
            self._assumed[allocation.claim["metadata"]["uid"]] = allocation.status

    def _results(self, claim: JsonObject, node: JsonObject, taken: set[Device]) -> list[JsonObject] | None:
        results: list[JsonObject] = []
        chosen = set(taken)
        for request in (claim["spec"].get("devices") or {}).get("requests") or ():
            free = (device for device in self._devices_for(request, node) if device not in chosen)
            for _ in range(request["exactly"]["count"]):
                device = next(free, None)
                if device is None:
                    return None
                chosen.add(device)
                results.append(
                    {"request": request["name"], "driver": device.driver, "pool": device.pool, "device": device.name}
                )
        return results

    def _devices_for(self, request: JsonObject, node: JsonObject) -> Iterator[Device]:
        """Yield the free devices of the requested class that the node reaches, by name."""
        selectors = self._device_class(request)["spec"].get("selectors") or ()
        drivers = {selected_driver(selector) for selector in selectors}
        for record in self._api.store.list(RESOURCE_SLICES):
            spec = record.object["spec"]
            if any(driver != spec["driver"] for driver in drivers) or not _offers(spec, node):
                continue
            for each in spec.get("devices") or ():
                device = Device(spec["driver"], spec["pool"]["name"], each["name"])
                if device not in self._in_use():
                    yield device

    def _device_class(self, request: JsonObject) -> JsonObject:
        name = request["exactly"]["deviceClassName"]
        record = self._api.store.get(ObjectKey(DEVICE_CLASSES, "", name))
        if record is None:
            raise Unallocatable(f"request {request['name']}: device class {name} does not exist")
        return record.object

    def _in_use(self) -> set[Device]:
        if self._allocated is None:
            self._allocated = {
                Device(each["driver"], each["pool"], each["device"])
                for record in self._api.store.list(RESOURCE_CLAIMS)
                for each in (
                    record.object.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or ()
                )
            }
        return self._allocated


def _offers(spec: JsonObject, node: JsonObject) -> bool:
    """Tell whether the devices of a slice can be used from the node."""
    if spec.get("allNodes"):
        return True
    if "nodeName" in spec:
        return bool(spec["nodeName"] == node["metadata"]["name"])
    return matches_node_selector(spec.get("nodeSelector"), node)


def _reaches(allocation: JsonObject, node: JsonObject) -> bool:
    return "nodeSelector" not in allocation or matches_node_selector(allocation["nodeSelector"], node)


def _allocation(claim: JsonObject, results: list[JsonObject], node: JsonObject) -> JsonObject:
    devices: JsonObject = {"results": results}
    config = (claim["spec"].get("devices") or {}).get("config")
    if config:
        devices["config"] = [{"source": "FromClaim", **copy_tree(each)} for each in config]
    here = {"key": "metadata.name", "operator": "In", "values": [node["metadata"]["name"]]}
    return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]}}
