"""Scenarios of the alerts about what a manager asks for and what it serves: requests, caches, webhooks, reports."""

from support.alerts.scenario import always, fires, growing, observed, series, silent, then

_HOST = {"host": "10.0.0.1:443"}


def _requests(**by_code: float) -> dict[str, str]:
    codes = {"refused": "403", "failed": "503", "unanswered": "<error>", "good": "200"}
    return {
        series("rest_client_requests_total", code=codes[name], method="GET", **_HOST): growing(count)
        for name, count in by_code.items()
    }


_WEBHOOK = {"webhook": "/validate-trainer-kubeflow-org-v1alpha1-trainjob"}
_CONFIGURATION = "ValidatingWebhookConfiguration validator.trainer.kubeflow.org"
_DAY = 86400
_AT = 3 * 3600
"""The moment of the look, in seconds: time begins at 0 in these scenarios."""


def _reviews(failing: float) -> dict[str, str]:
    return {
        series("controller_runtime_webhook_requests_total", code="500", **_WEBHOOK): growing(failing),
        series("controller_runtime_webhook_requests_total", code="200", **_WEBHOOK): growing(100 - failing),
    }


def _reports(**by_code: float) -> dict[str, str]:
    codes = {"good": "200", "refused": "403", "limited": "429", "failed": "500"}
    return {
        series("trainmaster_progress_reports_total", code=codes[name]): growing(count)
        for name, count in by_code.items()
    }


def _expiry(**moments: float) -> dict[str, str]:
    return {
        series("trainmaster_certificate_expiry_timestamp_seconds", certificate=name): always(moment)
        for name, moment in moments.items()
    }


def _missing(count: int) -> dict[str, str]:
    return {series("trainmaster_webhook_configuration_missing", configuration=_CONFIGURATION): always(count)}


CASES = {
    "TrainmasterAPIServerErrors": [
        fires(_requests(failed=10, unanswered=10, good=80)),
        silent(_requests(failed=2, unanswered=2, good=80)),
        silent(_requests(refused=50, good=50, failed=0)),
    ],
    "TrainmasterRequestsDenied": [
        fires(_requests(refused=2, good=100), method="GET"),
        silent(_requests(refused=0, good=100)),
        silent({series("rest_client_requests_total", code="403", method="GET", **_HOST): then((170, 0), (400, 3))}),
    ],
    "TrainmasterRequestsLimited": [
        fires(
            observed(
                "rest_client_rate_limiter_duration_seconds",
                {"1.0": 10, "2.0": 20, "8.0": 60, "+Inf": 60},
                verb="PATCH",
                **_HOST,
            ),
            verb="PATCH",
        ),
        silent(
            observed(
                "rest_client_rate_limiter_duration_seconds", {"1.0": 60, "2.0": 60, "+Inf": 60}, verb="PATCH", **_HOST
            )
        ),
    ],
    "TrainmasterCacheNotFilled": [
        fires(
            {
                series("trainmaster_informer_synced", resource="pods"): always(0),
                series("trainmaster_informer_synced", resource="jobsets"): always(1),
            },
            pod="manager-a",
            resource="pods",
        ),
        silent({series("trainmaster_informer_synced", resource="pods"): then((5, 0), (400, 1))}),
        silent({series("trainmaster_informer_synced", resource="pods"): then((175, 1), (400, 0))}),
    ],
    "TrainmasterCacheStale": [
        fires(
            {series("trainmaster_informer_age_seconds", resource="pods"): growing(60)}, pod="manager-a", resource="pods"
        ),
        silent({series("trainmaster_informer_age_seconds", resource="pods"): always(70)}),
        silent({series("trainmaster_informer_age_seconds", resource="pods"): then((177, 30), (400, 310))}),
    ],
    "TrainmasterWatchesFail": [
        fires({series("trainmaster_informer_failures_total", resource="pods"): growing(2)}, resource="pods"),
        silent({series("trainmaster_informer_failures_total", resource="pods"): growing(0.1)}),
        silent({series("trainmaster_informer_failures_total", resource="pods"): always(500)}),
    ],
    "TrainmasterObjectsUnreadable": [
        fires(
            {series("trainmaster_informer_unreadable_objects", resource="trainjobs"): always(1)}, resource="trainjobs"
        ),
        silent({series("trainmaster_informer_unreadable_objects", resource="trainjobs"): always(0)}),
    ],
    "TrainmasterWebhookErrors": [fires(_reviews(5), **_WEBHOOK), silent(_reviews(0)), silent(_reviews(0.5))],
    "TrainmasterWebhookSlow": [
        fires(
            observed(
                "controller_runtime_webhook_latency_seconds", {"1.0": 10, "2.5": 20, "5.0": 60, "+Inf": 60}, **_WEBHOOK
            ),
            **_WEBHOOK,
        ),
        silent(observed("controller_runtime_webhook_latency_seconds", {"1.0": 60, "2.5": 60, "+Inf": 60}, **_WEBHOOK)),
    ],
    "TrainmasterWebhookConfigurationMissing": [fires(_missing(1), configuration=_CONFIGURATION), silent(_missing(0))],
    "TrainmasterCertificateUnusable": [
        fires({series("certwatcher_read_certificate_errors_total"): "0x175 1x400"}, pod="manager-a"),
        silent({series("certwatcher_read_certificate_errors_total"): always(0)}),
        silent({series("certwatcher_read_certificate_errors_total"): always(2)}),
    ],
    "TrainmasterCertificateExpires": [
        fires(_expiry(serving=_AT + 6 * _DAY, ca=_AT + 90 * _DAY), certificate="serving"),
        fires(_expiry(serving=_AT - 1), certificate="serving"),
        silent(_expiry(serving=_AT + 8 * _DAY, ca=0)),
    ],
    "TrainmasterProgressReportsFail": [
        fires(_reports(good=90, limited=6, failed=4)),
        silent(_reports(good=90, refused=10, limited=0)),
        silent(_reports(good=0, failed=0)),
    ],
}
