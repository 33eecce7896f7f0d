"""Scenarios of the alerts about plugins."""

from __future__ import annotations

from support.alerts.scenario import Case, always, fires, growing, scraped, series, silent, then

_ACME = {"plugin": "acme"}
CALLS = "trainmaster_plugin_calls_total"

CASES = {
    "TrainmasterPluginQuarantined": Case(
        fires=(fires({series("trainmaster_plugin_quarantined", **_ACME): always(1)}, **_ACME),),
        silent=(
            silent({series("trainmaster_plugin_quarantined", **_ACME): always(0)}),
            silent({series("trainmaster_plugin_quarantined", **_ACME): then((170, 0), (400, 1))}),
        ),
    ),
    "TrainmasterPluginNotLoaded": Case(
        fires=(
            fires(
                {
                    series("trainmaster_plugin_loaded", **_ACME): always(0),
                    series("trainmaster_plugin_loaded", plugin="torch"): always(1),
                },
                **_ACME,
            ),
        ),
        silent=(silent({series("trainmaster_plugin_loaded", **_ACME): always(1)}),),
    ),
    "TrainmasterPluginStuck": Case(
        fires=(fires({series("trainmaster_plugin_stuck_calls", **_ACME): always(2)}, pod="manager-a", **_ACME),),
        silent=(
            silent({series("trainmaster_plugin_stuck_calls", **_ACME): always(0)}),
            silent({series("trainmaster_plugin_stuck_calls", **_ACME): then((175, 0), (400, 1))}),
        ),
    ),
    "TrainmasterPluginUndecided": Case(
        fires=(
            fires({series(CALLS, phase="applies_to", result="error", **_ACME): growing(1)}, **_ACME),
            # Once: the series begins with it.
            fires({series(CALLS, phase="applies_to", result="error", **_ACME): "_x170 1x300"} | scraped(), **_ACME),
        ),
        silent=(
            silent({series(CALLS, phase="applies_to", result="success", **_ACME): growing(1)}),
            silent({series(CALLS, phase="build", result="error", **_ACME): growing(1)}),
        ),
    ),
}
