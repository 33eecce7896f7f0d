"""The order of jobs, and the filter."""

from __future__ import annotations

from support.top import NOW, top_job

from trainmaster.controller.cli.top.cluster.attention import Attention, Order, attention, matching, ordered

JOBS = (
    top_job("done", "Complete", age=9000, ended=10),
    top_job("succeeded", "Succeeded", kind="PyTorchJob", age=9000, ended=20),
    top_job("old-failure", "Failed", age=9000, ended=7200, trouble="OutOfMemory"),
    top_job("new-failure", "Failed", age=9000, ended=100, trouble="OutOfMemory"),
    top_job("newer-failure", "Failed", age=9000, ended=50),
    top_job("runs", age=50, percentage=40),
    top_job("runs-longer", age=500, restarts=2, percentage=90),
    top_job("waits", "Pending", age=30),
    top_job("waits-longer", "Created", kind="TFJob", age=300),
    top_job("held", "Suspended", trouble="Suspended"),
    top_job("stuck", "Pending", trouble="Unschedulable", age=100),
    top_job("limps", restarts=1, trouble="ContainerFailed", age=200),
)


def names(order: Order) -> list[str]:
    return [job.row.name for job in ordered(JOBS, order, NOW)]


def test_what_is_stuck_or_has_just_failed_comes_first_and_what_is_over_last() -> None:
    assert names(Order.ATTENTION) == [
        "limps", "stuck", "newer-failure", "new-failure", "waits-longer", "waits", "runs-longer", "runs", "held",
        "old-failure", "done", "succeeded",
    ]  # fmt: skip
    # A failure is news for an hour.
    assert attention(top_job("a", "Failed", ended=3599), NOW) == Attention.FAILED_LATELY
    assert attention(top_job("a", "Failed", ended=3601), NOW) == Attention.FAILED
    assert attention(top_job("a", "Failed"), NOW) == Attention.FAILED  # nobody knows when


def test_other_orders() -> None:
    assert names(Order.NAME)[:3] == ["done", "held", "limps"]
    assert names(Order.AGE)[0] == "waits"
    assert names(Order.RESTARTS)[:3] == ["runs-longer", "limps", "stuck"]
    assert names(Order.PROGRESS)[:3] == ["runs-longer", "runs", "limps"]
    seen = [Order.ATTENTION]
    while (following := seen[-1].next) != Order.ATTENTION:
        seen.append(following)
    assert set(seen) == set(Order)


def test_a_filter_looks_at_all_that_is_shown() -> None:
    found = {"": len(JOBS), "failure": 3, "FAILURE outofmemory": 2, "tfjob": 1, "team/runs": 2, "pending": 2, "none": 0}
    assert {text: len(matching(JOBS, text)) for text in found} == found
