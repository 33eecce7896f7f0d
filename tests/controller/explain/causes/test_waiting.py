"""What the condition Waiting tells where nobody could look at pods: the web page, and users without that right."""

from __future__ import annotations

from support.job_views import condition, jobset, moment, pending, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.waiting import told_to_wait
from trainmaster.controller.explain.explanation import explain

TOLD = "a volume of it is not there: PersistentVolumeClaim imagenet: it does not exist"


def test_what_the_manager_found_is_the_cause_where_nobody_else_could_look() -> None:
    # What the manager found is the cause where nobody else could look.
    waits = trainjob(condition("Waiting", "VolumePending", TOLD, since=33))
    (found,) = explain(view(waits, jobsets=[jobset()])).findings
    assert (found.cause, found.since) == (Cause.VOLUME_PENDING, moment(33))
    assert [each.text for each in found.evidence] == [TOLD]
    # What to do names the job.
    waits = trainjob(condition("Waiting", "InitContainerFailed", "rank 0: init container fetch still runs"))
    (found,) = told_to_wait(view(waits))
    assert found.what_next == ("read its log: trainmaster logs demo -n team",)
    # Who looked at pods knows better and what the manager does not know is not told.
    waits = trainjob(condition("Waiting", "VolumePending", TOLD))
    assert not list(told_to_wait(view(waits, pods=[pending(0)])))
    assert not list(told_to_wait(view(trainjob(condition("Waiting", "Unknown", "nothing tells why")))))
