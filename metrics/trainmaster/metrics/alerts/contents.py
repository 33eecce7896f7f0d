"""All alerts, by the groups that their rules are in."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics.alerts.manager import MANAGER
from trainmaster.metrics.alerts.model import Alert
from trainmaster.metrics.alerts.plugins import PLUGINS
from trainmaster.metrics.alerts.requests import REQUESTS
from trainmaster.metrics.alerts.servers import SERVERS
from trainmaster.metrics.alerts.trainjobs import TRAINJOBS

GROUPS: Final[dict[str, tuple[Alert, ...]]] = {
    "trainmaster": MANAGER,
    "trainmaster-requests": REQUESTS,
    "trainmaster-servers": SERVERS,
    "trainmaster-plugins": PLUGINS,
    "trainmaster-jobs": TRAINJOBS,
}
