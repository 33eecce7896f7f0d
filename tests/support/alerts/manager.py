"""Scenarios of the alerts about the manager itself and its plugins."""

from support.alerts.scenario import always, fires, growing, observed, scraped, series, silent, then

LEADER = "leader_election_master_status"
LEASE = {"name": "trainer.kubeflow.org"}
_CONTROLLER = {"controller": "trainjob_controller"}
_QUEUE = {"name": "trainjob_controller", **_CONTROLLER}


def _reconciles(failing: float) -> dict[str, str]:
    return {
        series("controller_runtime_reconcile_errors_total", **_CONTROLLER): growing(failing),
        series("controller_runtime_reconcile_total", result="error", **_CONTROLLER): growing(failing),
        series("controller_runtime_reconcile_total", result="success", **_CONTROLLER): growing(100 - failing),
    }


def _once(name: str, **labels: str) -> dict[str, str]:
    return {series(name, **labels): "0x175 1x400"}


_ACME = {"plugin": "acme"}
CALLS = "trainmaster_plugin_calls_total"


CASES = {
    "TrainmasterHistoryFails": [
        fires(
            {
                series("trainmaster_history_store_failing"): always(1),
                series("trainmaster_history_store_failing", pod="manager-b"): always(0),
            },
            pod="manager-a",
        ),
        silent({series("trainmaster_history_store_failing"): always(0)}),
        silent({series("trainmaster_history_store_failing"): then((100, 0), (10, 1), (90, 0))}, at="1h49m"),
    ],
    "TrainmasterDown": [
        fires({series("up"): always(0)}),
        fires({series("up", job="another"): always(1)}),
        silent({series("up"): always(1), series("up", pod="manager-b"): always(0)}),
        silent({series("up"): then((178, 1), (3, 0), (400, 1))}),
    ],
    "TrainmasterNoLeader": [
        fires({series(LEADER, **LEASE): always(0)}, namespace="kubeflow"),
        silent({series(LEADER, **LEASE): always(0), series(LEADER, pod="manager-b", **LEASE): always(1)}),
        silent({series(LEADER, **LEASE): then((177, 1), (4, 0), (400, 1))}),
        silent({series("up"): always(1), series("trainmaster_asyncio_tasks"): always(9)}),  # it elects nobody
    ],
    "TrainmasterTwoLeaders": [
        fires(
            {series(LEADER, **LEASE): always(1), series(LEADER, pod="manager-b", **LEASE): always(1)},
            name="trainer.kubeflow.org",
        ),
        fires(
            {series(LEADER, **LEASE): always(1), series(LEADER, namespace="other", **LEASE): always(1)},
            name="trainer.kubeflow.org",
        ),
        silent({series(LEADER, **LEASE): always(1), series(LEADER, name="another"): always(1)}),
    ],
    "TrainmasterLeaderChangesOften": [
        fires({series(LEADER, **LEASE): "0x120 " + "1x3 0x3 " * 10 + "1x300"}, namespace="kubeflow"),
        silent({series(LEADER, **LEASE): then((130, 0), (20, 1), (20, 0), (400, 1))}),
    ],
    "TrainmasterReconcileErrors": [
        fires(_reconciles(20), **_CONTROLLER),
        silent(_reconciles(5)),
        silent(_reconciles(0)),
    ],
    "TrainmasterReconcilePanics": [
        fires(_once("controller_runtime_reconcile_panics_total", **_CONTROLLER), **_CONTROLLER),
        silent({series("controller_runtime_reconcile_panics_total", **_CONTROLLER): always(0)}),
        silent({series("controller_runtime_reconcile_panics_total", **_CONTROLLER): always(3)}),
    ],
    "TrainmasterReconcileStuck": [
        fires({series("workqueue_longest_running_processor_seconds", **_QUEUE): always(200)}, **_CONTROLLER),
        silent({series("workqueue_longest_running_processor_seconds", **_QUEUE): always(100)}),
        silent({series("workqueue_longest_running_processor_seconds", **_QUEUE): then((177, 0), (400, 200))}),
    ],
    "TrainmasterQueueGrows": [
        fires(
            observed(
                "workqueue_queue_duration_seconds", {"1": 0, "10": 10, "100": 20, "1000": 40, "+Inf": 40}, **_QUEUE
            ),
            **_CONTROLLER,
        ),
        silent(observed("workqueue_queue_duration_seconds", {"1": 90, "10": 100, "100": 100, "+Inf": 100}, **_QUEUE)),
    ],
    "TrainmasterEventLoopLags": [
        fires(
            observed("trainmaster_event_loop_lag_seconds", {"0.1": 10, "1.0": 20, "5.0": 60, "+Inf": 60}),
            pod="manager-a",
        ),
        silent(observed("trainmaster_event_loop_lag_seconds", {"0.1": 59.9, "1.0": 60, "5.0": 60, "+Inf": 60})),
    ],
    "TrainmasterFilesRunOut": [
        fires({series("process_open_fds"): always(900), series("process_max_fds"): always(1024)}, pod="manager-a"),
        silent({series("process_open_fds"): always(90), series("process_max_fds"): always(1024)}),
    ],
    "TrainmasterConfigurationInvalid": [
        fires({series("trainmaster_config_last_reload_successful"): always(0)}, pod="manager-a"),
        silent({series("trainmaster_config_last_reload_successful"): always(1)}),
        silent({series("trainmaster_config_last_reload_successful"): then((177, 1), (2, 0), (400, 1))}),
    ],
    "TrainmasterSeriesGrow": [
        fires({series("scrape_samples_post_metric_relabeling"): growing(100)}, pod="manager-a"),
        silent({series("scrape_samples_post_metric_relabeling"): always(4000)}),
    ],
    "TrainmasterPluginQuarantined": [
        fires({series("trainmaster_plugin_quarantined", **_ACME): always(1)}, **_ACME),
        silent({series("trainmaster_plugin_quarantined", **_ACME): always(0)}),
        silent({series("trainmaster_plugin_quarantined", **_ACME): then((170, 0), (400, 1))}),
    ],
    "TrainmasterPluginNotLoaded": [
        fires(
            {
                series("trainmaster_plugin_loaded", **_ACME): always(0),
                series("trainmaster_plugin_loaded", plugin="torch"): always(1),
            },
            **_ACME,
        ),
        silent({series("trainmaster_plugin_loaded", **_ACME): always(1)}),
    ],
    "TrainmasterPluginStuck": [
        fires({series("trainmaster_plugin_stuck_calls", **_ACME): always(2)}, pod="manager-a", **_ACME),
        silent({series("trainmaster_plugin_stuck_calls", **_ACME): always(0)}),
        silent({series("trainmaster_plugin_stuck_calls", **_ACME): then((175, 0), (400, 1))}),
    ],
    "TrainmasterPluginUndecided": [
        fires({series(CALLS, phase="applies_to", result="error", **_ACME): growing(1)}, **_ACME),
        # Once: the series begins with it.
        fires({series(CALLS, phase="applies_to", result="error", **_ACME): "_x170 1x300"} | scraped(), **_ACME),
        silent({series(CALLS, phase="applies_to", result="success", **_ACME): growing(1)}),
        silent({series(CALLS, phase="build", result="error", **_ACME): growing(1)}),
    ],
}
