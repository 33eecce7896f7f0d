"""Plugins: which are loaded, what they cost, and what becomes of their failures."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import plugins
from trainmaster.metrics.dashboards.model import QUERIES, Dashboard, Panel, Query, Row, largest, rates, smallest, total
from trainmaster.metrics.promql import aggregate, unlike

_STATE: Final = Row(
    "State",
    (
        Panel(
            title="Loaded",
            kind="stat",
            width=6,
            height=4,
            description="Plugins that run, in the manager that has most of them.",
            queries=(Query(aggregate("max", total(plugins.LOADED, "pod")).or_zero(), "loaded"),),
        ),
        Panel(
            title="Not loaded",
            kind="stat",
            width=6,
            height=4,
            description="Plugins that could not be loaded. The log of the manager says why, `trainmaster plugins` too; "
            "jobs that need one are blocked.",
            queries=(
                Query(aggregate("count", smallest(plugins.LOADED, "plugin") < 1).or_zero(), "not loaded"),
            ),
            steps=((1, "red"),),
        ),
        Panel(
            title="Quarantined",
            kind="stat",
            width=6,
            height=4,
            description="Plugins that are not called for a while because they kept failing. See the errors below, then "
            "mend the plugin or name it in plugins.disabled.",
            queries=(Query(aggregate("sum", largest(plugins.QUARANTINED, "plugin")).or_zero(), "quarantined"),),
            steps=((1, "red"),),
        ),
        Panel(
            title="Stuck calls",
            kind="stat",
            width=6,
            height=4,
            description="Calls that exceeded their time and do not return. Each holds a thread until the manager is "
            "restarted; /debug/threads shows where they stand.",
            queries=(Query(total(plugins.STUCK).or_zero(), "stuck"),),
            steps=((1, "red"),),
        ),
    ),
)  # fmt: skip

_CALLS: Final = Row(
    "Calls",
    (
        Panel(
            title="Calls a second",
            description="By plugin. Each resolution of a job calls every plugin that its runtime asks for, in each "
            "phase.",
            queries=rates(plugins.PLUGIN_CALLS, "plugin"),
            unit="ops",
            may_be_empty="no plugin was called so far",
        ),
        Panel(
            title="Duration of calls, p99",
            description="A plugin should take microseconds. Above 0.1 s it holds up every job: it may do no I/O.",
            queries=(Query(QUERIES.quantile(0.99, plugins.PLUGIN_DURATION, "plugin").observed(), "{{plugin}}"),),
            unit="s",
            steps=((0.1, "yellow"), (1, "red")),
        ),
        Panel(
            title="Share of the manager's time",
            description="Seconds of each second that calls of a plugin take. What is large here is worth a look at "
            "the plugin's code, however short each call is.",
            queries=(Query(QUERIES.sum_rate(plugins.PLUGIN_DURATION, "plugin"), "{{plugin}}"),),
            unit="percentunit",
            is_stacked=True,
            may_be_empty="no plugin was called so far",
        ),
        Panel(
            title="Failed calls a second",
            description="Calls that did not succeed. `rejected`: the plugin refuses a job, and the condition of the "
            "job says why; `error` and `timeout` are defects of the plugin; `refused`: it is quarantined.",
            queries=(
                Query(
                    QUERIES.rate(plugins.PLUGIN_CALLS, "plugin", "result", result=unlike("success")),
                    "{{plugin}} {{result}}",
                ),
            ),
            unit="ops",
            may_be_empty="no call has failed",
        ),
        Panel(
            title="Duration by phase, p99",
            description="Which extension point is slow, whatever the plugin.",
            queries=(Query(QUERIES.quantile(0.99, plugins.PLUGIN_DURATION, "phase").observed(), "{{phase}}"),),
            unit="s",
        ),
        Panel(
            title="Plans without a plugin, a second",
            description="Jobs that went on although a plugin failed or was quarantined, as its failure policy says. "
            "They lack what it would have added; their condition PluginSkipped names it.",
            queries=rates(plugins.SKIPPED, "plugin", "reason"),
            unit="ops",
            may_be_empty="no plugin was left out",
        ),
    ),
)  # fmt: skip

PLUGINS: Final = Dashboard(
    uid="trainmaster-plugins",
    title="Trainmaster / Plugins",
    description="For authors and operators of plugins: which are loaded, how long they take, how they fail.",
    rows=(_STATE, _CALLS),
)
