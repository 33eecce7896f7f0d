"""ManagerAbsent, AnotherManagerLeads and JobSetControllerAbsent: by what is not done, and by whom one sees."""

from __future__ import annotations

from typing import Any

from support.job_views import at, condition, event, job, jobset, moment, pytorchjob, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.controller.explain.view import Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

NEGLECTED: dict[str, Any] = {"jobsets": [], "snapshots": [], "pods": []}


def lease(renewed: float, *, holder: str = "manager-1") -> JsonObject:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at(renewed), "acquireTime": at(0)}
    return {"metadata": {"name": "trainer.kubeflow.org", "namespace": "kubeflow"}, "spec": spec}


def deployment(available: int, *, replicas: int = 1, namespace: str = "kubeflow") -> JsonObject:
    status = {"availableReplicas": available} if available else {}
    return {"metadata": {"name": "manager", "namespace": namespace}, "spec": {"replicas": replicas}, "status": status}


def test_a_job_that_nobody_looks_at_lacks_a_manager_after_a_while_most_likely() -> None:
    # A job that nobody looks at lacks a manager most likely.
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
    # A leader that neglects the job is another manager.
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
