"""The live view, for terminals of any size."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console
from support.top import node, replica, snapshot, top_job

from trainmaster.controller.cli.jobs.rows import has_words
from trainmaster.controller.cli.top.attention import Order, ordered
from trainmaster.controller.cli.top.live import view as view_of
from trainmaster.controller.cli.top.managers import Managers
from trainmaster.controller.cli.top.snapshot import Snapshot, plain_lines

GPU = "nvidia.com/gpu"
BUSY = snapshot(
    top_job("mnist", percentage=42, remaining=90, restarts=1),
    top_job("stuck", "Waiting", trouble="Unschedulable"),
    top_job("gone", "Failed", ended=100, trouble="OutOfMemory"),
    nodes=[
        node("gpu-1", has={"cpu": "8", "memory": "32Gi", GPU: "4"}, asked={"cpu": "2500m", "memory": "8Gi", GPU: "4"}),
        node("gpu-2", status="NotReady"),
    ],
    managers=Managers([replica(), replica("manager-2", leads=False)]),
)


def view(of: Snapshot, columns: int = 120, lines: int = 24, *, words: str = "") -> list[str]:
    shown = io.StringIO()
    jobs = ordered([job for job in of.jobs if has_words(job, words)], Order.ATTENTION, of.now)
    Console(file=shown, width=columns, height=lines).print(view_of(of, jobs, lines=lines))
    rows = shown.getvalue().splitlines()
    assert all(cell_len(row) <= columns for row in rows)
    return [row.rstrip() for row in rows]


def test_everything_is_told_where_there_is_room() -> None:
    assert [row for row in view(BUSY) if row] == [
        "12:00:00 UTC   namespace team   https://cluster",
        "jobs     3: 1 in trouble, 1 failed lately, 1 running",
        "manager  kubeflow-system/manager-1   ready   leads",
        "manager  kubeflow-system/manager-2   ready",
        "nodes    1/2 ready   cpu 2.5/8 31%   memory 8Gi/32Gi 25%   nvidia.com/gpu 4/4 100%",
        "NAME   STATE    NODES  PROGRESS  LEFT  RESTARTS  AGE  CAUSE",
        "stuck  Waiting  2/2    -         -     0         60s  Unschedulable: because of Unschedulable",
        "gone   Failed   2      -         -     0         60s  OutOfMemory: because of OutOfMemory",
        "mnist  Running  2/2    42%       1:30  1         60s",
        "NODE   STATUS    CPU        MEMORY        NVIDIA.COM/GPU",
        "gpu-2  NotReady  0/8 0%     0Gi/32Gi 0%   -",
        "gpu-1  Ready     2.5/8 31%  8Gi/32Gi 25%  4/4 100%",
        "Ctrl-C quits   --sort and --filter choose jobs   trainmaster explain JOB says more",
    ]
    # On a narrow terminal names and causes are cut, on a low one the jobs stay.
    assert any(row.startswith("stuck") and row.endswith("…") for row in view(BUSY, columns=70))
    assert any("stuck" in row for row in view(BUSY, lines=9)[:9])


def test_thousands_of_jobs_and_nodes_are_some_rows_and_a_count() -> None:
    many = snapshot(*(top_job(f"job-{number:05}", age=number + 1) for number in range(10_000)))
    rows = view(many)
    assert rows[1] == "jobs     10,000: 10,000 running"
    assert sum("job-0" in row for row in rows) == 24 - 9
    assert "and 9,985 more: 9,985 running" in rows
    assert sum("job-0" in row for row in view(many, words="job-00012")) == 1
    rows = view(snapshot(nodes=[node(f"node-{number}") for number in range(500)]))
    assert "and 495 more nodes" in rows


def test_what_is_not_there_or_not_known_is_said() -> None:
    # An outage and what may not be read are told.
    away = "GET https://cluster/api: https://cluster refused the connection; is the server running?"
    rows = view(snapshot(top_job("mnist"), nodes=None, outage=away, unread=["nodes: no permission"]), columns=80)
    assert rows[1] == "this may be out of date: https://cluster refused the connection"
    assert "nodes    not known" in rows
    assert "not read: nodes: no permission" in rows
    # A namespace without jobs, with a terminal or without.
    for rows in (view(snapshot()), [*plain_lines(snapshot(), [])]):
        assert "no jobs in namespace team; -A shows all namespaces" in rows
    assert "no jobs" in view(snapshot(namespace=None))
    for rows in (view(BUSY, words="absent"), [*plain_lines(BUSY, [])]):
        assert "no job matches --filter" in rows
    # Without a manager that is said.
    rows = view(snapshot(managers=Managers((), "none is installed; nothing becomes of TrainJobs: trainmaster doctor")))
    assert "manager  none is installed; nothing becomes of TrainJobs: trainmaster doctor" in rows
    rows = view(
        snapshot(managers=Managers([replica(is_ready=False, leads=False, problem="CrashLoopBackOff", restarts=2)]))
    )
    assert "manager  kubeflow-system/manager-1   not ready: CrashLoopBackOff   2 restarts" in rows


def test_nodes_on_which_several_jobs_failed_in_a_day_are_named() -> None:
    day = 24 * 3600
    jobs = [top_job("a", failures=[("bad", 1), ("bad", 2), ("old", 1)]), top_job("b", failures=[("bad", day - 1)])]
    jobs.append(top_job("c", failures=[("old", day + 1), ("once", 1)]))
    assert "failing  jobs that failed on one node in a day: bad 2" in view(snapshot(*jobs))
    assert not any(row.startswith("failing") for row in view(snapshot(*jobs[1:])))
    every = [top_job(name, failures=[(f"n{number}", 1) for number in range(7)]) for name in "ab"]
    assert any(row.endswith("n3 2, n4 2, and 2 more") for row in view(snapshot(*every)))


def test_what_servers_say_takes_a_row() -> None:
    odd = "first\nsecond\x1b[2J\u2028third"
    rows = view(
        snapshot(
            top_job("mnist"),
            managers=Managers([replica("b", is_ready=False, problem=odd)], odd),
            outage=odd,
            unread=[odd],
        )
    )
    assert sum("first second third" in row for row in rows) == 4
    assert not any("\x1b" in row or "\u2028" in row for row in rows)
    hostile = top_job("odd\x9b2J", "Waiting\x1b[2J", trouble="Trouble\x1b]0;PWN\x07\u202e")
    assert not set("\x9b\x1b\x07\u202e") & set("".join(view(snapshot(hostile))))
    # Namespaces and kinds are told where there are several.
    rows = view(snapshot(top_job("a"), top_job("b", kind="TFJob", namespace="other"), namespace=None))
    header = next(row for row in rows if "NAME " in row)
    assert header.split()[:3] == ["NAMESPACE", "KIND", "NAME"]
