"""Refused by a webhook: whose it is, what it calls and whether anybody is there; and by policies."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_views import condition, event, job, jobset, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Finding
from trainmaster.runtime.jsontree import JsonObject

DENIED = 'admission webhook "team.policies.acme.io" denied the request: no team label'
FAILED = (
    'Internal error occurred: failed calling webhook "team.policies.acme.io": failed to call webhook: '
    'Post "https://policies.acme.svc:443/validate?timeout=10s": '
)
NOBODY = "in namespace acme has no endpoints, or does not exist"
CALLS = "its webhook team.policies.acme.io calls Service acme/policies/validate; failurePolicy Fail"


def configuration(*, url: str = "", labels: JsonObject | None = None, **annotations: str) -> JsonObject:
    service = {"namespace": "acme", "name": "policies", "path": "/validate"}
    client = {"url": url} if url else {"service": service}
    others = {"name": "others.acme.io", "clientConfig": {"service": {**service, "name": "others"}}}
    annotated = {f"meta.helm.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "policies", "labels": labels or {}, "annotations": annotated},
        "webhooks": [others, {"name": "team.policies.acme.io", "clientConfig": client, "failurePolicy": "Fail"}],
    }


def slices(*ready: bool, of: str = "policies", namespace: str = "acme") -> JsonObject:
    return {
        "kind": "EndpointSlice",
        "metadata": {"name": "x", "namespace": namespace, "labels": {"kubernetes.io/service-name": of}},
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": each}} for each in ready],
    }


def blocked(message: str, **known: Any) -> Finding:
    told = condition("Blocked", "ApplyFailed", message, since=1)
    found = explain(view(trainjob(told), jobsets=[], pods=[], **known)).findings[0]
    assert found.cause is Cause.REFUSED
    return found


def test_a_webhook_that_refuses_is_told_with_whose_it_is() -> None:
    # A webhook that refuses is told with whose it is.
    helm = configuration(release_name="guards", release_namespace="acme")
    found = blocked(DENIED, webhooks=[helm])
    assert [(str(each.object), each.text) for each in found.evidence[1:]] == [
        ("ValidatingWebhookConfiguration policies", f"{CALLS}; it belongs to the Helm release guards in namespace acme")
    ]
    assert "team.policies.acme.io does not allow it" in found.what_next[0]
    # Whose it is labels tell as well.
    labelled = configuration(url="https://policies.acme.io/x", labels={"app.kubernetes.io/part-of": "kyverno"})
    found = blocked(DENIED, webhooks=[labelled])
    assert found.evidence[1].text == (
        "its webhook team.policies.acme.io calls https://policies.acme.io/x; failurePolicy Fail; it belongs to kyverno"
    )
    # Pods that a webhook refuses are told with it too.
    events = [event("FailedCreate", f"Error creating: {DENIED}", kind="Job", name="demo-node-0")]
    of_pods = explain(view(jobsets=[jobset()], jobs=[job()], pods=[], events=events, webhooks=[configuration()]))
    assert [each.object.kind for each in of_pods.findings[0].evidence] == ["Job", "ValidatingWebhookConfiguration"]


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([slices(True, False)], "in namespace acme has 1 ready endpoints of 2"),
        ([slices(False)], "in namespace acme has 0 ready endpoints of 1"),
        ([], NOBODY),
        ([slices(True, of="others"), slices(True, namespace="b")], NOBODY),
    ],
)
def test_of_one_that_does_not_answer_its_endpoints_are_told(known: list[JsonObject], told: str) -> None:
    found = blocked(f"{FAILED}context deadline exceeded", webhooks=[configuration()], endpoint_slices=known)
    assert (str(found.evidence[2].object), found.evidence[2].text) == ("Service policies", told)
    assert "see its pods: kubectl get pods -n acme" in found.what_next


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("tls: failed to verify certificate: x509: unknown authority", "does not trust its certificate"),
        ("context deadline exceeded", "it is too slow, or a network policy"),
        ('no endpoints available for service "policies"', "nobody is there"),
        ('service "policies" not found', "was it uninstalled?"),
        ("EOF", "see its Service and its pods"),
    ],
)
def test_why_it_does_not_answer_is_read_from_the_words_of_the_api_server(error: str, advice: str) -> None:
    found = blocked(FAILED + error)
    assert advice in found.what_next[0]
    assert "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations" in found.what_next[1]


def test_policies_and_webhooks_that_convert_are_told_apart() -> None:
    policy = "it is forbidden: ValidatingAdmissionPolicy 'teams' with binding 'all' denied request: no team"
    assert blocked(policy).what_next[0].endswith("kubectl describe validatingadmissionpolicy teams")
    converts = 'conversion webhook for jobset.x-k8s.io/v1alpha2, Kind=JobSet failed: Post "https://a": x509: expired'
    assert blocked(converts).what_next[0] == (
        "the webhook that converts jobset.x-k8s.io/v1alpha2 does not answer: the API server does not trust its "
        "certificate: see who renews that, and the caBundle of the configuration"
    )
