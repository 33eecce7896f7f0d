"""What the condition Waiting tells where nobody could look at pods: the web page, and users without that right."""

from __future__ import annotations

from support.job_views import condition, jobset, moment, pending, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.waiting import told_to_wait
from trainmaster.controller.explain.explanation import explain

TOLD = "a volume of it is not there: PersistentVolumeClaim imagenet: it does not exist"


def test_what_the_manager_found_is_the_cause_where_nobody_else_could_look() -> None:
    waits = trainjob(condition("Waiting", "VolumePending", TOLD, since=33))
    (found,) = explain(view(waits, jobsets=[jobset()])).findings
    assert (found.cause, found.since) == (Cause.VOLUME_PENDING, moment(33))
    assert [each.text for each in found.evidence] == [TOLD]


def test_what_to_do_names_the_job() -> None:
    waits = trainjob(condition("Waiting", "InitContainerFailed", "rank 0: init container fetch still runs"))
    (found,) = told_to_wait(view(waits))
    assert found.what_next == ("read its log: trainmaster logs demo -n team",)


def test_who_looked_at_pods_knows_better_and_what_the_manager_does_not_know_is_not_told() -> None:
    waits = trainjob(condition("Waiting", "VolumePending", TOLD))
    assert not list(told_to_wait(view(waits, pods=[pending(0)])))
    assert not list(told_to_wait(view(trainjob(condition("Waiting", "Unknown", "nothing tells why")))))
