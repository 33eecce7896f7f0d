"""The state of a job and of its ranks, in words."""

from datetime import UTC, datetime

from support.followed_jobs import condition, job_status, pod, pods

from trainmaster.controller.cli.follow.summary import clock, rank_groups, summary
from trainmaster.controller.kube.clock import seconds_between


def test_a_job_is_in_the_state_that_matters_most() -> None:
    """The words are those of `trainmaster list`."""
    assert job_status().state == "Waiting"
    ready, crashed = pod("Running"), pod("Running")
    last = {"terminated": {"exitCode": 1, "finishedAt": "2024-01-01T00:00:05Z"}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    crashed["status"]["containerStatuses"] = [{"name": "node", "restartCount": 1, "lastState": last, "state": waits}]
    assert job_status(pods={"0": ready}).state == "Running"
    assert job_status(pods={"0": ready} | pods("Pending", group="late")).state == "Waiting"
    assert job_status(pods={"0": crashed}).state == "Restarting"
    assert job_status(pods={"0": crashed}, conditions=condition("ContainerFailed")).state == "ContainerFailed"
    assert job_status(conditions=condition("Blocked")).state == "Blocked"
    assert job_status(conditions=condition("Blocked") | condition("Suspended")).state == "Blocked"
    assert job_status(conditions=condition("Suspended") | condition("Failed")).state == "Failed"
    assert job_status(deleted=True).state == "Deleted"
    assert job_status(conditions=condition("Complete"), deleted=True).state == "Complete"


def test_groups_come_in_the_order_in_which_they_start() -> None:
    there = (
        pods("Running", "Pending") | pods("Running", group="launcher") | pods("Succeeded", group="model-initializer")
    )
    groups = rank_groups(job_status(pods=there, nodes=4))
    assert [(group.name, group.text) for group in groups] == [
        ("model-initializer", "1/1 done"),
        ("launcher", "1/1 running"),
        ("node", "1/4 running, 1 pending"),
    ]
    assert [group.is_done for group in groups] == [True, False, False]
    assert summary(groups) == "launcher 1/1 running; node 1/4 running, 1 pending"
    assert summary(groups[2:]) == "1/4 running, 1 pending"


def test_ranks_are_counted_before_they_have_pods_and_once_when_they_were_replaced() -> None:
    assert [(group.name, group.text) for group in rank_groups(job_status(nodes=4))] == [("node", "0/4 pods")]
    assert rank_groups(job_status()) == []
    assert summary([]) == ""
    there = {phase: pod(phase, created=f"2024-01-01T00:00:0{at}Z") for phase, at in (("Running", 9), ("Failed", 0))}
    assert [group.text for group in rank_groups(job_status(pods=there, nodes=1))] == ["1/1 running"]


def test_what_keeps_pods_from_running_is_named() -> None:
    for there, text in (
        (pods("Running", "Pending", reason="ImagePullBackOff"), "1/2 running, 1 ImagePullBackOff"),
        (pods("Pending", "Pending", reason="ContainerCreating"), "2/2 ContainerCreating"),
        (pods("Failed", "Running"), "1/2 running, 1 failed"),
    ):
        assert [group.text for group in rank_groups(job_status(pods=there))] == [text]


def test_durations() -> None:
    seconds = (0, 59.9, 83, 3599, 3600, 3723, 90000)
    assert [clock(each) for each in seconds] == ["0:00", "0:59", "1:23", "59:59", "1:00:00", "1:02:03", "1d 01:00"]


def test_seconds_between_times_of_servers() -> None:
    """Clocks differ: nothing lasts less than no time."""
    assert seconds_between("2024-01-01T00:00:00Z", "2024-01-01T00:01:23Z") == 83
    assert seconds_between("2024-01-01T00:00:00Z", datetime(2024, 1, 1, 0, 0, 5, tzinfo=UTC)) == 5
    assert seconds_between("2024-01-01T00:00:09Z", "2024-01-01T00:00:00Z") == 0
    for start, end in ((None, "2024-01-01T00:00:00Z"), ("2024-01-01T00:00:00Z", None), ("soon", "later"), ("", "")):
        assert seconds_between(start, end) is None
    assert seconds_between("2024-01-01T00:00:00", "2024-01-01T00:00:00Z") is None, "one has no time zone"
