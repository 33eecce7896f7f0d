"""HorizontalPodAutoscalers. They are stored and served; nothing here measures pods, so nothing scales by them."""

# ruff: noqa: ARG002 - the arguments are those of every strategy

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.autoscaling.horizontalpodautoscaler_validation import validate_spec
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.validation.fields import not_negative
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_DEFAULT_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_DEFAULT_PERIOD = 15


def _all_pods() -> JsonObject:
    return {"type": "Percent", "value": 100, "periodSeconds": _DEFAULT_PERIOD}


class HorizontalPodAutoscalerStrategy(Strategy):
    """HorizontalPodAutoscalers; the server counts no generations of them."""

    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the smallest number of pods, the metric, and the behavior if some of it is given."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("scaleTargetRef", {})
        spec.setdefault("maxReplicas", 0)
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            spec["metrics"] = [_DEFAULT_METRIC]
        behavior = spec.get("behavior")
        if behavior is not None:
            up: dict[str, Any] = {
                "stabilizationWindowSeconds": 0,
                "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": _DEFAULT_PERIOD}, _all_pods()],
            }
            down: dict[str, Any] = {"selectPolicy": "Max", "policies": [_all_pods()]}
            behavior["scaleUp"] = up | (behavior.get("scaleUp") or {})
            behavior["scaleDown"] = down | (behavior.get("scaleDown") or {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start with nothing measured."""
        obj["status"] = {"currentMetrics": None, "desiredReplicas": 0}

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what a status update must not change."""
        super().prepare_for_status_update(obj, old)
        obj["status"] = {"currentMetrics": None, "desiredReplicas": 0} | (obj.get("status") or {})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(validate_spec(obj["spec"]))

    def validate_status_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Check the numbers of pods."""
        status = obj["status"]
        return [
            problem
            for field in ("currentReplicas", "desiredReplicas")
            for problem in not_negative(f"status.{field}", status.get(field) or 0)
        ]


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        strategy=HorizontalPodAutoscalerStrategy(),
        short_names=("hpa",),
        categories=("all",),
        subresources=("status",),
        columns=printers.HORIZONTAL_POD_AUTOSCALERS,
    )
