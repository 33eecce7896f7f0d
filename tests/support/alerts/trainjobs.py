"""Scenarios of the alerts about jobs."""

from support.alerts.scenario import always, away, fires, growing, observed, scraped, series, silent, started, then

_RUNTIME = {"runtime": "torch-distributed"}
_ENDED = "trainmaster_trainjob_time_to_end_seconds_count"
_STARTED = "trainmaster_trainjob_time_to_running_seconds_count"
_FAILURES = "trainmaster_trainjob_failures_total"
_RESTARTS = "trainmaster_trainjob_restarts_total"
_VIOLATIONS = "trainmaster_policy_violations_total"
_NODES = "trainmaster_trainjob_node_failures_total"


def _ends(*, failed: float, complete: float) -> dict[str, str]:
    return {
        series(_ENDED, result="Failed", **_RUNTIME): growing(failed),
        series(_ENDED, result="Complete", **_RUNTIME): growing(complete),
    }


_AWAY = {series("up"): away(1), series("process_start_time_seconds"): away(-86_400)}
_FOUND = {series("up"): "_x150 1x300", series("process_start_time_seconds"): "_x150 -86400x300"}


def _jobs(state: str, values: str, *, pod: str = "manager-a") -> dict[str, str]:
    return {series("trainmaster_trainjobs", state=state, reason="", pod=pod, **_RUNTIME): values}


def _v1(*, failed: str | None, successful: str | None) -> dict[str, str]:
    made = {"failed": failed, "successful": successful}
    labels = {"job_namespace": "team-a", "framework": "pytorch"}
    return {
        series(f"training_operator_jobs_{name}_total", **labels): values
        for name, values in made.items()
        if values is not None
    }


def _spent(*, lost: float | None, productive: float | None) -> dict[str, str]:
    """What jobs that end each minute have spent seconds on, for two queues."""
    seconds = {"Lost": lost, "Productive": productive, "Queued": 60}
    name = "trainmaster_trainjob_seconds_total"
    return {
        series(name, kind=kind, queue=queue, **_RUNTIME): growing(each / 2)
        for kind, each in seconds.items()
        for queue in ("a", "b")
        if each is not None
    }


def _reports(values: str) -> dict[str, str]:
    return {series("trainmaster_progress_reports_total", code="200"): values}


CASES = {
    "TrainmasterTrainJobsFail": [
        fires(_ends(failed=1, complete=0.5)),
        fires({series(_ENDED, result="Failed", **_RUNTIME): "_x150 12x300"} | scraped()),
        fires({series(_ENDED, result="Failed", **_RUNTIME): "_x150 12x300"} | started(140)),
        silent(
            {
                series(_ENDED, result="Failed", **_RUNTIME): away(500),
                series(_ENDED, result="Complete", **_RUNTIME): away(400),
            }
            | _AWAY
        ),
        silent(_ends(failed=0.5, complete=1)),
        silent(_ends(failed=0.1, complete=0)),
        silent(_ends(failed=0, complete=1)),
    ],
    "TrainmasterTrainJobsFailAlike": [
        fires(
            {
                series(_FAILURES, cause="NodeLost", exit_class="none", **_RUNTIME): growing(0.2),
                series(_FAILURES, cause="Evicted", exit_class="none", **_RUNTIME): growing(0.01),
            },
            cause="NodeLost",
        ),
        # Once for each of many runtimes: no series ever grows.
        fires(
            {
                series(_FAILURES, cause="ImagePullFailed", exit_class="none", runtime=f"runtime-{n}"): "_x150 1x300"
                for n in range(7)
            }
            | scraped(),
            cause="ImagePullFailed",
        ),
        # Counted by a manager that has ended since.
        fires(
            {series(_FAILURES, cause="NodeLost", exit_class="", **_RUNTIME): "_x140 1+1x15 _x300"} | scraped(),
            cause="NodeLost",
        ),
        # Prometheus was away: what comes back is not new, whenever it comes back.
        silent({series(_FAILURES, cause="Evicted", exit_class="", **_RUNTIME): away(50)} | _AWAY),
        silent({series(_FAILURES, cause="Evicted", exit_class="", **_RUNTIME): "_x150 50x300"} | _FOUND),
        # The manager could not be reached, which Prometheus knows.
        silent(
            {series(_FAILURES, cause="Evicted", exit_class="", **_RUNTIME): away(50)}
            | scraped()
            | {series("up"): "1x64 0x59 1x300"}
        ),
        silent({series(_FAILURES, cause="ContainerFailed", exit_class="error", **_RUNTIME): growing(1)}),
        silent({series(_FAILURES, cause="NodeLost", exit_class="none", **_RUNTIME): "0x150 3x300"}),
        silent({series(_FAILURES, cause="NodeLost", exit_class="none", **_RUNTIME): always(300)}),
    ],
    "TrainmasterTrainJobsRestart": [
        fires({series(_RESTARTS, cause="Preempted", exit_class="none", **_RUNTIME): growing(0.5)}, cause="Preempted"),
        silent({series(_RESTARTS, cause="Evicted", exit_class="", **_RUNTIME): away(400)} | _AWAY),
        silent({series(_RESTARTS, cause="Preempted", exit_class="none", **_RUNTIME): growing(0.2)}),
        silent({series(_RESTARTS, cause="Preempted", exit_class="none", **_RUNTIME): always(100)}),
    ],
    "TrainmasterTrainJobsDoNotStart": [
        fires(_jobs("Waiting", always(5)) | {series(_STARTED, **_RUNTIME): always(7)}),
        fires(_jobs("Waiting", always(5))),
        # Another manager leads since.
        fires(_jobs("Waiting", "5x150 _x300") | _jobs("Waiting", "_x150 5x300", pod="manager-b")),
        # They are not known to have waited for an hour.
        silent(_jobs("Waiting", "_x150 5x300")),
        silent(_jobs("Waiting", always(5)) | {series(_STARTED, **_RUNTIME): growing(0.1)}),
        silent(_jobs("Waiting", then((150, 5), (5, 0), (400, 5))) | {series(_STARTED, **_RUNTIME): always(7)}),
        silent(_jobs("Suspended", always(5)) | {series(_STARTED, **_RUNTIME): always(7)}),
    ],
    "TrainmasterTrainJobsWaitLong": [
        fires(
            observed(
                "trainmaster_trainjob_time_to_running_seconds",
                {"600.0": 1, "1800.0": 2, "3600.0": 4, "+Inf": 4},
                **_RUNTIME,
            ),
            **_RUNTIME,
        ),
        silent(
            {
                series("trainmaster_trainjob_time_to_running_seconds_bucket", le=bound, **_RUNTIME): away(count)
                for bound, count in {"600.0": 1, "1800.0": 2, "3600.0": 40, "+Inf": 40}.items()
            }
            | _AWAY
        ),
        silent(
            observed(
                "trainmaster_trainjob_time_to_running_seconds",
                {"600.0": 3.8, "1800.0": 3.9, "3600.0": 4, "+Inf": 4},
                **_RUNTIME,
            )
        ),
    ],
    "TrainmasterJobSetsLate": [
        fires(
            observed(
                "trainmaster_trainjob_time_to_jobset_seconds", {"30.0": 1, "60.0": 2, "120.0": 4, "+Inf": 4}, **_RUNTIME
            )
        ),
        silent(
            observed(
                "trainmaster_trainjob_time_to_jobset_seconds", {"30.0": 4, "60.0": 4, "120.0": 4, "+Inf": 4}, **_RUNTIME
            )
        ),
    ],
    "TrainmasterNoProgress": [
        fires(_reports("0+5x60 300x300") | _jobs("Running", always(3))),
        silent(_reports(growing(5)) | _jobs("Running", always(3))),
        silent(_reports("0+5x60 300x300") | _jobs("Running", always(0))),
        silent(_reports(always(0)) | _jobs("Running", always(3))),
    ],
    "TrainmasterTrainJobsStandStill": [
        fires({series(_VIOLATIONS, reason="NoProgress"): growing(0.1)}),
        silent({series(_VIOLATIONS, reason="NoProgress"): growing(0.02)}),
        silent({series(_VIOLATIONS, reason="LogRuleBroken"): growing(1)}),
        silent({series(_VIOLATIONS, reason="NoProgress"): away(50)} | _AWAY),
    ],
    "TrainmasterTrainingLost": [
        fires(_spent(lost=60, productive=180), **_RUNTIME),
        fires(_spent(lost=60, productive=None), **_RUNTIME),
        silent(_spent(lost=60, productive=300)),
        silent(_spent(lost=10, productive=10)),
        silent(_spent(lost=None, productive=60)),
    ],
    "TrainmasterNodeFailsTrainJobs": [
        fires({series(_NODES, node="node-7"): growing(0.05), series(_NODES, node="node-8"): always(9)}, node="node-7"),
        silent({series(_NODES, node=f"node-{number}"): growing(0.02) for number in range(9)}),
        silent({series(_NODES, node="other"): growing(1)}),
    ],
    "TrainmasterV1JobsFail": [
        fires(_v1(failed=growing(1), successful=growing(0.5)), framework="pytorch"),
        fires(_v1(failed=growing(1), successful=None), framework="pytorch"),
        silent(_v1(failed=growing(0.5), successful=growing(1))),
        silent(_v1(failed=growing(0.1), successful=None)),
        silent(_v1(failed=away(50), successful=away(20)) | _AWAY),
    ],
}
