"""The state of a followed job: one word for what matters most of it."""

from __future__ import annotations

from support.followed_jobs import condition, job_status, pods


def test_a_job_is_in_the_state_that_matters_most() -> None:
    assert job_status().state == "Pending"
    assert job_status(pods=pods("Running")).state == "Running"
    assert job_status(conditions=condition("Blocked")).state == "Blocked"
    assert job_status(conditions=condition("Blocked") | condition("Suspended")).state == "Suspended"
    assert job_status(conditions=condition("Suspended") | condition("Failed")).state == "Failed"
    assert job_status(deleted=True).state == "Deleted"
    assert job_status(conditions=condition("Complete"), deleted=True).state == "Complete"
