"""Alerts about plugins."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import plugins
from trainmaster.metrics.alerts.model import QUERIES, Alert, largest, smallest
from trainmaster.metrics.promql import like

PLUGINS: Final = (
    Alert(
        name="TrainmasterPluginQuarantined",
        severity="warning",
        duration="15m",
        expression=largest(plugins.QUARANTINED, "plugin") > 0,
        summary="The plugin {{ $labels.plugin }} keeps failing and is not called.",
        description="TrainJobs that it serves are blocked, or go on without it. The log of the manager has its errors. "
        "Mend it, or leave it out by plugins.disabled of the configuration.",
    ),
    Alert(
        name="TrainmasterPluginNotLoaded",
        severity="warning",
        duration="15m",
        expression=smallest(plugins.LOADED, "plugin") < 1,
        summary="The plugin {{ $labels.plugin }} did not load.",
        description="TrainJobs whose runtimes ask for what it serves are blocked. The log of the manager says why.",
    ),
    Alert(
        name="TrainmasterPluginStuck",
        severity="warning",
        duration="10m",
        expression=largest(plugins.STUCK, "plugin", "pod") > 0,
        summary="Calls of the plugin {{ $labels.plugin }} do not return in {{ $labels.pod }}.",
        description="Each holds a thread until the manager is restarted. /debug/threads shows where they stand.",
    ),
    Alert(
        name="TrainmasterPluginUndecided",
        severity="warning",
        duration="0s",
        expression=QUERIES.within("15m").count(
            plugins.PLUGIN_CALLS, "plugin", phase="applies_to", result=like("error|timeout|refused")
        )
        > 0,
        summary="The plugin {{ $labels.plugin }} cannot say whether it serves some TrainJobs.",
        description="These are blocked, or go on without it. The log of the manager has its errors.",
    ),
)
