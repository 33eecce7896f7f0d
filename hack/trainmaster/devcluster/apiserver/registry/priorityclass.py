"""PriorityClasses. What they do to a pod is a matter of admission."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes that every cluster has, and which alone may be named and valued like this."""
_SYSTEM_PREFIX = "system-"
HIGHEST_USER_PRIORITY = 1_000_000_000
_PREEMPTION_POLICIES = ["Never", "PreemptLowerPriority"]


class PriorityClassStrategy(Strategy):
    """PriorityClasses: the value is fixed, and so is the generation."""

    has_generation = True
    required_by_schema = False

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
        problems = []
        if name.startswith(_SYSTEM_PREFIX):
            if SYSTEM_PRIORITIES.get(name) != value:
                known = f"value of {name} must be {SYSTEM_PRIORITIES[name]}" if name in SYSTEM_PRIORITIES else None
                problem = known or f"{name} is not a known system priority class"
                detail = (
                    f"priority class names with '{_SYSTEM_PREFIX}' prefix are reserved for system use only. error: "
                )
                problems.append(FieldError("metadata.name", "Forbidden", detail=detail + problem))
        elif value > HIGHEST_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            problems.append(FieldError("value", "Forbidden", detail=detail))
        if not obj["preemptionPolicy"]:
            problems.append(FieldError("preemptionPolicy", "Required"))
        elif obj["preemptionPolicy"] not in _PREEMPTION_POLICIES:
            problems.append(unsupported("preemptionPolicy", obj["preemptionPolicy"], _PREEMPTION_POLICIES))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another value."""
        problems = []
        if obj["value"] != old["value"]:
            problems.append(FieldError("value", "Forbidden", detail="may not be changed in an update."))
        if obj["preemptionPolicy"] != old["preemptionPolicy"]:
            problems.append(immutable("preemptionPolicy", obj["preemptionPolicy"]))
        return problems


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        strategy=PriorityClassStrategy(),
        namespaced=False,
        short_names=("pc",),
        columns=printers.PRIORITY_CLASSES,
    )
