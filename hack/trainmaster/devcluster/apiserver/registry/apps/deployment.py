"""Deployments: defaults and rules of their spec, what a new generation is, and their scale."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.apps.workload_validation import (
    validate_workload,
    validate_workload_update,
)
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod_spec
from trainmaster.devcluster.apiserver.registry.fields import forbidden, not_negative, required
from trainmaster.devcluster.apiserver.registry.intorpercent import int_or_percent, scaled_value
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.scale import ScalePaths
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject

_ROLLING, _RECREATE = "RollingUpdate", "Recreate"
_SHARE = "25%"
_HISTORY = 10
_PROGRESS_DEADLINE = 600
_LEFT_OUT = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
"""Fields of the status that are not sent while they are zero."""

SCALE = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")


class DeploymentStrategy(Strategy):
    """Deployments; like a change of the spec, one of the annotations is something the controller has to see."""

    has_generation = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the spec and its pod template."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        strategy["type"] = strategy.get("type") or _ROLLING
        if strategy["type"] == _ROLLING:
            rolling = strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
            rolling.setdefault("maxUnavailable", _SHARE)
            rolling.setdefault("maxSurge", _SHARE)
        spec.setdefault("revisionHistoryLimit", _HISTORY)
        spec.setdefault("progressDeadlineSeconds", _PROGRESS_DEADLINE)
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status."""
        obj["status"] = {}

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what a status update must not change, and leave out what is zero."""
        super().prepare_for_status_update(obj, old)
        restore(obj["metadata"], old["metadata"], "labels")
        status = obj.setdefault("status", {})
        for field in _LEFT_OUT:
            if not status.get(field):
                status.pop(field, None)

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether spec or annotations changed."""
        return super().is_new_generation(obj, old) or (
            (obj["metadata"].get("annotations") or {}) != (old["metadata"].get("annotations") or {})
        )

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        spec = obj["spec"]
        return [*validate_workload(spec), *_validate_strategy(spec["strategy"]), *_validate_limits(spec)]

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another selector."""
        return list(validate_workload_update(obj["spec"], old["spec"]))


def _validate_strategy(strategy: JsonObject) -> Iterator[FieldError]:
    path, rolling = "spec.strategy.rollingUpdate", strategy.get("rollingUpdate")
    if strategy["type"] == _RECREATE:
        if rolling is not None:
            yield forbidden(path, "may not be specified when strategy `type` is 'Recreate'")
        return
    if strategy["type"] != _ROLLING:
        yield unsupported("spec.strategy.type", strategy["type"], [_RECREATE, _ROLLING])
        return
    if rolling is None:
        yield required(path, "this should be defaulted and never be nil")
        return
    problems: list[FieldError] = []
    for field in ("maxUnavailable", "maxSurge"):
        problems += int_or_percent(f"{path}.{field}", rolling[field])
    yield from problems
    if problems:
        return
    if not scaled_value(rolling["maxUnavailable"], 100, round_up=False) and not scaled_value(
        rolling["maxSurge"], 100, round_up=True
    ):
        detail = "may not be 0 when `maxSurge` is 0"
        yield FieldError(f"{path}.maxUnavailable", "Invalid", rolling["maxUnavailable"], detail)
    if (
        isinstance(rolling["maxUnavailable"], str)
        and scaled_value(rolling["maxUnavailable"], 100, round_up=False) > 100
    ):
        yield FieldError(
            f"{path}.maxUnavailable", "Invalid", rolling["maxUnavailable"], "must not be greater than 100%"
        )


def _validate_limits(spec: JsonObject) -> Iterator[FieldError]:
    for field in ("revisionHistoryLimit", "progressDeadlineSeconds"):
        yield from not_negative(f"spec.{field}", spec[field])
    deadline = spec["progressDeadlineSeconds"]
    if deadline <= spec.get("minReadySeconds", 0):
        yield FieldError("spec.progressDeadlineSeconds", "Invalid", deadline, "must be greater than minReadySeconds")


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "apps",
        "Deployment",
        "deployments",
        strategy=DeploymentStrategy(),
        short_names=("deploy",),
        categories=("all",),
        subresources=("status", "scale"),
        columns=printers.DEPLOYMENTS,
        scale=SCALE,
    )
