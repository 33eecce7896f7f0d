"""Strategies of the kinds that shape and limit pods: priority classes, runtime classes and limit ranges.

What they do to a pod is a matter of admission, see `apiserver.admission.plugins`.
"""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.names import dns_label
from trainmaster.devcluster.apiserver.registry.strategies.base import Strategy, immutable
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has, and which alone may be named and valued like this."""

_SYSTEM_PREFIX = "system-"
_HIGHEST_PRIORITY = 1_000_000_000


class PriorityClassStrategy(Strategy):
    """PriorityClasses: the value is fixed, and so is the generation."""

    has_generation = True

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether the desired state changed."""
        return False

    def default(self, obj: JsonObject) -> None:
        """Fill in the preemption policy."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj.setdefault("value", 0)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Keep the highest priorities for the system."""
        name, value = obj["metadata"].get("name", ""), obj["value"]
        if name.startswith(_SYSTEM_PREFIX):
            if SYSTEM_PRIORITIES.get(name) == value:
                return []
            known = f"value of {name} must be {SYSTEM_PRIORITIES[name]}" if name in SYSTEM_PRIORITIES else None
            problem = known or f"{name} is not a known system priority class"
            detail = f"priority class names with '{_SYSTEM_PREFIX}' prefix are reserved for system use only. error: "
            return [FieldError("metadata.name", "Forbidden", detail=detail + problem)]
        if value > _HIGHEST_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
            return [FieldError("value", "Forbidden", detail=detail)]
        return []

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another value."""
        return [
            FieldError(field, "Forbidden", detail="may not be changed in an update.")
            for field in ("value", "preemptionPolicy")
            if obj.get(field) != old.get(field)
        ]


class RuntimeClassStrategy(Strategy):
    """RuntimeClasses: what their pods cost on top is counted; the handler itself does nothing here."""

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check handler and overhead."""
        handler = obj.get("handler", "")
        problems = [FieldError("handler", "Invalid", handler, problem) for problem in dns_label(handler)]
        overhead = (obj.get("overhead") or {}).get("podFixed") or {}
        return problems + [
            problem for name, value in overhead.items() for problem in _amount_problems(value, f"overhead.{name}")
        ]

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another handler."""
        handler = obj.get("handler")
        return [] if handler == old.get("handler") else [immutable("handler", handler)]


class LimitRangeStrategy(Strategy):
    """LimitRanges: an upper limit is also the default limit, and that the default request."""

    creates_on_update = True

    def default(self, obj: JsonObject) -> None:
        """Derive the defaults that are left out from those that are given."""
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            for field, source in (("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")):
                if item.get(source):
                    item[field] = {**item[source], **(item.get(field) or {})}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check each limit by itself."""
        problems: list[FieldError] = []
        seen: set[str] = set()
        for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
            path = f"spec.limits[{index}]"
            kind = item.get("type", "")
            if kind in seen:
                problems.append(FieldError(f"{path}.type", "Duplicate", kind))
            seen.add(kind)
            problems += _limit_problems(item, path)
        return problems


def _amount_problems(value: str | float, path: str) -> Iterator[FieldError]:
    amount = Quantity.parse(value)
    if amount < Quantity.parse(0):
        yield FieldError(path, "Invalid", str(amount), "must be greater than or equal to 0")


def _limit_problems(item: JsonObject, path: str) -> list[FieldError]:
    fields = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    problems = [
        problem
        for field in fields
        for name, value in (item.get(field) or {}).items()
        for problem in _amount_problems(value, f"{path}.{field}[{name}]")
    ]
    if problems:
        return problems
    if item.get("type") == "Pod":
        problems += [
            FieldError(f"{path}.{field}", "Forbidden", detail="may not be specified when `type` is 'Pod'")
            for field in ("default", "defaultRequest")
            if item.get(field)
        ]
    storage = any("storage" in (item.get(field) or {}) for field in ("max", "min"))
    if item.get("type") == "PersistentVolumeClaim" and not storage:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        problems.append(FieldError(f"{path}.limits", "Required", detail=detail))
    # Each pair: what may not be larger, than what, and which of the two is at fault.
    for smaller, larger, blamed in (
        ("min", "max", "min"),
        ("min", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "max", "defaultRequest"),
        ("defaultRequest", "default", "defaultRequest"),
        ("min", "default", "default"),
        ("default", "max", "default"),
    ):
        low, high = item.get(smaller) or {}, item.get(larger) or {}
        for name in sorted(low.keys() & high.keys()):
            if Quantity.parse(low[name]) > Quantity.parse(high[name]):
                detail = f"{_WORDS[smaller]} value {low[name]} is greater than {_WORDS[larger]} value {high[name]}"
                value = (item[blamed])[name]
                problems.append(FieldError(f"{path}.{blamed}[{name}]", "Invalid", value, detail))
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        if Quantity.parse(ratio) < Quantity.parse(1):
            where = f"{path}.maxLimitRequestRatio[{name}]"
            problems.append(FieldError(where, "Invalid", ratio, f"ratio {ratio} is less than 1"))
    return problems


_WORDS = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}
