"""The display on a terminal: what stays on it and in its scrollback, whatever happens to it and to the program."""

import asyncio
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.commands import eventually
from support.followed_jobs import condition, failure, job_status, numbered, pods, set_failures
from support.terminals import Terminal, shown

from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.live_reporter import LiveReporter
from trainmaster.controller.cli.follow.terminal import LiveRegion
from trainmaster.controller.cli.output import UNSAFE
from trainmaster.controller.job_fields import Progress

JOB = "default/mnist"


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    with Terminal(80, 24) as terminal:
        yield terminal


def running() -> JobStatus:
    return job_status(nodes=2, pods=pods("Running", "Running"), failures=[failure("ValueError: my loss is NaN")])


def display(terminal: Terminal) -> list[str]:
    """The rows of the display, which begin with that of the job."""
    rows = terminal.screen
    first = next((index for index, row in enumerate(rows) if "mnist  Running" in row), len(rows))
    return rows[first:]


async def test_the_display_is_below_what_scrolls_by(terminal: Terminal) -> None:
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        reporter.log(["loading", "epoch 3/10 loss 0.3"], job=JOB)
        reporter.report("pod mnist-node-0-0: Running")
        await shown(terminal, "30%")
        assert terminal.screen[:3] == ["loading", "epoch 3/10 loss 0.3", "pod mnist-node-0-0: Running"]
        assert display(terminal)[1:] == [
            "  ━━━━━━━─────────────────   30%  epoch 3/10",
            "  node  2/2 running",
            "  ! rank 1 failed: ValueError: my loss is NaN (exit code 1)",
        ]
        assert not terminal.cursor_is_shown


async def test_nothing_of_the_display_ever_gets_into_the_scrollback(terminal: Terminal) -> None:
    """Lines of all lengths, in pieces of all sizes, with a display that grows and shrinks."""
    lines = [f"line {number} end{'x' * (number * 7 % 79)}"[:80] for number in range(600)]
    with LiveReporter(terminal.file) as reporter:
        for first in range(0, 600, 50):
            status = running()
            if first % 100:
                set_failures(status)
            reporter.show([status] * (first // 50 % 4 + 1))
            reporter.log(lines[first : first + 50], job=JOB)
            await shown(terminal, f"line {first + 49} end")
        assert display(terminal)
    assert terminal.everything == lines
    assert terminal.cursor_is_shown


async def test_lines_come_out_in_few_pieces(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A display that is drawn for every line makes 100,000 of them 19 times slower."""
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        await shown(terminal, "mnist  Running")
        written: list[int] = []
        held = reporter._region._terminal
        send = held.send

        def count(text: str) -> None:
            written.append(len(text))
            send(text)

        monkeypatch.setattr(held, "send", count)
        lines = numbered("line", 3_000)
        for first in range(0, 3_000, 15):
            reporter.log(lines[first : first + 15], job=JOB)
            await asyncio.sleep(0)
        reporter.close([])
    assert len(written) < 50
    assert sum(written) < 1.1 * sum(len(line) + 1 for line in lines)
    assert terminal.everything == lines


async def test_thirty_jobs_leave_half_of_the_terminal_to_their_logs(terminal: Terminal) -> None:
    jobs = [job_status(f"sweep-{number:02}", nodes=1, pods=pods("Running")) for number in range(30)]
    with LiveReporter(terminal.file) as reporter:
        reporter.show(jobs)
        reporter.log(numbered("line", 100))
        await shown(terminal, "19 more: 19 Running")
        assert terminal.screen[:12] == [f"line {number}" for number in range(88, 100)]
        assert len(terminal.screen) == 24
        assert terminal.scrollback == numbered("line", 88)
    assert terminal.everything == numbered("line", 100)


async def test_a_line_that_is_not_ended_is_shown_in_the_display(terminal: Terminal) -> None:
    """Progress bars end with a carriage return; until the last one nothing of them was to be seen."""
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        for percent in (10, 55):
            reporter.partial(f"{percent}%|#####     | {percent}/100 [00:12<00:15,  3.61it/s]\r", job=JOB)
            await shown(terminal, f"{percent}/100 [00:12<00:15")
            await shown(terminal, f" {percent}%  {percent}/100  0:15 left")
        reporter.partial("", job=JOB)
        reporter.log(["100%|##########| 100/100 [00:30<00:00]"], job=JOB)
        await shown(terminal, "100/100 [00:30<00:00]")
        assert not any("[00:12<00:15" in row for row in terminal.screen)
    assert terminal.everything == ["100%|##########| 100/100 [00:30<00:00]"]


async def test_colours_stay_and_what_would_break_the_display_goes(terminal: Terminal) -> None:
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        reporter.log(
            ["\x1b[31mred", "plain \x1b[2J\x1b[10A\x1b[?1049h\x1b]0;evil\x07text", "10%\r55%\r100% [bold]done[/bold]"]
        )
        await shown(terminal, "done")
        assert terminal.screen[:3] == ["red", "plain text", "100% [bold]done[/bold]"]
        assert (terminal.colour(0, 0), terminal.colour(1, 0)) == ("red", "default")
        assert display(terminal)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
async def test_an_exception_takes_the_display_away(terminal: Terminal, error: type[BaseException]) -> None:
    with pytest.raises(error), LiveReporter(terminal.file) as reporter:  # noqa: PT012 - the block is what is left
        reporter.show([running()])
        reporter.log(["line"], job=JOB)
        await shown(terminal, "mnist  Running")
        reporter.log(["last words"], job=JOB)
        raise error
    assert terminal.everything == ["line", "last words"]
    assert terminal.cursor_is_shown


async def test_what_is_said_after_the_end_is_said_as_it_is(terminal: Terminal) -> None:
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        reporter.close([job_status(conditions=condition("Complete"))])
        reporter.report("deleted")
        assert terminal.everything[0] == "TrainJob default/mnist: Complete after 0:00"
    assert terminal.everything[-1] == "deleted"


@pytest.mark.parametrize("columns", [40, 200])
async def test_a_terminal_that_is_resized_keeps_nothing_of_the_display(terminal: Terminal, columns: int) -> None:
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()] * 3)
        reporter.log(numbered("before", 30), job=JOB)
        await shown(terminal, "mnist  Running")
        terminal.resize(columns, 24)
        reporter.log(numbered("after", 30), job=JOB)
        await shown(terminal, "after 29")
        assert len(display(terminal)) == 9
    assert terminal.everything == [*numbered("before", 30), *numbered("after", 30)]


async def test_what_is_written_to_standard_error_comes_above_the_display(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loggers hold the stream that there was when they were set up."""
    handler = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        await shown(terminal, "mnist  Running")
        sys.stderr.write("a warning\n")
        logging.getLogger().warning("a log entry")
        sys.stderr.write("no newline")
        await shown(terminal, "a log entry")
        assert terminal.screen[:2] == ["a warning", "a log entry"]
        assert display(terminal)
    assert terminal.everything == ["a warning", "a log entry", "no newline"]
    assert handler.stream is sys.stderr


async def test_a_terminal_gets_colours_and_characters_that_it_has(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A terminal without colours gets none.
    monkeypatch.setenv("NO_COLOR", "1")
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        reporter.report("bad news", bad=True)
        await shown(terminal, "mnist  Running")
        columns = range(len(terminal.screen[1]))
        assert {terminal.colour(row, column) for row in range(4) for column in columns} == {"default"}
    # The console of linux gets characters that it has.
    monkeypatch.setenv("TERM", "linux")
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running()])
        reporter.log(["epoch 3/10 loss 0.3"], job=JOB)
        await shown(terminal, "#######-----------------   30%")
        assert all(row.isascii() for row in terminal.screen)


async def test_a_restart_begins_with_no_progress(terminal: Terminal) -> None:
    status = running()
    with LiveReporter(terminal.file) as reporter:
        reporter.show([status])
        reporter.log(["epoch 9/10 loss 0.1"], job=JOB)
        await shown(terminal, "90%")
        status._restarts = 1
        reporter.show([status])
        await shown(terminal, "1 restart")
        assert not any("90%" in row for row in terminal.screen)


async def test_nothing_that_strangers_wrote_acts_upon_the_terminal(terminal: Terminal) -> None:
    """It is in conditions, metrics, names, and in the summary."""
    hostile = "\x1b]0;PWN\x07\x1b[2J\x9b2J\u202e\u2028\ud800"
    told = condition("Failed", reason=f"R{hostile}", message=f"M{hostile}\nsecond line")
    status = job_status(
        conditions=told | condition(f"Odd{hostile}", message=hostile),
        failures=[failure(f"ValueError: {hostile}")],
        progress=Progress(50, None, {f"loss{hostile}": f"1{hostile}"}),
    )
    with LiveReporter(terminal.file) as reporter:
        reporter.show([running(), status])
        reporter.report(hostile)
        reporter.partial(hostile, job=JOB)
        await shown(terminal, "loss")
        reporter.close([status])
    await shown(terminal, "delete:")
    ours = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]2;title \d+\x07|\r")
    assert not UNSAFE.search(ours.sub("", terminal.output))
    assert "\x1b[2J" not in terminal.output
    assert "second line" in terminal.everything


PROGRAM = """
import contextlib, sys, time
from trainmaster.controller.cli.follow.terminal import LiveRegion

with contextlib.suppress(KeyboardInterrupt), LiveRegion(sys.stdout) as region:
    region.write("a line\\n", ["first row of the display", "last row of the display"])
    number = 0
    while True:
        number += 1
        time.sleep(0.02)
        region.write(sys.argv[1].format(number), ["first row of the display", f"last row of the display {number}"])
"""


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_that_ends_the_program_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    with Terminal() as terminal, terminal.program(sys.executable, "-c", PROGRAM, "") as program:
        await shown(terminal, "last row of the display 3")
        assert not terminal.echoes
        program.signal(number)
        assert program.wait() == -number
        assert terminal.everything == ["a line"]
        assert terminal.cursor_is_shown
        assert terminal.echoes


@pytest.mark.nightly
async def test_keys_that_are_pressed_leave_no_trace() -> None:
    """Enter would move the cursor, and what is above it would be taken for the display."""
    with Terminal() as terminal, terminal.program(sys.executable, "-c", PROGRAM, "") as program:
        await shown(terminal, "last row of the display 3")
        terminal.press("abc\n\n\n")
        await shown(terminal, "last row of the display 9")
        assert terminal.screen[:2] == ["a line", "first row of the display"]
        program.signal(signal.SIGTERM)
        program.wait()
        assert terminal.everything == ["a line"]


@pytest.mark.nightly
async def test_a_program_that_is_stopped_gives_the_terminal_back_until_it_goes_on() -> None:
    """Ctrl-Z, and then `fg`."""
    with Terminal() as terminal, terminal.program(sys.executable, "-c", PROGRAM, "") as program:
        await shown(terminal, "last row of the display 3")
        terminal.press("\x1a")
        await eventually(lambda: terminal.cursor_is_shown and terminal.echoes)
        assert terminal.screen == ["a line"]
        program.signal(signal.SIGCONT)
        await shown(terminal, "last row of the display")
        assert not terminal.cursor_is_shown
        assert not terminal.echoes
        terminal.press("\x03")
        assert program.wait() == 0
        assert terminal.everything == ["a line"]
        assert terminal.cursor_is_shown


@pytest.mark.nightly
async def test_a_program_that_was_stopped_unasked_takes_the_terminal_again() -> None:
    """Nobody is told of SIGSTOP; a shell takes the terminal then, and leaves it in its own modes."""
    with Terminal() as terminal, terminal.program(sys.executable, "-c", PROGRAM, "") as program:
        await shown(terminal, "last row of the display 3")
        program.signal(signal.SIGSTOP)
        await eventually(lambda: program.is_stopped)
        terminal.echo()
        program.signal(signal.SIGCONT)
        await eventually(lambda: not terminal.echoes)
        terminal.press("\x03")
        assert program.wait() == 0
        assert terminal.everything == ["a line"]
        assert terminal.echoes


async def test_a_terminal_that_is_nonblocking_or_gone_ends_nothing() -> None:
    # A terminal that somebody has made nonblocking gets everything.
    lines = numbered("line", 4_000)
    with Terminal() as terminal:
        os.set_blocking(terminal.file.fileno(), False)
        with LiveRegion(terminal.file) as region:
            region.write("".join(f"{line}\n" for line in lines), ["the display"])
        os.set_blocking(terminal.file.fileno(), True)
        assert terminal.everything == lines
    # A terminal that is gone ends nothing.
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as file, LiveRegion(file) as region:
        region.write("a line\n", ["the display"])
        os.close(master)
        region.write("another line\n", ["the display"])


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux, a terminal that wraps its lines anew")
async def test_a_terminal_that_wraps_its_lines_anew_keeps_nothing_of_the_display(tmp_path: Path) -> None:
    """The display has other rows then than were drawn; most terminals are so, the emulator of these tests is not."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("of the display", f"of the display{' and more' * 15}"))

    def tmux(*arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null", *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def history() -> list[str]:
        return tmux("capture-pane", "-p", "-S", "-").splitlines()

    tmux("new-session", "-d", "-x", "160", "-y", "24", sys.executable, str(script), "line {}\n")
    try:
        await goes_on(history)
        for width, height in ((40, 24), (200, 24), (30, 10), (160, 40), (50, 24)):
            tmux("resize-window", "-x", str(width), "-y", str(height))
            await goes_on(history)
        lines = history()
        ended = max(index for index, line in enumerate(lines) if line.startswith("line "))
        assert lines[0] == "a line"
        assert lines[1 : ended + 1] == [f"line {index}" for index in range(1, ended + 1)]
        assert len([line for line in lines if line.startswith("first row")]) == 1
    finally:
        tmux("kill-server")


async def goes_on(history: Callable[[], list[str]]) -> None:
    """Wait until some more lines are there."""
    number = last(history()) + 10
    await eventually(lambda: last(history()) > number)


def last(lines: list[str]) -> int:
    return max((int(line.split()[1]) for line in lines if line.startswith("line ")), default=0)
