"""PodDisruptionBudgets: how many pods of a selection may be away at once."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.validation.fields import one_of
from trainmaster.devcluster.apiserver.registry.intorpercent import int_or_percent, scaled_value
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_COUNTS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")


class PodDisruptionBudgetStrategy(Strategy):
    """PodDisruptionBudgets."""

    has_generation = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Start with an empty spec."""
        obj.setdefault("spec", {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start with nothing counted, so that nothing may be disrupted."""
        obj["status"] = dict.fromkeys(_COUNTS, 0)

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what a status update must not change."""
        super().prepare_for_status_update(obj, old)
        status = obj.setdefault("status", {})
        for field in _COUNTS:
            status.setdefault(field, 0)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(_validate(obj["spec"]))


def _validate(spec: JsonObject) -> Iterator[FieldError]:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {field: spec[field] for field in ("minAvailable", "maxUnavailable")}
        yield FieldError("spec", "Invalid", shown, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        if field not in spec:
            continue
        yield from int_or_percent(f"spec.{field}", spec[field])
        if isinstance(spec[field], str) and scaled_value(spec[field], 100, round_up=False) > 100:
            yield FieldError(f"spec.{field}", "Invalid", spec[field], "must not be greater than 100%")
    yield from label_selector("spec.selector", spec.get("selector"))
    if "unhealthyPodEvictionPolicy" in spec:
        path = "spec.unhealthyPodEvictionPolicy"
        yield from one_of(path, spec["unhealthyPodEvictionPolicy"], ["AlwaysAllow", "IfHealthyBudget"])


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        strategy=PodDisruptionBudgetStrategy(),
        short_names=("pdb",),
        subresources=("status",),
        columns=printers.POD_DISRUPTION_BUDGETS,
    )
