"""Scenarios of the alerts about requests and caches."""

from __future__ import annotations

from support.alerts.scenario import Case, always, fires, growing, observed, series, silent, then

_HOST = {"host": "10.0.0.1:443"}


def _requests(**by_code: float) -> dict[str, str]:
    codes = {"refused": "403", "failed": "503", "unanswered": "<error>", "good": "200"}
    return {
        series("rest_client_requests_total", code=codes[name], method="GET", **_HOST): growing(count)
        for name, count in by_code.items()
    }


CASES = {
    "TrainmasterAPIServerErrors": Case(
        fires=(fires(_requests(failed=10, unanswered=10, good=80)),),
        silent=(silent(_requests(failed=2, unanswered=2, good=80)), silent(_requests(refused=50, good=50, failed=0))),
    ),
    "TrainmasterRequestsDenied": Case(
        fires=(fires(_requests(refused=2, good=100), method="GET"),),
        silent=(
            silent(_requests(refused=0, good=100)),
            silent({series("rest_client_requests_total", code="403", method="GET", **_HOST): then((170, 0), (400, 3))}),
        ),
    ),
    "TrainmasterRequestsLimited": Case(
        fires=(
            fires(
                observed(
                    "rest_client_rate_limiter_duration_seconds",
                    {"1.0": 10, "2.0": 20, "8.0": 60, "+Inf": 60},
                    verb="PATCH",
                    **_HOST,
                ),
                verb="PATCH",
            ),
        ),
        silent=(
            silent(
                observed(
                    "rest_client_rate_limiter_duration_seconds",
                    {"1.0": 60, "2.0": 60, "+Inf": 60},
                    verb="PATCH",
                    **_HOST,
                )
            ),
        ),
    ),
    "TrainmasterCacheNotFilled": Case(
        fires=(
            fires(
                {
                    series("trainmaster_informer_synced", resource="pods"): always(0),
                    series("trainmaster_informer_synced", resource="jobsets"): always(1),
                },
                pod="manager-a",
                resource="pods",
            ),
        ),
        silent=(
            silent({series("trainmaster_informer_synced", resource="pods"): then((5, 0), (400, 1))}),
            silent({series("trainmaster_informer_synced", resource="pods"): then((175, 1), (400, 0))}),
        ),
    ),
    "TrainmasterCacheStale": Case(
        fires=(
            fires(
                {series("trainmaster_informer_age_seconds", resource="pods"): growing(60)},
                pod="manager-a",
                resource="pods",
            ),
        ),
        silent=(
            silent({series("trainmaster_informer_age_seconds", resource="pods"): always(70)}),
            silent({series("trainmaster_informer_age_seconds", resource="pods"): then((177, 30), (400, 310))}),
        ),
    ),
    "TrainmasterWatchesFail": Case(
        fires=(fires({series("trainmaster_informer_failures_total", resource="pods"): growing(2)}, resource="pods"),),
        silent=(
            silent({series("trainmaster_informer_failures_total", resource="pods"): growing(0.1)}),
            silent({series("trainmaster_informer_failures_total", resource="pods"): always(500)}),
        ),
    ),
    "TrainmasterObjectsUnreadable": Case(
        fires=(
            fires(
                {series("trainmaster_informer_unreadable_objects", resource="trainjobs"): always(1)},
                resource="trainjobs",
            ),
        ),
        silent=(silent({series("trainmaster_informer_unreadable_objects", resource="trainjobs"): always(0)}),),
    ),
}
