"""The dashboards: what each shows, made of the families of this package, and what Grafana imports."""

from trainmaster.metrics.dashboards.contents import DASHBOARDS
from trainmaster.metrics.dashboards.grafana import grafana_dashboard
from trainmaster.metrics.dashboards.model import Dashboard, Panel, Query, Row, Variable

__all__ = ["DASHBOARDS", "Dashboard", "Panel", "Query", "Row", "Variable", "grafana_dashboard"]
