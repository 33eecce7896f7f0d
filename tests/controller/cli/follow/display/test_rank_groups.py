"""Pods of a job by what they are for."""

from __future__ import annotations

from support.followed_jobs import job_status, pod, pods

from trainmaster.controller.cli.follow.display.rank_groups import rank_groups, summary


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
    assert summary(groups) == "launcher 1/1 running"


def test_ranks_are_counted_before_they_have_pods_and_once_when_they_were_replaced() -> None:
    assert [(group.name, group.text) for group in rank_groups(job_status(nodes=4))] == [("node", "0/4 pods")]
    assert rank_groups(job_status()) == []
    assert summary([]) == ""
    there = {
        "new": pod("Running", created="2024-01-01T00:00:09Z"),
        "old": pod("Failed", created="2024-01-01T00:00:00Z"),
    }
    assert [group.text for group in rank_groups(job_status(pods=there, nodes=1))] == ["1/1 running"]


def test_what_keeps_pods_from_running_is_named() -> None:
    (group,) = rank_groups(job_status(pods=pods("Running", "Pending", reason="ImagePullBackOff")))
    assert group.text == "1/2 running, 1 ImagePullBackOff"
    assert group.has_trouble
    (group,) = rank_groups(job_status(pods=pods("Pending", "Pending", reason="ContainerCreating")))
    assert group.text == "2/2 ContainerCreating"
    assert not group.has_trouble
    (group,) = rank_groups(job_status(pods=pods("Failed", "Running")))
    assert (group.text, group.has_trouble) == ("1/2 running, 1 failed", True)
