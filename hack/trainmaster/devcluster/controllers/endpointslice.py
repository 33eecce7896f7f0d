"""The EndpointSlice controller: writes where the pods of each Service listen, and takes it back.

- A pod is listed as soon as it has an address, until it has ended or is gone. It is ready when its readiness says so
  and nobody asked for its deletion; a service that publishes addresses that are not ready calls all of them ready.
- A target port with a name is looked up in each pod: pods that give the name to different numbers are in different
  slices.
- Services without a selector are left alone: whoever made them lists their endpoints. Slices go with their Service by
  garbage collection. Endpoints, which Kubernetes has deprecated, are not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, PODS, SERVICES
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.indexer import Indexer, delete, find
from trainmaster.devcluster.controllers.objects import is_ready, is_terminal, is_terminating, new_controller_ref
from trainmaster.runtime.jsontree import JsonObject

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLER_NAME = "endpointslice-controller.k8s.io"
_HEADLESS = "service.kubernetes.io/headless"

Ports = tuple["Port", ...]

_OPTIONS = WriteOptions(field_manager="endpointslice-controller")
_IN_SLICES = ("addressType", "endpoints", "ports")

_Label = tuple[str, str, str]
"""Namespace, key and value."""


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
            "endpoints": endpoints,
            "ports": [_slice_port(port) for port in ports],
        }
        for ports, endpoints in groups.items()
    ]


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


def _labels(obj: JsonObject) -> list[_Label]:
    namespace = obj["metadata"]["namespace"]
    return [(namespace, key, value) for key, value in (obj["metadata"].get("labels") or {}).items()]


def _selector_label(service: JsonObject) -> _Label | None:
    """Return one label that all pods of a service have."""
    selector = service["spec"].get("selector")
    return (service["metadata"]["namespace"], *min(selector.items())) if selector else None


def _service_of(piece: JsonObject) -> tuple[str, str] | None:
    """Return namespace and name of the service of a slice that is ours."""
    labels = piece["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY) != CONTROLLER_NAME or SERVICE_NAME not in labels:
        return None
    return piece["metadata"]["namespace"], labels[SERVICE_NAME]


class EndpointSliceController(SingleLoopController):
    """Keeps the EndpointSlices of Services; keys are Services."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods = Indexer(_labels)
        self._services = Indexer(_selector_label)
        self._slices = Indexer(_service_of)
        self._loop = ControlLoop("endpointslice", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(SERVICES, self._services.observe)
        self._loop.watch(ENDPOINT_SLICES, self._slices.observe)
        self._loop.watch_keys(SERVICES)
        self._loop.watch(PODS, self._pod_changed)
        self._loop.watch(ENDPOINT_SLICES, self._slice_changed)

    def _pod_changed(self, event: Event) -> None:
        for record in (event.record, event.previous):
            for label in () if record is None else _labels(record.object):
                for service in self._services.by_index(label):
                    self._loop.add(key_of(SERVICES, service))

    def _slice_changed(self, event: Event) -> None:
        if found := _service_of(event.record.object):
            self._loop.add(ObjectKey(SERVICES, *found))

    async def _reconcile(self, key: ObjectKey) -> None:
        service = find(self._api, key)
        if service is not None and not is_terminating(service) and service["spec"].get("selector"):
            await self._write_slices(service, slices_of(service, self._selected(service)))

    def _selected(self, service: JsonObject) -> list[JsonObject]:
        """Return the pods that a service finds, by name; those with its rarest label are looked at, not all."""
        wanted, namespace = service["spec"]["selector"].items(), service["metadata"]["namespace"]
        labelled = min((self._pods.by_index((namespace, *label)) for label in wanted), key=len)
        return [pod for pod in labelled if wanted <= (pod["metadata"].get("labels") or {}).items()]

    async def _write_slices(self, service: JsonObject, wanted: list[JsonObject]) -> None:
        """Change the slices there are, those first that have the ports; then make the missing ones, delete the rest."""
        metadata = service["metadata"]
        present = self._slices.by_index((metadata["namespace"], metadata["name"]))
        present = [each for each in present if not is_terminating(each)]
        for piece in wanted:
            same = next((each for each in present if each.get("ports") == piece["ports"]), None)
            before = same or next(iter(present), None)
            if before is None:
                await self._api.create(ENDPOINT_SLICES, piece, options=_OPTIONS)
                continue
            present.remove(before)
            labels = piece["metadata"]["labels"]
            if any(before.get(field) != piece[field] for field in _IN_SLICES) or before["metadata"]["labels"] != labels:
                changed = {**before, **{field: piece[field] for field in _IN_SLICES}}
                changed["metadata"] = {**before["metadata"], "labels": labels}
                await self._api.update(ENDPOINT_SLICES, changed, options=_OPTIONS)
        for each in present:
            await delete(self._api, ENDPOINT_SLICES, each)
