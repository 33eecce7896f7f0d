"""The last rows of a terminal: as a program of its own, which is stopped, killed, and typed at."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import eventually
from support.followed_jobs import numbered
from support.terminals import Terminal, shown

from trainmaster.controller.cli.follow.terminal import LiveRegion

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
