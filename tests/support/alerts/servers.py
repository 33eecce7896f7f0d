"""Scenarios of the alerts about webhooks, certificates and the status server."""

from __future__ import annotations

from support.alerts.scenario import Case, always, fires, growing, observed, series, silent

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
    "TrainmasterWebhookErrors": Case(
        fires=(fires(_reviews(5), **_WEBHOOK),), silent=(silent(_reviews(0)), silent(_reviews(0.5)))
    ),
    "TrainmasterWebhookSlow": Case(
        fires=(
            fires(
                observed(
                    "controller_runtime_webhook_latency_seconds",
                    {"1.0": 10, "2.5": 20, "5.0": 60, "+Inf": 60},
                    **_WEBHOOK,
                ),
                **_WEBHOOK,
            ),
        ),
        silent=(
            silent(
                observed("controller_runtime_webhook_latency_seconds", {"1.0": 60, "2.5": 60, "+Inf": 60}, **_WEBHOOK)
            ),
        ),
    ),
    "TrainmasterWebhookConfigurationMissing": Case(
        fires=(fires(_missing(1), configuration=_CONFIGURATION),), silent=(silent(_missing(0)),)
    ),
    "TrainmasterCertificateUnusable": Case(
        fires=(fires({series("certwatcher_read_certificate_errors_total"): "0x175 1x400"}, pod="manager-a"),),
        silent=(
            silent({series("certwatcher_read_certificate_errors_total"): always(0)}),
            silent({series("certwatcher_read_certificate_errors_total"): always(2)}),
        ),
    ),
    "TrainmasterCertificateExpires": Case(
        fires=(
            fires(_expiry(serving=_AT + 6 * _DAY, ca=_AT + 90 * _DAY), certificate="serving"),
            fires(_expiry(serving=_AT - 1), certificate="serving"),
        ),
        silent=(silent(_expiry(serving=_AT + 8 * _DAY, ca=0)),),
    ),
    "TrainmasterProgressReportsFail": Case(
        fires=(fires(_reports(good=90, limited=6, failed=4)),),
        silent=(silent(_reports(good=90, refused=10, limited=0)), silent(_reports(good=0, failed=0))),
    ),
}
