"""The alerts, made of the families of this package, and the rules that Prometheus reads."""

from trainmaster.metrics.alerts.contents import GROUPS
from trainmaster.metrics.alerts.model import JOB, RUNBOOKS, Alert
from trainmaster.metrics.alerts.prometheus import alert_rule, rule_groups

__all__ = ["GROUPS", "JOB", "RUNBOOKS", "Alert", "alert_rule", "rule_groups"]
