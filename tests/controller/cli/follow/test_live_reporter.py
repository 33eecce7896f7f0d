"""The display on a terminal: what it shows of jobs, and what stays on the terminal when it ends."""

import asyncio
import io
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from support.followed_jobs import condition, failure, job_status, numbered, pods, set_conditions, set_failures
from support.terminals import Terminal, shown

from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.live_reporter import Attempt, LiveReporter, display
from trainmaster.controller.cli.output import UNSAFE
from trainmaster.controller.job_fields import Progress
from trainmaster.controller.kube.clock import time_text

JOB = "default/mnist"


@pytest.fixture
async def terminal(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    with Terminal(80, 24) as terminal:
        yield terminal


def running() -> JobStatus:
    return job_status(nodes=2, pods=pods("Running", "Running"), failures=[failure("ValueError: my loss is NaN")])


def drawn(
    *jobs: JobStatus, log: Sequence[str] = (), partial: str = "", columns: int = 100, lines: int = 24
) -> list[str]:
    """The rows of the display, without times."""
    attempts = [Attempt(status) for status in jobs]
    for attempt in attempts:
        attempt.partial = partial
        for second, line in enumerate(log):
            attempt.progress.feed(line, second * 60)
    file = io.StringIO()
    Console(file=file, width=columns).print(display(attempts, lines=lines, now=60.0 * (len(log) - 1)))
    return [re.sub(r"\d+d \d\d:\d\d|\d+:\d\d(?! left)", "TIME", row).rstrip() for row in file.getvalue().splitlines()]


def test_a_job_has_a_row_and_what_is_wrong_rows_below() -> None:
    status = job_status(
        nodes=4,
        pods=pods("Running", "Running", "Running", "Pending", reason="ImagePullBackOff")
        | pods("Succeeded", group="dataset-initializer"),
        failures=[failure("Traceback (most recent call last):", "ValueError: my loss is NaN")],
        _restarts=1,
        progress=Progress(None, None, {"loss": "0.31"}),
    )
    log = ["epoch 1/10 loss 0.3", "epoch 2/10 loss 0.3"]
    told = "! rank 1 failed: ValueError: my loss is NaN (exit code 1, attempt 0)"
    drawn_of_log = drawn(status, log=log, partial=" 70%|#######   | 70/100", columns=140)
    assert [" ".join(row.split()) for row in drawn_of_log] == [
        "70%|####### | 70/100",
        "mnist Waiting TIME ━━ 20% 3/4 running, 1 ImagePullBackOff 1 restart 8:00 left epoch 2/10 loss 0.31",
        told,
    ]
    # What the training reports counts more; a narrow terminal cuts.
    status.progress = Progress(47, 94, {})
    reported = drawn(status, log=log, columns=120)[0]
    assert all(text in reported for text in ("47%", "1:34 left", "epoch 2/10"))
    assert drawn(status, log=log, columns=40)[1] == f"{told[:39]}…"


def test_of_a_job_that_ended_the_result_is_left_and_of_others_what_stands_in_the_way() -> None:
    failed = job_status(
        pods=pods("Failed"), conditions=condition("Failed"), failures=[failure("boom", rank=0, exit_code=7)]
    )
    assert drawn(failed, log=["step 5/10"]) == ["mnist  Failed  TIME", "! rank 0 failed: boom (exit code 7)"]
    complete = job_status(conditions=condition("Complete"), failures=[failure("boom")])
    assert drawn(complete) == ["mnist  Complete  TIME"]
    for status, told in (
        (job_status(conditions=condition("Blocked", message='no\n"torch"')), '! no "torch"'),
        (job_status(unreachable=True), "! the cluster does not answer: this may be out of date"),
        (job_status(conditions=condition("ContainerFailed", message="rank 1 failed")), "! rank 1 failed"),
        (running(), "! rank 1 failed: ValueError: my loss is NaN (exit code 1)"),
    ):
        assert drawn(status)[1:] == [told]
    # A job lasts from its creation or resumption on.
    began = time_text(datetime.now(UTC) - timedelta(minutes=3, seconds=5))
    resumed = {"Suspended": {"type": "Suspended", "status": "False", "lastTransitionTime": began}}
    file = io.StringIO()
    Console(file=file).print(display([Attempt(job_status(conditions=resumed))], lines=24))
    assert "3:0" in file.getvalue()


def test_thirty_jobs_leave_half_of_the_terminal_to_their_logs() -> None:
    """Those that go on come first."""
    jobs = [job_status(f"sweep-{number:02}", pods=pods("Running"), nodes=1) for number in range(30)]
    for status in jobs[::6]:
        set_conditions(status, condition("Complete"))
    set_conditions(jobs[1], condition("Failed"))
    set_failures(jobs[2], failure("ValueError: my loss is NaN"))
    rows = drawn(*jobs)
    assert len(rows) == 12
    assert rows[0] == "sweep-02  Running  TIME  1/1 running"
    assert rows[-1] == "and 19 more: 13 Running, 5 Complete, 1 Failed"
    assert drawn(*jobs, lines=3) == [rows[0], "and 29 more: 23 Running, 5 Complete, 1 Failed"]
    assert "! sweep-02: rank 1 failed: ValueError: my loss is NaN (exit code 1)" in drawn(*jobs[:5])


async def test_logs_and_reports_scroll_by_above_the_display_and_nothing_else_stays(terminal: Terminal) -> None:
    lines = numbered("line", 100)
    with LiveReporter(file=terminal.file) as reporter:
        reporter.show([running()])
        reporter.log(["\x1b[31mred", "10%\r55%\r100% [bold]done[/bold]"], job=JOB)
        reporter.report("pod mnist-node-0-0: Running")
        reporter.partial(" 70%|#######   | 70/100 [", job=JOB)
        await shown(terminal, "mnist  Running")
        assert terminal.screen[:3] == ["red", "100% [bold]done[/bold]", "pod mnist-node-0-0: Running"]
        assert (terminal.colour(0, 0), terminal.colour(1, 0)) == ("red", "default")
        assert not terminal.cursor_is_shown
        reporter.partial("", job=JOB)
        for first in range(0, 100, 10):
            reporter.log(lines[first : first + 10], job=JOB)
            await shown(terminal, f"line {first + 9}")
        reporter.close([job_status(conditions=condition("Complete"))])
        reporter.report("deleted")
    assert terminal.everything[3:-1] == [
        *lines,
        "TrainJob default/mnist: Complete after 0:00",
        "  logs:   trainmaster logs mnist --all",
        "  delete: trainmaster delete mnist",
    ]
    assert terminal.everything[-1] == "deleted"
    assert terminal.cursor_is_shown


async def test_a_restart_begins_with_no_progress(terminal: Terminal) -> None:
    status = running()
    with LiveReporter(file=terminal.file) as reporter:
        reporter.show([status])
        reporter.log(["epoch 9/10 loss 0.1"], job=JOB)
        await shown(terminal, "90%")
        status._restarts = 1
        reporter.show([status])
        await shown(terminal, "1 restart")
        assert not terminal.shows("90%")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
async def test_an_exception_takes_the_display_away(terminal: Terminal, error: type[BaseException]) -> None:
    with pytest.raises(error), LiveReporter(file=terminal.file) as reporter:  # noqa: PT012 - the block is what is left
        reporter.show([running()])
        await shown(terminal, "mnist  Running")
        reporter.log(["last words"], job=JOB)
        raise error
    assert terminal.everything == ["last words"]
    assert terminal.cursor_is_shown


async def test_what_is_written_to_standard_error_comes_above_the_display(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loggers hold the stream that there was when they were set up."""
    handler = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with LiveReporter(file=terminal.file) as reporter:
        reporter.show([running()])
        await shown(terminal, "mnist  Running")
        sys.stderr.write("a warning \x1b[2J\n")
        logging.getLogger().warning("a log entry")
        sys.stderr.write("no newline")
        await shown(terminal, "a log entry")
    assert terminal.everything == [r"a warning \u001b[2J", "a log entry", "no newline"]
    assert handler.stream is sys.stderr


async def test_nothing_that_strangers_wrote_acts_upon_the_terminal(terminal: Terminal) -> None:
    """It is in conditions, metrics, names, and in the summary."""
    hostile = "\x1b]0;PWN\x07\x1b[2J\x1b[10A\x1b[?1049h\x9b2J\u202e\u2028\ud800"
    told = condition("Failed", reason=f"R{hostile}", message=f"M{hostile}\nsecond line")
    status = job_status(
        conditions=told | condition(f"Odd{hostile}", message=hostile),
        failures=[failure(f"ValueError: {hostile}")],
        progress=Progress(50, None, {f"loss{hostile}": f"1{hostile}"}),
    )
    with LiveReporter(file=terminal.file) as reporter:
        reporter.show([job_status("other", progress=Progress(50, None, {f"loss{hostile}": f"1{hostile}"})), status])
        reporter.report(hostile)
        reporter.log([f"plain {hostile}text"], job=JOB)
        reporter.partial(hostile, job=JOB)
        await shown(terminal, "loss")
        reporter.close([status])
    await shown(terminal, "delete:")
    ours = re.compile(r"\x1b\[(?:\?25[lh]|[0-9;]*m|2K|1A)|\x1b\]2;title \d+\x07|\r")
    assert not UNSAFE.search(ours.sub("", terminal.output))
    assert "second line" in terminal.everything


PROGRAM = """
import asyncio
from support.followed_jobs import job_status, pods
from trainmaster.controller.cli.follow.live_reporter import LiveReporter

async def main():
    with LiveReporter() as reporter:
        reporter.show([job_status(pods=pods("Running"))])
        reporter.report("a line")
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.nightly
async def test_a_signal_that_ends_the_program_leaves_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout 60 trainmaster run job.yaml` sends SIGTERM."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    with Terminal() as terminal, terminal.program(sys.executable, "-c", PROGRAM) as program:
        await shown(terminal, "mnist  Running")
        program.signal(signal.SIGTERM)
        assert program.wait() == 128 + signal.SIGTERM
        assert terminal.everything == ["a line"]
        assert terminal.cursor_is_shown
