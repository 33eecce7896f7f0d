"""Refused by a webhook or a policy, and whose it is; controllers that are absent, by what is not done."""

from typing import Any

import pytest
from support.job_views import at, condition, event, job, jobset, moment, pytorchjob, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty, Finding
from trainmaster.controller.explain.view import Unread, WhyUnread
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
    found = blocked(DENIED, webhooks=[configuration(release_name="guards", release_namespace="acme")])
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


NEGLECTED: dict[str, Any] = {"jobsets": [], "snapshots": [], "pods": []}


def lease(renewed: float, *, holder: str = "manager-1") -> JsonObject:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at(renewed), "acquireTime": at(0)}
    return {"metadata": {"name": "trainer.kubeflow.org", "namespace": "kubeflow"}, "spec": spec}


def deployment(available: int, *, replicas: int = 1, namespace: str = "kubeflow") -> JsonObject:
    status = {"availableReplicas": available} if available else {}
    return {"metadata": {"name": "manager", "namespace": namespace}, "spec": {"replicas": replicas}, "status": status}


def test_a_job_that_nobody_looks_at_lacks_a_manager_after_a_while_most_likely() -> None:
    (found,) = explain(view(**NEGLECTED, now=40)).findings
    assert (found.cause, found.certainty) == (Cause.MANAGER_ABSENT, Certainty.LIKELY)
    assert found.evidence[0].text == "has no status, no snapshot and no JobSet"
    # A manager has its time.
    assert not explain(view(**NEGLECTED, now=29)).findings
    # A job of kubeflow org that nobody looks at lacks a manager.
    (found,) = explain(view(pytorchjob(), pods=[])).findings
    assert found.cause is Cause.MANAGER_ABSENT
    # A job that is blocked has a manager.
    blocked = explain(view(trainjob(condition("Blocked", "RuntimeNotFound", "x")), **NEGLECTED)).findings
    assert [each.cause for each in blocked] == [Cause.RUNTIME_MISSING]


def test_a_manager_that_is_certainly_away() -> None:
    # An expired lease or none or no replica makes it certain.
    for fields, text in (
        ({"leases": [lease(100)]}, "was held by manager-1 last, who does not renew it any more"),
        ({"leases": []}, "exists in no namespace: nobody leads"),
        ({"managers": [deployment(0)]}, "in namespace kubeflow has 0 of 1 replicas available"),
        ({"managers": []}, "there is no Deployment of a manager in any namespace"),
    ):
        (found,) = explain(view(**NEGLECTED, **fields)).findings
        assert found.cause is Cause.MANAGER_ABSENT
        assert found.evidence[-1].text.endswith(text)
        assert (found.certainty is Certainty.CERTAIN) == (fields != {"leases": []})
    # An end that the job does not know of tells that the manager is away.
    ended = jobset(condition("Completed", since=100))
    pods = [running(rank) for rank in range(4)]
    (found,) = explain(view(trainjob(status={"jobsStatus": []}), jobsets=[ended], pods=pods)).findings
    assert (found.cause, found.since) == (Cause.MANAGER_ABSENT, moment(100))


def test_a_leader_that_neglects_a_job_is_another_manager() -> None:
    (found,) = explain(view(**NEGLECTED, leases=[lease(295)])).findings
    assert (found.cause, found.certainty) == (Cause.ANOTHER_MANAGER_LEADS, Certainty.LIKELY)
    assert found.evidence[0].text == "in namespace kubeflow is held by manager-1"
    # A job for another controller is left alone.
    managed_by = "kueue.x-k8s.io/multikueue"
    (found,) = explain(view(trainjob(managedBy=managed_by), **NEGLECTED)).findings
    assert (found.cause, found.certainty) == (Cause.ANOTHER_MANAGER_LEADS, Certainty.CERTAIN)
    assert managed_by in found.evidence[0].text
    (found,) = explain(view(pytorchjob(managedBy=managed_by), pods=[])).findings
    assert found.evidence[0].text.startswith("spec.runPolicy.managedBy is")


def bare_jobset() -> JsonObject:
    found = jobset(created=1)
    del found["status"]
    return found


def test_a_jobset_that_nobody_looks_at_lacks_its_controller() -> None:
    # A jobset without a status lacks its controller.
    (found,) = explain(view(jobsets=[bare_jobset()], jobs=[], pods=[])).findings
    assert (found.cause, found.certainty, found.since) == (Cause.JOBSET_CONTROLLER_ABSENT, Certainty.LIKELY, moment(1))
    (found,) = explain(view(jobsets=[bare_jobset()], jobs=[], pods=[], jobset_controllers=[deployment(0)])).findings
    assert found.certainty is Certainty.CERTAIN
    # Where jobsets are not served jobset is absent.
    unread = [Unread("jobsets.jobset.x-k8s.io", WhyUnread.NOT_SERVED, "not served")]
    (found,) = explain(view(trainjob(status={"x": 1}), jobsets=None, pods=[], unread=unread)).findings
    assert (found.cause, found.certainty) == (Cause.JOBSET_CONTROLLER_ABSENT, Certainty.CERTAIN)


def test_a_jobset_whose_controller_does_something_has_one() -> None:
    refused = event("JobCreationFailed", "spec.image: Required value", kind="JobSet")
    found = explain(view(jobsets=[bare_jobset()], jobs=[], pods=[], events=[refused])).findings
    assert [each.cause for each in found] == [Cause.REFUSED]
    # A jobset that ignores the end of its jobs lacks its controller.
    failed = job(condition("Failed", "BackoffLimitExceeded", since=100))
    found = explain(view(jobsets=[jobset()], jobs=[failed], pods=[running(0)])).findings
    assert found[0].cause is Cause.JOBSET_CONTROLLER_ABSENT
    restarted = jobset()
    restarted["status"]["restarts"] = 1
    found = explain(view(jobsets=[restarted], jobs=[failed], pods=[running(0, attempt=1)])).findings
    assert all(each.cause is not Cause.JOBSET_CONTROLLER_ABSENT for each in found)
