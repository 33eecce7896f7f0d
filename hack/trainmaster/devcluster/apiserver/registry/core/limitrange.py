"""LimitRanges, and their rules. What they do to pods and claims is a matter of admission."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, validate_nonnegative_quantity
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_WORDS = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}


def validate_limit_range(obj: JsonObject) -> list[FieldError]:
    """Check each limit by itself."""
    problems: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        kind = item.get("type", "")
        if kind in seen:
            problems.append(FieldError(f"{path}.type", "Duplicate", kind))
        seen.add(kind)
        problems += _validate_limit(item, path)
    return problems


def _validate_limit(item: JsonObject, path: str) -> list[FieldError]:
    fields = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    problems = [
        problem
        for field in fields
        for name, value in (item.get(field) or {}).items()
        for problem in validate_nonnegative_quantity(value, f"{path}.{field}[{name}]")
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


class LimitRangeStrategy(Strategy):
    """LimitRanges: an upper limit is also the default limit, and that the default request."""

    allow_create_on_update = True

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
        return validate_limit_range(obj)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "LimitRange",
        "limitranges",
        strategy=LimitRangeStrategy(),
        short_names=("limits",),
    )
