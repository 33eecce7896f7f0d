"""What is drawn of a job: its state, pods and progress, lines made harmless, rows at 40, 80 and 200 columns."""

from datetime import UTC, datetime
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
from rich.cells import cell_len
from support.followed_jobs import condition, failure, job_status, pod, pods, set_conditions, set_failures

from trainmaster.controller.cli.follow import frame as module
from trainmaster.controller.cli.follow.frame import ASCII, UNICODE, Attempt, Glyphs, JobView, facts_of, frame
from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.summary import clock, rank_groups, summary
from trainmaster.controller.cli.output import plain, printable, printable_lines
from trainmaster.controller.job_fields import Progress
from trainmaster.controller.kube.clock import seconds_between

LINES = {
    "loss 0.3\taccuracy 0.9 ✓ 日本": "loss 0.3\taccuracy 0.9 ✓ 日本",
    "\x1b[1;31merror\x1b[0m: no": "\x1b[1;31merror\x1b[0m: no\x1b[m",
    "\x1b[38;2;1;2;3mred \x1b[38:5:9mmore": "\x1b[38;2;1;2;3mred \x1b[38:5:9mmore\x1b[m",
    "\x1b[2J\x1b[Hcleared": "cleared",
    "\x1b[3A\x1b[2Kup": "up",
    "\x1b[?1049hother screen\x1b[?25l": "other screen",
    "\x1b]0;title\x07text": "text",
    "\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\": "link",
    "\x1b]0;never ended": "",
    "\x1bPq#0;2;0;0;0\x1b\\sixel": "sixel",
    "\x1bc\x1b7\x1b8\x1bMreset": "reset",
    "\x1b(0qqq\x1b(B": "qqq",
    "\x0e\x0f\x07\x08\x0b\x0c\x00bell": "bell",
    "\x9b2J\x84c1": "c1",
    "\x9d0;title\x9ctext": "text",
    "10%\r55%\r100%": "100%",
    "100%\r": "100%",
    "100%\r\x1b[K": "100%",
    "\x1b[32m50%\x1b[0m\r\x1b[32m100%\x1b[0m\r": "\x1b[32m100%\x1b[0m\x1b[m",
    "\x1b": "",
    "\x1b[": "",
    "": "",
}


def test_only_text_and_colours_are_left() -> None:
    assert {line: printable(line) for line in LINES} == LINES


def test_many_lines_stay_as_many_and_lose_colours_on_request() -> None:
    assert printable_lines("a\nb\n\nc\n") == "a\nb\n\nc\n"
    assert printable_lines("a\n\x1b[2Jb\n\n\x1b[32mc\n") == "a\nb\n\n\x1b[32mc\x1b[m\n"
    assert printable_lines("a\n\x1b[32mb\nc\n") == "a\x1b[m\n\x1b[32mb\x1b[m\nc\x1b[m\n"
    assert plain("\x1b[32m50%\x1b[0m\r\x1b[32m100%\x1b[0m\tdone") == "100%    done"


def rows(*views: JobView, columns: int = 80, lines: int = 24, glyphs: Glyphs = UNICODE) -> list[str]:
    drawn = frame(views, columns=columns, lines=lines, tick=0, glyphs=glyphs)
    return [row.plain.rstrip() for row in drawn]


def view(status: JobStatus | None = None, name: str = "mnist", **fields: Any) -> JobView:
    return JobView(facts_of(status or job_status(pods=pods("Running", "Running"), nodes=2)), name, **fields)


def troubled() -> JobView:
    status = job_status(
        nodes=4,
        pods=pods("Running", "Running", "Running", "Pending", reason="ImagePullBackOff")
        | pods("Succeeded", group="dataset-initializer"),
        failures=[failure("Traceback (most recent call last):", "ValueError: my loss is NaN")],
        _restarts=1,
    )
    return view(
        status,
        elapsed=83,
        fraction=0.47,
        what="epoch 5/10",
        steps="70/100",
        remaining=94,
        metrics={"loss": "0.31", "accuracy": "0.92"},
        partial=" 70%|#######   | 70/100 [00:12<00:05,  3.61it/s]",
    )


def test_a_job_in_40_80_and_200_columns() -> None:
    assert rows(troubled()) == [
        " 70%|#######   | 70/100 [00:12<00:05,  3.61it/s]",
        "⠋ mnist  Waiting  1:23  1 restart",
        "  ━━━━━━━━━━━─────────────   47%  epoch 5/10  70/100  1:34 left  loss 0.31",
        "  dataset-initializer  1/1 done",
        "  node                 3/4 running, 1 ImagePullBackOff",
        "  ! rank 1 failed: ValueError: my loss is NaN (exit code 1, attempt 0)",
    ]
    assert rows(troubled(), columns=40) == [
        " 70%|#######   | 70/100 [00:12<00:05, …",
        "⠋ mnist  Waiting  1:23  1 restart",
        "  ━━━━━━───────   47%  epoch 5/10",
        "  dataset-initializer  1/1 done",
        "  node                 3/4 running, 1 …",
        "  ! rank 1 failed: ValueError: my loss…",
    ]
    assert rows(troubled(), columns=200)[2] == (
        "  ━━━━━━━━━━━─────────────   47%  epoch 5/10  70/100  1:34 left  loss 0.31  accuracy 0.92"
    )
    drawn = rows(troubled(), glyphs=ASCII)
    assert drawn[1:3] == [
        "| mnist  Waiting  1:23  1 restart",
        "  ###########-------------   47%  epoch 5/10  70/100  1:34 left  loss 0.31",
    ]
    assert "".join(drawn).isascii()


def test_of_a_job_that_ended_the_result_is_left_and_of_others_what_stands_in_the_way() -> None:
    failed = job_status(
        pods=pods("Failed"), conditions=condition("Failed"), failures=[failure("boom", rank=0, exit_code=7)]
    )
    drawn = rows(view(failed, elapsed=5, fraction=0.5))
    assert drawn == ["✗ mnist  Failed  0:05", "  ! rank 0 failed: boom (exit code 7)"]
    complete = job_status(conditions=condition("Complete"), failures=[failure("boom")])
    assert rows(view(complete, elapsed=5)) == ["✓ mnist  Complete  0:05"]
    # What stands in the way of a job is told.
    blocked = job_status(conditions=condition("Blocked", message='no runtime\n"torch"'))
    assert rows(view(blocked)) == ["! mnist  Blocked", '  ! no runtime "torch"']
    assert rows(view(job_status(conditions=condition("Suspended", message="is suspended"))))[0] == "· mnist  Suspended"
    container_failed = condition("ContainerFailed", message="attempt 0: rank 1 failed with exit code 1")
    assert rows(view(job_status(conditions=container_failed)))[1:] == ["  ! attempt 0: rank 1 failed with exit code 1"]
    seen = job_status(conditions=container_failed, failures=[failure("my loss is NaN")])
    assert rows(view(seen))[1:] == ["  ! rank 1 failed: my loss is NaN (exit code 1)"]
    verdict = "E1123 09:22:45.6 27 torch/distributed/elastic/multiprocessing/api.py:1] failed (exitcode: 1) pid: 3"
    assert rows(view(job_status(failures=[failure("my loss is NaN", verdict)])))[1:] == rows(view(seen))[1:]
    away = rows(view(job_status(unreachable=True)))
    assert away == ["! mnist  Unknown", "  ! the cluster does not answer: this may be out of date"]


def sweep() -> list[JobView]:
    """Thirty jobs: 20 run, one of them after a failure, 4 have not started, 5 are complete and one has failed."""
    found = []
    for number in range(30):
        name = f"sweep-{number:02}"
        status = job_status(name, pods=pods("Running", "Running"), nodes=2)
        if number % 6 == 0:
            set_conditions(status, condition("Complete"))
        elif number == 1:
            set_conditions(status, condition("Failed"))
        elif number == 2:
            set_failures(status, failure("ValueError: my loss is NaN"))
        elif number > 25:
            status.pods = {}
        found.append(view(status, name, elapsed=60.0 + number, fraction=number / 30, what=f"epoch {number}/30"))
    return found


def test_thirty_jobs_take_half_of_the_terminal_and_a_few_are_shown_in_full() -> None:
    drawn = rows(*sweep())
    assert len(drawn) == 12
    assert drawn[0] == "⠋ sweep-02  Running  1:02  rank 1 failed: ValueError: my loss is NaN (exit cod…"
    assert drawn[1] == "⠋ sweep-03  Running  1:03  ━─────────   10%  epoch 3/30  2/2 running"
    assert drawn[-1] == "… 19 more: 9 Running, 5 Complete, 4 Waiting, 1 Failed"
    drawn = rows(*sweep(), columns=40)
    assert drawn[0] == "⠋ sweep-02  Running  1:02  rank 1 fail…"
    assert drawn[1] == "⠋ sweep-03  Running  1:03  ──────   10%"
    assert drawn[-1] == "… 19 more: 9 Running, 5 Complete, 4 Wa…"
    assert rows(*sweep(), lines=3) == ["… 30 jobs: 20 Running, 5 Complete, 4 Waiting, 1 Failed"]
    assert rows(view(), lines=1) == ["⠋ mnist  Running  2/2 running"]
    # A few jobs are shown in full if there is room.
    three = [view(job_status(name, pods=pods("Running"), nodes=1), name) for name in "abc"]
    assert rows(*three) == [row for name in "abc" for row in (f"⠋ {name}  Running", "  node  1/1 running")]
    assert rows(*three, lines=10) == [f"⠋ {name}  Running  1/1 running" for name in "abc"]


def test_no_row_is_as_long_as_the_terminal_and_half_of_it_is_left_for_logs() -> None:
    long = view(name="a-job-with-a-name-that-is-as-long-as-the-server-allows-for-names-of", partial="日本語" * 100)
    for columns, lines in product((1, 2, 5, 20, 39, 40, 41, 79, 80, 81, 200), (1, 2, 5, 24, 50)):
        for views in ([troubled()], [long], sweep(), [*sweep(), long, troubled()]):
            drawn = frame(views, columns=columns, lines=lines, tick=3)
            assert all(cell_len(row.plain) < max(columns, 2) for row in drawn)
            assert 1 <= len(drawn) <= max(1, lines // 2)


def test_control_characters_of_a_job_do_not_get_into_the_display() -> None:
    bad = "\x1b[2J\x1b[Hevil\x07\r\n\x9b3A"
    status = job_status(conditions=condition("Blocked", message=bad), failures=[failure(bad)])
    drawn = "".join(rows(view(status, partial=bad)))
    assert "evil" in drawn
    assert drawn.isprintable()


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
    assert summary(groups) == "launcher 1/1 running"


def test_ranks_are_counted_before_they_have_pods_and_once_when_they_were_replaced() -> None:
    assert [(group.name, group.text) for group in rank_groups(job_status(nodes=4))] == [("node", "0/4 pods")]
    assert rank_groups(job_status()) == []
    assert summary([]) == ""
    there = {phase: pod(phase, created=f"2024-01-01T00:00:0{at}Z") for phase, at in (("Running", 9), ("Failed", 0))}
    assert [group.text for group in rank_groups(job_status(pods=there, nodes=1))] == ["1/1 running"]


def test_what_keeps_pods_from_running_is_named() -> None:
    for there, text, has_trouble in (
        (pods("Running", "Pending", reason="ImagePullBackOff"), "1/2 running, 1 ImagePullBackOff", True),
        (pods("Pending", "Pending", reason="ContainerCreating"), "2/2 ContainerCreating", False),
        (pods("Failed", "Running"), "1/2 running, 1 failed", True),
    ):
        (group,) = rank_groups(job_status(pods=there))
        assert (group.text, group.has_trouble) == (text, has_trouble)


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


NOW = datetime(2024, 1, 1, 0, 10, tzinfo=UTC)


def viewed(attempt: Attempt, status: JobStatus, *, now: float = 0) -> JobView:
    return attempt.view(status, "mnist", now=now, wall_clock=NOW)


def test_what_the_log_tells_is_shown() -> None:
    attempt = Attempt()
    attempt.take(["loading", "epoch 1/10 loss 0.3"])
    viewed(attempt, job_status(), now=100)
    attempt.take(["epoch 2/10 loss 0.2"])
    shown = viewed(attempt, job_status(), now=160)
    assert shown.fraction == pytest.approx(0.2)
    assert shown.what == "epoch 2/10"
    assert shown.remaining == pytest.approx(480)


def test_what_the_training_reports_counts_more() -> None:
    attempt = Attempt()
    attempt.take(["epoch 2/10 loss 0.2"])
    shown = viewed(attempt, job_status(progress=Progress(47, 94, {"loss": "0.2"})))
    assert (shown.fraction, shown.remaining, shown.metrics) == (0.47, 94, {"loss": "0.2"})
    assert shown.what == "epoch 2/10"
    assert viewed(attempt, job_status(progress=Progress(170, None, {}))).fraction == 1
    # Metrics alone are shown with what the log tells.
    attempt = Attempt()
    attempt.take(["step 5/10"])
    shown = viewed(attempt, job_status(progress=Progress(None, None, {"loss": "0.2"})))
    assert (shown.fraction, shown.metrics) == (0.5, {"loss": "0.2"})


def test_a_job_lasts_from_its_creation_or_resumption_to_its_end() -> None:
    assert viewed(Attempt(), job_status()).elapsed == 600
    resumed = {"Suspended": {"type": "Suspended", "status": "False", "lastTransitionTime": "2024-01-01T00:09:00Z"}}
    assert viewed(Attempt(), job_status(conditions=resumed)).elapsed == 60
    ended = condition("Complete", at="2024-01-01T00:09:30Z")
    assert viewed(Attempt(), job_status(conditions=resumed | ended)).elapsed == 30


def test_pods_are_looked_at_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a thousand pods is drawn ten times a second."""
    looked = Mock(wraps=facts_of)
    monkeypatch.setattr(module, "facts_of", looked)
    attempt, status = Attempt(), job_status(pods=pods("Running"))
    for _ in range(3):
        viewed(attempt, status)
    assert looked.call_count == 1
    set_conditions(status, condition("Complete"))
    attempt.forget_facts()
    assert viewed(attempt, status).facts.state == "Complete"
    assert looked.call_count == 2


def test_of_a_burst_of_lines_the_last_ones_are_read() -> None:
    """Reading 100,000 lines would take longer than writing them."""
    attempt = Attempt()
    attempt.take([f"step {number}/100000" for number in range(1, 100_001)])
    assert viewed(attempt, job_status()).fraction == 1
    attempt.partial = " 50%|#####     | 50/100 [00:12<00:15,  3.61it/s]"
    shown = viewed(attempt, job_status())
    assert (shown.fraction, shown.partial) == (0.5, attempt.partial)
