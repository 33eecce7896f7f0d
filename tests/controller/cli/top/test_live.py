"""The live view: as a program of its own, which is stopped, killed, resized, and typed at."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.commands import eventually
from support.terminals import Program, Terminal, shown

pytestmark = pytest.mark.nightly

PROGRAM = """
import asyncio, sys
from support.top import snapshot, top_job
from trainmaster.controller.cli.top.live import LiveView

JOBS = [top_job("mnist"), top_job("stuck", "Waiting", trouble="Unschedulable")]
JOBS += [top_job(f"job-{number}") for number in range(30)]
looks = 0

async def look():
    global looks
    looks += 1
    if "hostile" in sys.argv:
        JOBS[1:] = [top_job("odd\\x9b2J", "Waiting\\x1b[2J", trouble="Trouble\\x1b]0;PWN\\x07\\u202e")]
    if "crash" in sys.argv and looks > 2:
        raise RuntimeError("a defect")
    print("a line on standard error", file=sys.stderr)
    jobs = [top_job(f"look-{looks}", trouble="Look"), *JOBS]
    return snapshot(*jobs), jobs

async def main():
    return await LiveView(look, asyncio.Event(), file=sys.stdout).run()

print("before")
sys.exit(asyncio.run(main()))
"""


@pytest.fixture(autouse=True)
def _programs_find_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)


@asynccontextmanager
async def live(*arguments: str, columns: int = 80, lines: int = 24) -> AsyncIterator[tuple[Terminal, Program]]:
    with Terminal(columns, lines) as terminal, terminal.program(sys.executable, "-c", PROGRAM, *arguments) as program:
        await shown(terminal, "look-2")
        yield terminal, program


def is_given_back(terminal: Terminal) -> bool:
    """Emulators of tests have one screen; so that what was drawn is gone from it tells that it was left."""
    return terminal.cursor_is_shown and terminal.echoes and not terminal.shows("stuck")


def colours(terminal: Terminal, name: str) -> set[str]:
    """The colours of the row of a job."""
    row = next(index for index, text in enumerate(terminal.screen) if name in text)
    return {terminal.colour(row, column) for column in range(60)}


async def test_ctrl_c_a_signal_and_a_crash_give_the_terminal_back() -> None:
    # Ctrl c leaves it as an interruption.
    async with live() as (terminal, program):
        terminal.press("\x03")
        assert program.wait() == 130
        assert is_given_back(terminal)
    # A signal that ends it gives the terminal back.
    async with live() as (terminal, program):
        program.signal(signal.SIGTERM)
        assert program.wait() == -signal.SIGTERM
        assert is_given_back(terminal)
    # A crash gives the terminal back and is seen.
    async with live("crash") as (terminal, program):
        assert program.wait() == 1
        assert terminal.echoes
        assert terminal.cursor_is_shown
        assert terminal.shows("RuntimeError: a defect")


async def test_nothing_that_strangers_wrote_acts_upon_the_terminal() -> None:
    with Terminal() as terminal, terminal.program(sys.executable, "-c", PROGRAM, "hostile") as program:
        await eventually(lambda: "Trouble" in terminal.output)
        terminal.press("q")
        assert program.wait() == 0
        for each in ("\x9b", "\x1b[2J", "PWN\x07", "\u202e"):
            assert each not in terminal.output


async def test_ctrl_z_gives_the_terminal_back_until_it_goes_on() -> None:
    async with live() as (terminal, program):
        terminal.press("\x1a")
        await eventually(lambda: program.is_stopped)
        assert is_given_back(terminal)
        program.signal(signal.SIGCONT)
        await shown(terminal, "stuck")
        assert not terminal.echoes
        terminal.press("q")
        assert program.wait() == 0
        assert is_given_back(terminal)


async def test_q_leaves_and_other_keys_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    async with live() as (terminal, program):
        assert len(colours(terminal, "stuck")) > 1
        assert not terminal.echoes
        assert not terminal.cursor_is_shown
        terminal.press("abc\r\x1b[B")
        await shown(terminal, "look-4")
        terminal.press("q")
        assert program.wait() == 0
        assert is_given_back(terminal)
        assert terminal.shows("a line on standard error")


async def test_another_size_is_filled_at_once_and_without_colours_if_they_are_unwanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    async with live() as (terminal, program):
        assert colours(terminal, "stuck") == {"default"}
        terminal.resize(50, 10)
        program.signal(signal.SIGWINCH)
        await eventually(lambda: len(terminal.screen) == 10 and "q quit" in terminal.screen[-1])
        assert all(len(row) <= 50 for row in terminal.screen)
        terminal.resize(120, 40)
        program.signal(signal.SIGWINCH)
        await eventually(lambda: len(terminal.screen) == 40 and "q quit" in terminal.screen[-1])
