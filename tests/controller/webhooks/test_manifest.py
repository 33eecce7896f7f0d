"""The registration that is deployed.

- H-5: it says how long a response may take, and what happens without one.
- H-9: it names nothing that the manager needs to start.
"""

from __future__ import annotations

import pytest
from support.admission import manifest
from support.resolutions import KnownServer

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.webhooks import AdmissionHandlers, Workers
from trainmaster.runtime.framework import Framework

WEBHOOKS = [webhook for configuration in manifest() for webhook in configuration["webhooks"]]


def test_names_and_order_are_those_of_the_original() -> None:
    assert [configuration["metadata"]["name"] for configuration in manifest()] == [
        "defaulter.trainer.kubeflow.org",
        "validator.trainer.kubeflow.org",
    ]
    assert [webhook["name"] for webhook in WEBHOOKS] == [
        "defaulter.trainjob.trainer.kubeflow.org",
        "validator.clustertrainingruntime.trainer.kubeflow.org",
        "validator.trainingruntime.trainer.kubeflow.org",
        "validator.trainjob.trainer.kubeflow.org",
    ]


SELECTOR = {
    "matchExpressions": [
        {"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]}
    ]
}


@pytest.mark.guarantee("H-5", "H-6", "H-9")
def test_every_webhook_is_asked_about_one_kind_has_ten_seconds_no_side_effects_and_fails_closed() -> None:
    """Those of runtimes can be switched off by a label."""
    for webhook in WEBHOOKS:
        assert webhook["timeoutSeconds"] == 10
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "None"
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert "matchConditions" not in webhook
        (rule,) = webhook["rules"]
        assert rule == {
            "apiGroups": ["trainer.kubeflow.org"],
            "apiVersions": ["v1alpha1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [f"{webhook['name'].split('.')[1]}s"],
        }
        assert webhook.get("objectSelector") == (SELECTOR if "runtime" in webhook["name"] else None)


def test_every_path_is_served_and_every_served_path_is_registered() -> None:
    served = AdmissionHandlers(Framework([]), {}, KnownServer(), workers=Workers(), clock=SystemClock())
    handlers = served.handlers()
    assert {webhook["clientConfig"]["service"]["path"] for webhook in WEBHOOKS} == set(handlers)
