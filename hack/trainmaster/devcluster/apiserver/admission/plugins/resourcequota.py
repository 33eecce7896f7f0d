"""Resource quotas: how many pods a namespace may have, and how much they may request together.

What is used is always counted from the stored pods, so it cannot drift; the status is for people to read. Between the
check of a pod and its storing an admission webhook may take its time, so pods that are created at the same moment can
together exceed a quota; a real server closes this gap, the embedded one does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.plugins.amounts import pod_limits
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation, WriteOptions
from trainmaster.devcluster.apiserver.resources import PODS, RESOURCE_QUOTAS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.client import find
from trainmaster.devcluster.controllers.loop import ControllerLoop, SingleLoop
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resources import Resources, pod_requests

_OPTIONS = WriteOptions(field_manager="resourcequota-controller")
_ALWAYS_ASKED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Amounts that every container has to name where there is a quota on them."""


def pod_admission(api: Api) -> AdmissionHook:
    """Return the hook for pods."""

    def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation == "CREATE":
            for record in api.store.list(RESOURCE_QUOTAS, pod["metadata"]["namespace"]):
                _check(api, pod, record.object)
        return pod

    return admit


def _check(api: Api, pod: JsonObject, quota: JsonObject) -> None:
    metadata, hard = pod["metadata"], _hard(quota)
    name = metadata.get("name", "")
    unnamed = _unnamed(pod["spec"], hard)
    if unnamed:
        parts = "; ".join(f"{amount} for: {','.join(containers)}" for amount, containers in sorted(unnamed.items()))
        text = f"failed quota: {quota['metadata']['name']}: must specify {parts}"
        raise errors.forbidden(text, resource=PODS, name=name)
    used, wanted = usage(_pods(api, metadata["namespace"]), hard), usage([pod], hard)
    exceeded = [each for each in sorted(hard) if wanted[each] and used[each] + wanted[each] > hard[each]]
    if exceeded:
        shown = (",".join(f"{each}={amounts[each]}" for each in exceeded) for amounts in (wanted, used, hard))
        requested, in_use, limited = shown
        text = (
            f"exceeded quota: {quota['metadata']['name']}, requested: {requested}, used: {in_use}, limited: {limited}"
        )
        raise errors.forbidden(text, resource=PODS, name=name)


def _unnamed(spec: JsonObject, hard: Iterable[str]) -> dict[str, list[str]]:
    """Return the amounts that a quota counts and some containers do not name."""
    found: dict[str, list[str]] = {}
    for amount in set(hard) & set(_ALWAYS_ASKED):
        part, name = _part_of(amount)
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
            if name not in ((container.get("resources") or {}).get(part) or {}):
                found.setdefault(amount, []).append(container["name"])
    return found


def _hard(quota: JsonObject) -> Resources:
    return {name: Quantity.parse(value) for name, value in (quota["spec"].get("hard") or {}).items()}


def usage(pods: Iterable[JsonObject], amounts: Iterable[str]) -> Resources:
    """Add up what pods use of the amounts that a quota names."""
    total = dict.fromkeys(amounts, Quantity.parse(0))
    for pod in pods:
        by_part = {"requests": pod_requests(pod["spec"]), "limits": pod_limits(pod["spec"])}
        for amount in total:
            if amount in ("pods", "count/pods"):
                total[amount] += Quantity.parse(1)
            else:
                part, name = _part_of(amount)
                total[amount] += by_part[part].get(name, Quantity.parse(0))
    return total


def _part_of(amount: str) -> tuple[str, str]:
    part, dot, name = amount.partition(".")
    return (part, name) if dot and part in ("requests", "limits") else ("requests", amount)


def _pods(api: Api, namespace: str) -> Iterator[JsonObject]:
    """Yield the pods that count: those that have not ended."""
    for record in api.store.list(PODS, namespace):
        if record.object.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            yield record.object


class QuotaController(SingleLoop):
    """Shows in the status of each quota what is used of it."""

    def __init__(self, api: Api, *, settings: ControllerSettings) -> None:
        self._api = api
        self._loop = ControllerLoop("resourcequota", self._reconcile, api=api, settings=settings)
        self._loop.watch_keys(RESOURCE_QUOTAS)
        self._loop.watch(PODS, self._pod_changed)

    def _pod_changed(self, event: Event) -> None:
        for record in self._api.store.list(RESOURCE_QUOTAS, event.key.namespace):
            self._loop.add(ObjectKey(RESOURCE_QUOTAS, event.key.namespace, record.metadata["name"]))

    async def _reconcile(self, key: ObjectKey) -> None:
        quota = find(self._api, key)
        if quota is None:
            return
        hard = _hard(quota)
        used = usage(_pods(self._api, key.namespace), hard)
        status = {
            "hard": {name: str(value) for name, value in hard.items()},
            "used": {name: str(value) for name, value in used.items()},
        }
        if status != quota.get("status"):
            await self._api.update(
                RESOURCE_QUOTAS,
                {**quota, "status": status},
                namespace=key.namespace,
                name=key.name,
                subresource="status",
                options=_OPTIONS,
            )
