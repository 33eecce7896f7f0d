"""What kube-apiserver demands of the spec of a HorizontalPodAutoscaler (`autoscaling/v2`), in its words."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, invalid, one_of, required
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
"""The fields of the metric types, in the order in which errors list them."""
_CHECKED_FIRST = ("object", "external", "pods", "resource", "containerResource")
"""Only the first of several sources is looked at."""
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")
_LONGEST_WINDOW = 3600
_LONGEST_PERIOD = 1800


def validate_spec(spec: JsonObject) -> Iterator[FieldError]:
    """Give the broken rules of a spec with its defaults."""
    least, most = spec["minReplicas"], spec["maxReplicas"]
    if least < 1:
        yield FieldError("spec.minReplicas", "Invalid", least, "must be greater than or equal to 1")
    if most < 1:
        yield FieldError("spec.maxReplicas", "Invalid", most, "must be greater than 0")
    if most < least:
        yield FieldError("spec.maxReplicas", "Invalid", most, "must be greater than or equal to `minReplicas`")
    yield from _reference("spec.scaleTargetRef", spec["scaleTargetRef"])
    for index, metric in enumerate(spec["metrics"]):
        yield from _metric(f"spec.metrics[{index}]", metric)
    for direction in ("scaleUp", "scaleDown") if spec.get("behavior") is not None else ():
        yield from _scaling_rules(f"spec.behavior.{direction}", spec["behavior"][direction])


def _reference(path: str, reference: JsonObject) -> Iterator[FieldError]:
    for field in ("kind", "name"):
        value: str = reference.get(field) or ""
        if not value:
            yield required(f"{path}.{field}")
        yield from invalid(f"{path}.{field}", value, _path_segment_problems(value))
    version: str = reference.get("apiVersion") or ""
    if version.count("/") > 1:
        yield FieldError(f"{path}.apiVersion", "Invalid", version, f"unexpected GroupVersion string: {version}")


def _path_segment_problems(value: str) -> list[str]:
    """Return why a text cannot be a part of a URL's path."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return [f"may not contain '{character}'" for character in ("/", "%") if character in value]


def _metric(path: str, metric: JsonObject) -> Iterator[FieldError]:
    kind: str = metric.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    yield from one_of(f"{path}.type", kind, _SOURCES)
    present = [field for field in _CHECKED_FIRST if metric.get(field) is not None]
    if present:
        yield from _source(f"{path}.{present[0]}", present[0], metric[present[0]])
    expected = _SOURCES.get(kind)
    if expected is None:
        yield from one_of(f"{path}.type", kind, _SOURCES)
    elif expected not in present:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        for field in sorted(set(present) - {expected}):
            yield forbidden(f"{path}.{field}", "must populate the given metric source only")


def _source(path: str, field: str, source: JsonObject) -> Iterator[FieldError]:
    target: JsonObject = source.get("target") or {}
    if field == "object":
        yield from _reference(f"{path}.describedObject", source.get("describedObject") or {})
    if field in {"resource", "containerResource"}:
        yield from _resource(path, source, in_container=field == "containerResource")
        return
    yield from _identifier(f"{path}.metric", source.get("metric") or {})
    yield from _target(f"{path}.target", target)
    value, average = target.get("value"), target.get("averageValue")
    if field == "pods":
        if average is None or not _is_positive(average):
            yield required(f"{path}.target.averageValue", "must specify a positive target averageValue")
    elif value is None and average is None:
        either = "value or averageValue" if field == "object" else "value for metric or a per-pod target"
        yield required(f"{path}.target.averageValue", f"must set either a target {either}")
    elif field == "external" and value is not None and average is not None:
        yield forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")


def _resource(path: str, source: JsonObject, *, in_container: bool) -> Iterator[FieldError]:
    target: JsonObject = source.get("target") or {}
    if not source.get("name"):
        yield required(f"{path}.name", "must specify a resource name")
    if in_container and not source.get("container"):
        yield required(f"{path}.container", "must specify a container")
    yield from _target(f"{path}.target", target)
    utilization, value = target.get("averageUtilization"), target.get("averageValue")
    both = "both a target raw value and a target utilization"
    if utilization is None and value is None:
        either = "either a target raw value or a target utilization"
        yield required(f"{path}.target.averageUtilization", f"must set {either}")
    elif utilization is not None and value is not None:
        yield forbidden(f"{path}.target.averageValue", f"may not set {both}")


def _identifier(path: str, metric: JsonObject) -> Iterator[FieldError]:
    name: str = metric.get("name") or ""
    if not name:
        yield required(f"{path}.name", "must specify a metric name")
    yield from invalid(f"{path}.name", name, _path_segment_problems(name))


def _target(path: str, target: JsonObject) -> Iterator[FieldError]:
    kind: str = target.get("type") or ""
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in _TARGET_TYPES:
        yield FieldError(f"{path}.type", "Invalid", kind, "must be either Utilization, Value, or AverageValue")
    for field in ("value", "averageValue"):
        if target.get(field) is not None and not _is_positive(target[field]):
            yield FieldError(f"{path}.{field}", "Invalid", target[field], "must be positive")
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        yield FieldError(f"{path}.averageUtilization", "Invalid", utilization, "must be greater than 0")


def _is_positive(value: str | float) -> bool:
    return Quantity.parse(value) > Quantity.parse(0)


def _scaling_rules(path: str, rules: JsonObject) -> Iterator[FieldError]:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield FieldError(
            f"{path}.stabilizationWindowSeconds", "Invalid", window, "must be greater than or equal to zero"
        )
    if window is not None and window > _LONGEST_WINDOW:
        text = f"must be less than or equal to {_LONGEST_WINDOW}"
        yield FieldError(f"{path}.stabilizationWindowSeconds", "Invalid", window, text)
    yield from one_of(f"{path}.selectPolicy", rules["selectPolicy"], ("Disabled", "Max", "Min"))
    if not rules["policies"]:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(rules["policies"]):
        place = f"{path}.policies[{index}]"
        yield from one_of(f"{place}.type", policy.get("type") or "", ("Percent", "Pods"))
        for field in ("value", "periodSeconds"):
            if (policy.get(field) or 0) <= 0:
                yield FieldError(f"{place}.{field}", "Invalid", policy.get(field) or 0, "must be greater than zero")
        period = policy.get("periodSeconds") or 0
        if period > _LONGEST_PERIOD:
            text = f"must be less than or equal to {_LONGEST_PERIOD}"
            yield FieldError(f"{place}.periodSeconds", "Invalid", period, text)
