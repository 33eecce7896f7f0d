"""What a Service leads to: its EndpointSlices and its Endpoints, from the pods that its selector finds. Pure.

- A pod is listed as soon as it has an address, until it has ended or is gone. It is ready when its readiness says so
  and nobody asked for its deletion; a service that publishes addresses that are not ready calls all of them ready.
- A target port with a name is looked up in each pod: pods that give the name to different numbers are in different
  slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmaster.devcluster.controllers.objects import is_terminating, new_controller_ref
from trainmaster.devcluster.controllers.pods import is_ready, is_terminal
from trainmaster.runtime.jsontree import JsonObject

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER_NAME = "endpointslice-controller.k8s.io"
_HEADLESS = "service.kubernetes.io/headless"
_MOST_ENDPOINTS = 100
_MOST_ADDRESSES = 1000

Ports = tuple["Port", ...]


class Port(NamedTuple):
    """A port of a service as a pod has it."""

    name: str
    protocol: str
    port: int
    app_protocol: str


def is_listed(pod: JsonObject) -> bool:
    """Tell whether a pod is an endpoint of its services at all."""
    return bool(pod.get("status", {}).get("podIP")) and not is_terminal(pod)


def is_headless(service: JsonObject) -> bool:
    """Tell whether a service has no address of its own."""
    return bool(service["spec"].get("clusterIP") == "None")


def slices_of(service: JsonObject, pods: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the EndpointSlices that a service shall have, but for their names."""
    groups: dict[Ports, list[JsonObject]] = {}
    for pod in filter(is_listed, pods):
        groups.setdefault(_ports(service, pod), []).append(_endpoint(service, pod))
    if not groups:
        groups[()] = []  # that a service leads nowhere is said by a slice, too
    metadata = service["metadata"]
    labels = dict(metadata.get("labels") or {}) | {SERVICE_NAME: metadata["name"], MANAGED_BY: CONTROLLER_NAME}
    if is_headless(service):
        labels[_HEADLESS] = ""
    return [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "generateName": f"{metadata['name']}-",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [new_controller_ref(service)],
            },
            "addressType": "IPv4",
            "endpoints": part,
            "ports": [_slice_port(port) for port in ports],
        }
        for ports, endpoints in groups.items()
        for part in _chunks(endpoints)
    ]


def _chunks(endpoints: list[JsonObject]) -> Iterator[list[JsonObject]]:
    for start in range(0, max(len(endpoints), 1), _MOST_ENDPOINTS):
        yield endpoints[start : start + _MOST_ENDPOINTS]


def _ports(service: JsonObject, pod: JsonObject) -> Ports:
    found = []
    for port in service["spec"].get("ports") or ():
        number = _target(port, pod)
        if number is not None:
            protocol, application = port.get("protocol", "TCP"), port.get("appProtocol", "")
            found.append(Port(port.get("name", ""), protocol, number, application))
    return tuple(found)


def _target(port: JsonObject, pod: JsonObject) -> int | None:
    """Return the number of a target port in a pod; None if the pod does not know its name."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    # Init containers that stay have ports as well.
    staying = [each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"]
    for container in (*pod["spec"]["containers"], *staying):
        for declared in container.get("ports") or ():
            if declared.get("name") == target and declared.get("protocol", "TCP") == port.get("protocol", "TCP"):
                number: int = declared["containerPort"]
                return number
    return None


def _slice_port(port: Port) -> JsonObject:
    shown: JsonObject = {"name": port.name, "port": port.port, "protocol": port.protocol}
    return shown | ({"appProtocol": port.app_protocol} if port.app_protocol else {})


def _endpoint(service: JsonObject, pod: JsonObject) -> JsonObject:
    serving, terminating = is_ready(pod), is_terminating(pod)
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    endpoint: JsonObject = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {
            "ready": published or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": _reference(pod),
    }
    if node := pod["spec"].get("nodeName"):
        endpoint["nodeName"] = node
    if host := _hostname(service, pod):
        endpoint["hostname"] = host
    return endpoint


def _hostname(service: JsonObject, pod: JsonObject) -> str:
    """Return the name that a pod has below its headless service; empty if it has none."""
    host: str = pod["spec"].get("hostname") or ""
    return host if pod["spec"].get("subdomain") == service["metadata"]["name"] else ""


def _reference(pod: JsonObject) -> JsonObject:
    metadata = pod["metadata"]
    return {"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}


def endpoints_of(service: JsonObject, pods: Sequence[JsonObject]) -> JsonObject:
    """Return the Endpoints of a service; a pod that is being deleted is not among them."""
    groups: dict[Ports, JsonObject] = {}
    for pod in pods:
        if not is_listed(pod) or is_terminating(pod):
            continue
        ports = _ports(service, pod)
        if not ports and service["spec"].get("ports"):
            continue
        ready = is_ready(pod) or service["spec"].get("publishNotReadyAddresses")
        address: JsonObject = {"ip": pod["status"]["podIP"], "targetRef": _reference(pod)}
        if node := pod["spec"].get("nodeName"):
            address["nodeName"] = node
        if host := _hostname(service, pod):
            address["hostname"] = host
        subset = groups.setdefault(ports, {})
        addresses = subset.setdefault("addresses" if ready else "notReadyAddresses", [])
        if len(addresses) < _MOST_ADDRESSES:
            addresses.append(address)
    for ports, subset in groups.items():
        shown = [{key: value for key, value in _slice_port(port).items() if value} for port in ports]
        if shown:
            subset["ports"] = shown
    metadata = service["metadata"]
    labels = dict(metadata.get("labels") or {}) | {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    if is_headless(service):
        labels[_HEADLESS] = ""
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels},
        "subsets": list(groups.values()),
    }
