"""What `kubectl get hpa` says of the metrics of a HorizontalPodAutoscaler: what was measured, of what is wanted."""

from __future__ import annotations

from trainmaster.runtime.jsontree import JsonObject

_SHOWN = 2
_FIELDS = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}


def metric_targets(autoscaler: JsonObject) -> str:
    """Return the first two metrics, and how many more there are."""
    measured = autoscaler.get("status", {}).get("currentMetrics") or []
    metrics = autoscaler["spec"].get("metrics") or []
    shown = [
        _metric(metric, measured[index] if index < len(measured) else {})
        for index, metric in enumerate(metrics[:_SHOWN])
    ]
    more = f" + {len(metrics) - _SHOWN} more..." if len(metrics) > _SHOWN else ""
    return ", ".join(shown) + more if shown else "<none>"


def _metric(metric: JsonObject, measured: JsonObject) -> str:
    kind = metric.get("type", "")
    field = _FIELDS.get(kind, "")
    if not field:
        return "<unknown type>"
    source = metric.get(field) or {}
    wanted, current = source.get("target") or {}, (measured.get(field) or {}).get("current") or {}
    name = f"{source.get('name', '')}: " if kind in {"Resource", "ContainerResource"} else ""
    if wanted.get("averageValue") is not None:
        mark = " (avg)" if kind in {"External", "Object"} else ""
        return f"{name}{_shown(current, 'averageValue')}/{wanted['averageValue']}{mark}"
    if name:
        target = f"{wanted['averageUtilization']}%" if wanted.get("averageUtilization") is not None else "<auto>"
        known = current.get("averageUtilization")
        return f"{name}{'<unknown>' if known is None else f'{known}%'}/{target}"
    return f"{_shown(current, 'value')}/{wanted.get('value')}"


def _shown(current: JsonObject, field: str) -> str:
    return str(current.get(field) or "<unknown>")
