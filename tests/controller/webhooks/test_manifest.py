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
from trainmaster.runtime.jsontree import JsonObject

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


@pytest.mark.guarantee("H-5", "H-6")
@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"])
def test_every_webhook_has_ten_seconds_no_side_effects_and_fails_closed(webhook: JsonObject) -> None:
    assert webhook["timeoutSeconds"] == 10
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["sideEffects"] == "None"
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert "matchConditions" not in webhook


@pytest.mark.guarantee("H-9")
@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"])
def test_a_webhook_is_asked_about_one_kind_of_ours_and_no_subresource(webhook: JsonObject) -> None:
    (rule,) = webhook["rules"]
    kind = webhook["name"].split(".")[1]
    assert rule == {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [f"{kind}s"],
    }


@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook["name"])
def test_the_rules_of_runtimes_can_be_switched_off_by_a_label(webhook: JsonObject) -> None:
    selector = {
        "matchExpressions": [
            {"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]}
        ]
    }
    assert webhook.get("objectSelector") == (selector if "runtime" in webhook["name"] else None)


def test_every_path_is_served_and_every_served_path_is_registered() -> None:
    served = AdmissionHandlers(Framework([]), {}, KnownServer(), workers=Workers(), clock=SystemClock())
    handlers = served.handlers()
    assert {webhook["clientConfig"]["service"]["path"] for webhook in WEBHOOKS} == set(handlers)
