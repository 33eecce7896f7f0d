"""The EndpointSlice controller: writes where the pods of each Service listen, and takes it back.

Services without a selector are left alone: whoever made them lists their endpoints. Slices go with their Service by
garbage collection; Endpoints, which have no owner, are deleted here.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.endpointslice.endpoints import (
    CONTROLLER_NAME,
    MANAGED_BY,
    SERVICE_NAME,
    endpoints_of,
    slices_of,
)
from trainmaster.devcluster.controllers.indexer import Indexer, delete, find
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="endpointslice-controller")
_ENDPOINTS_OPTIONS = WriteOptions(field_manager="endpoint-controller")
_IN_SLICES = ("addressType", "endpoints", "ports")

_Label = tuple[str, str, str]
"""Namespace, key and value."""


class _PodsByLabel:
    """Pods by each of their labels: a selector is asked for the pods with one of its labels, not for all there are."""

    def __init__(self) -> None:
        self._pods: dict[_Label, dict[ObjectKey, JsonObject]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change."""
        for record in (event.previous, event.record):
            for label in () if record is None else _labels(record.object):
                labelled = self._pods.get(label, {})
                labelled.pop(event.key, None)
                if not labelled:
                    self._pods.pop(label, None)
        if event.type != "DELETED":
            for label in _labels(event.record.object):
                self._pods.setdefault(label, {})[event.key] = event.record.object

    def selected(self, service: JsonObject) -> list[JsonObject]:
        """Return the pods that a service with a selector finds, by name."""
        wanted, namespace = service["spec"]["selector"].items(), service["metadata"]["namespace"]
        labelled = min((self._pods.get((namespace, *label), {}) for label in wanted), key=len)
        return [
            labelled[key]
            for key in sorted(labelled)
            if wanted <= (labelled[key]["metadata"].get("labels") or {}).items()
        ]


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
    """Keeps the EndpointSlices and the Endpoints of Services; keys are Services."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods = _PodsByLabel()
        self._services = Indexer(_selector_label)
        self._slices = Indexer(_service_of)
        self._loop = ControlLoop("endpointslice", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(SERVICES, self._services.observe)
        self._loop.watch(ENDPOINT_SLICES, self._slices.observe)
        self._loop.watch_keys(SERVICES)
        self._loop.watch(PODS, self._pod_changed)
        self._loop.watch(ENDPOINT_SLICES, self._slice_changed)
        self._loop.watch(ENDPOINTS, lambda event: self._loop.add(event.key._replace(resource=SERVICES)))

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
        if service is None:
            await self._remove_endpoints(key)
            return
        if is_terminating(service) or not service["spec"].get("selector"):
            return
        pods = self._pods.selected(service)
        await self._write_slices(service, slices_of(service, pods))
        await self._write_endpoints(endpoints_of(service, pods))

    async def _write_slices(self, service: JsonObject, wanted: list[JsonObject]) -> None:
        """Change the slices there are, those first that have the ports; then make the missing ones, delete the rest."""
        metadata = service["metadata"]
        present = self._slices.by_index((metadata["namespace"], metadata["name"]))
        present = [each for each in present if not is_terminating(each)]
        for piece in wanted:
            same = next((each for each in present if each.get("ports") == piece["ports"]), None)
            before = same or next(iter(present), None)
            if before is None:
                await self._api.create(ENDPOINT_SLICES, piece, namespace=metadata["namespace"], options=_OPTIONS)
                continue
            present.remove(before)
            labels = piece["metadata"]["labels"]
            if any(before.get(field) != piece[field] for field in _IN_SLICES) or before["metadata"]["labels"] != labels:
                changed = {**before, **{field: piece[field] for field in _IN_SLICES}}
                await self._update(ENDPOINT_SLICES, changed, labels)
        for each in present:
            await delete(self._api, ENDPOINT_SLICES, each)

    async def _write_endpoints(self, wanted: JsonObject) -> None:
        metadata = wanted["metadata"]
        before = find(self._api, ObjectKey(ENDPOINTS, metadata["namespace"], metadata["name"]))
        if before is None:
            options = _ENDPOINTS_OPTIONS
            await self._api.create(ENDPOINTS, wanted, namespace=metadata["namespace"], options=options)
        elif (before.get("subsets") or []) != wanted["subsets"] or before["metadata"].get("labels") != metadata[
            "labels"
        ]:
            await self._update(ENDPOINTS, {**before, "subsets": wanted["subsets"]}, metadata["labels"])

    async def _remove_endpoints(self, key: ObjectKey) -> None:
        left = find(self._api, key._replace(resource=ENDPOINTS))
        if left is not None:
            await delete(self._api, ENDPOINTS, left)

    async def _update(self, resource: GroupResource, obj: JsonObject, labels: JsonObject) -> None:
        metadata = {**obj["metadata"], "labels": labels}
        await self._api.update(
            resource,
            {**obj, "metadata": metadata},
            namespace=metadata["namespace"],
            name=metadata["name"],
            options=_OPTIONS if resource == ENDPOINT_SLICES else _ENDPOINTS_OPTIONS,
        )
