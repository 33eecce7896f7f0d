"""Whether the configuration file that is mounted now is in effect."""

from __future__ import annotations

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Gauge

LAST_RELOAD_SUCCESSFUL = Gauge(
    "trainmaster_config_last_reload_successful",
    "1 if the configuration file could be used at the last look at it; 0: values of an older one are in effect",
    registry=REGISTRY,
)
LAST_RELOAD_SUCCESS_TIMESTAMP = Gauge(
    "trainmaster_config_last_reload_success_timestamp_seconds",
    "When a configuration file was read last that could be used and was not the one before, in seconds since 1970",
    registry=REGISTRY,
)
