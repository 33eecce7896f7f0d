"""The taint eviction controller: pods leave a node whose taint has the effect NoExecute, unless they tolerate it.

- A pod that tolerates a taint for some seconds goes when these are over; of several taints the shortest time counts.
- A taint that is removed in time lets the pod stay.
- The pod gets the condition DisruptionTarget and an event TaintManagerEviction, and is deleted.
- The taints of nodes that are not ready are given by the node lifecycle controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.resources import NODES, PODS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.controllers.objects import is_active, is_terminating, parse_time
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

_COMPONENT: Final = "taint-eviction-controller"
_OPTIONS: Final = WriteOptions(field_manager="kube-controller-manager")
_EVICTED: Final = Disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")


class TaintEvictionController(SingleLoopController):
    """Deletes pods from tainted nodes; keys are pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods = Indexer(lambda pod: pod["spec"].get("nodeName"))
        self._events = EventRecorder(api, _COMPONENT)
        self._since: dict[tuple[str, str], datetime] = {}
        """Since when a pod, by uid, is known to be on a node with taints that are given no time, by their text."""
        self._loop = ControlLoop("tainteviction", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(PODS, self._pod_changed)
        self._loop.watch(NODES, self._node_changed)

    def _pod_changed(self, event: Event) -> None:
        node = event.record.object["spec"].get("nodeName")
        if event.type == "DELETED":
            uid = event.record.object["metadata"]["uid"]
            self._since = {key: at for key, at in self._since.items() if key[0] != uid}
        elif node and _taints(find(self._api, ObjectKey(NODES, "", node))):
            self._loop.add(event.key)

    def _node_changed(self, event: Event) -> None:
        if event.type != "DELETED" and (_taints(event.record.object) or event.previous is not None):
            for pod in self._pods.by_index(event.key.name):
                self._loop.add(key_of(PODS, pod))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        pod = find(self._api, key)
        if pod is None or not is_active(pod) or is_terminating(pod):
            return None
        node = find(self._api, ObjectKey(NODES, "", pod["spec"].get("nodeName") or ""))
        left = self._time_left(pod, _taints(node))
        if left is None:
            return None
        if left > 0:
            return left
        text = f"Marking for deletion Pod {key.namespace}/{key.name}"
        await self._events.record(pod, Note("Normal", "TaintManagerEviction", text))
        try:
            await disrupt(self._api, pod, _EVICTED, write=_OPTIONS)
        except StatusError as error:
            if error.code != 404:
                raise
        return None

    def _time_left(self, pod: JsonObject, taints: Sequence[JsonObject]) -> float | None:
        """Return for how many seconds a pod may stay; None: for ever."""
        uid, now = pod["metadata"]["uid"], self._api.clock()
        present = {_text(taint) for taint in taints}
        self._since = {key: at for key, at in self._since.items() if key[0] != uid or key[1] in present}
        left = []
        for taint in taints:
            seconds = tolerated_for(pod["spec"].get("tolerations") or (), taint)
            if seconds is None:
                continue
            since = self._since.setdefault((uid, _text(taint)), now)
            if taint.get("timeAdded"):
                since = parse_time(taint["timeAdded"])
            left.append((since + timedelta(seconds=seconds) - now).total_seconds())
        return min(left, default=None)


def _taints(node: JsonObject | None) -> list[JsonObject]:
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == "NoExecute"]


def _text(taint: JsonObject) -> str:
    return f"{taint.get('key')}={taint.get('value', '')}"


def tolerated_for(tolerations: Iterable[JsonObject], taint: JsonObject) -> float | None:
    """Return for how many seconds a taint with the effect NoExecute is tolerated; 0: not at all, None: for ever."""
    matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
    if not matching:
        return 0.0
    limits = [each["tolerationSeconds"] for each in matching if each.get("tolerationSeconds") is not None]
    return max(0.0, float(min(limits))) if limits else None


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Tell whether a toleration matches a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
