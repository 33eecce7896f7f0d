"""Alerts as rules of Prometheus."""

from __future__ import annotations

from typing import Any

from trainmaster.metrics.alerts.model import Alert


def alert_rule(alert: Alert) -> dict[str, Any]:
    """Return the rule of an alert."""
    return {
        "alert": alert.name,
        "expr": alert.expression.text,
        "for": alert.duration,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.description, "runbook": alert.runbook},
    }


def rule_groups(groups: dict[str, tuple[Alert, ...]]) -> list[dict[str, Any]]:
    """Return the groups of a file of rules; Prometheus looks at the rules of a group at the same moment."""
    return [{"name": name, "rules": [alert_rule(alert) for alert in alerts]} for name, alerts in groups.items()]
