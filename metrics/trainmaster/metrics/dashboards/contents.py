"""All dashboards."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics.dashboards.controller import CONTROLLER
from trainmaster.metrics.dashboards.model import Dashboard
from trainmaster.metrics.dashboards.overview import OVERVIEW
from trainmaster.metrics.dashboards.trainjobs import TRAINJOBS
from trainmaster.metrics.dashboards.v1_jobs import V1_JOBS
from trainmaster.metrics.dashboards.webhooks import PLUGINS, WEBHOOKS

DASHBOARDS: Final[tuple[Dashboard, ...]] = (OVERVIEW, TRAINJOBS, CONTROLLER, PLUGINS, WEBHOOKS, V1_JOBS)
