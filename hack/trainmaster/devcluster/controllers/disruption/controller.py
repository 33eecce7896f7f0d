"""The disruption controller: the status of PodDisruptionBudgets, by which `kubectl get pdb` and drains decide.

How many pods there should be is known of those that belong to a ReplicaSet or a Deployment; of others it is only known
to a budget that counts what must be available. Evictions that were allowed count until their pods are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from trainmaster.devcluster.apiserver.errors import quote
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.intorpercent import scaled_value
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS
from trainmaster.devcluster.apiserver.selectors import label_selector_from_object
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.controller_ref_manager import owner_key
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.controllers.objects import find_condition, is_terminating, parse_time
from trainmaster.devcluster.controllers.pods import is_active, is_ready
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="disruption-controller")
_CONDITION = "DisruptionAllowed"
_DELETION_TIMEOUT = timedelta(minutes=2)
"""A pod that was to be evicted and is still there after that counts as healthy again."""


class _UnknownScale(Exception):
    """Nobody says how many pods there should be."""


class DisruptionController(SingleLoopController):
    """Counts the pods of each budget."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._budgets = Indexer(lambda obj: obj["metadata"]["namespace"])
        self._pods = Indexer(lambda obj: obj["metadata"]["namespace"])
        self._loop = ControlLoop("disruption", self._reconcile, api=api)
        self._loop.watch(POD_DISRUPTION_BUDGETS, self._budgets.observe)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch_keys(POD_DISRUPTION_BUDGETS)
        for resource in (PODS, REPLICA_SETS, DEPLOYMENTS):
            self._loop.watch(resource, self._namespace_changed)

    def _namespace_changed(self, event: Event) -> None:
        for budget in self._budgets.by_index(event.key.namespace):
            self._loop.add(key_of(POD_DISRUPTION_BUDGETS, budget))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        budget = find(self._api, key)
        if budget is None or is_terminating(budget):
            return None
        selector = label_selector_from_object(budget["spec"].get("selector"))
        pods = [
            pod
            for pod in self._pods.by_index(key.namespace)
            if is_active(pod) and selector.matches(pod["metadata"].get("labels"))
        ]
        status = self._status(budget, pods)
        if status != budget.get("status"):
            await self._api.update(
                POD_DISRUPTION_BUDGETS,
                {**budget, "status": status},
                namespace=key.namespace,
                name=key.name,
                subresource="status",
                options=_OPTIONS,
            )
        return _DELETION_TIMEOUT.total_seconds() if status.get("disruptedPods") else None

    def _status(self, budget: JsonObject, pods: Sequence[JsonObject]) -> JsonObject:
        disrupted = self._disrupted(budget, pods)
        healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
        try:
            expected, desired = self._expected(budget["spec"], pods)
        except _UnknownScale as problem:
            before = {field: value for field, value in budget["status"].items() if field != "conditions"}
            counts = {**before, "disruptionsAllowed": 0}
            return {**counts, "conditions": [self._condition(budget, False, "SyncFailed", str(problem))]}
        allowed = max(0, healthy - desired) if expected > 0 else 0
        return {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"]["generation"],
            **({"disruptedPods": disrupted} if disrupted else {}),
            "conditions": [
                self._condition(budget, allowed > 0, "SufficientPods" if allowed else "InsufficientPods", "")
            ],
        }

    def _disrupted(self, budget: JsonObject, pods: Sequence[JsonObject]) -> dict[str, str]:
        """Return the pods whose eviction was allowed, and when, as far as their deletion is still to come."""
        there, now = {pod["metadata"]["name"] for pod in pods}, self._api.clock()
        noted: dict[str, str] = budget["status"].get("disruptedPods") or {}
        return {name: at for name, at in noted.items() if name in there and now - parse_time(at) < _DELETION_TIMEOUT}

    def _expected(self, spec: JsonObject, pods: Sequence[JsonObject]) -> tuple[int, int]:
        """Return how many pods there should be, and how many of them have to be healthy."""
        least, most_away = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most_away is not None:
            scale = self._scale(pods)
            return scale, max(0, scale - scaled_value(most_away, scale, round_up=True))
        if least is None:
            least = 1
        if isinstance(least, str):
            scale = self._scale(pods)
            return scale, scaled_value(least, scale, round_up=True)
        return len(pods), least

    def _scale(self, pods: Sequence[JsonObject]) -> int:
        """Return how many pods the owners of these pods want together."""
        owners: dict[str, int] = {}
        for pod in pods:
            key = owner_key(pod, "ReplicaSet", REPLICA_SETS)
            owner = None if key is None else find(self._api, key)
            if owner is None:
                raise _UnknownScale(f"found no controllers for pod {quote(pod['metadata']['name'])}")
            above = owner_key(owner, "Deployment", DEPLOYMENTS)
            owner = (find(self._api, above) if above is not None else None) or owner
            owners[owner["metadata"]["uid"]] = owner["spec"]["replicas"]
        return sum(owners.values())

    def _condition(self, budget: JsonObject, allowed: bool, reason: str, message: str) -> JsonObject:
        value, known = "True" if allowed else "False", find_condition(budget, _CONDITION)
        since = timestamp(self._api.clock())
        if known is not None and known["status"] == value:
            since = known["lastTransitionTime"]
        return {
            "type": _CONDITION,
            "status": value,
            "observedGeneration": budget["metadata"]["generation"],
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
