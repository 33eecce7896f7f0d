"""The quality of service class of a pod, which follows from what it asks for."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_COMPUTE = ("cpu", "memory")


def qos_class(spec: JsonObject) -> str:
    """Return the class: Guaranteed, Burstable or BestEffort; nothing counts as asked for if its amount is zero."""
    of_pod = spec.get("resources") or {}
    if of_pod.get("requests") or of_pod.get("limits"):
        asked = [of_pod]
    else:
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        asked = [container.get("resources") or {} for container in containers]
    if not any(map(bool, asked)):
        return "BestEffort"
    requests = _total(resources.get("requests") for resources in asked)
    limits = _total(resources.get("limits") for resources in asked)
    if not requests and not limits:
        return "BestEffort"
    complete = all(_total([resources.get("limits")]).keys() == set(_COMPUTE) for resources in asked)
    return "Guaranteed" if complete and requests == limits else "Burstable"


def _total(amounts: Iterable[JsonObject | None]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for each in amounts:
        for name in _COMPUTE:
            if each and name in each and (quantity := Quantity.parse(each[name])).nano > 0:
                total[name] = total[name] + quantity if name in total else quantity
    return total
