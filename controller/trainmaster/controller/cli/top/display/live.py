"""The live view on a terminal, until somebody leaves it.

- It takes the other screen of the terminal, so that what was there before is there again afterwards, whatever ends it.
- What changes is drawn twice a second at most, and less often if that takes long; keys are answered at once.
- What others write to standard error meanwhile comes after the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from trainmaster.controller.cli.follow.display.frame import ASCII, UNICODE
from trainmaster.controller.cli.follow.display.held_terminal import (
    BEGIN_UPDATE,
    END_UPDATE,
    ERASE_BELOW,
    ERASE_LINE,
    HIDE_CURSOR,
    NO_WRAP,
    RESET_COLOURS,
    SHOW_CURSOR,
    WRAP,
    HeldTerminal,
)
from trainmaster.controller.cli.terminal_text import marked
from trainmaster.controller.cli.top.cluster.attention import TopJob
from trainmaster.controller.cli.top.cluster.snapshot import Snapshot
from trainmaster.controller.cli.top.display.keyboard import Key, Keyboard
from trainmaster.controller.cli.top.display.page import Page
from trainmaster.controller.cli.top.display.screen import Prompt, screen
from trainmaster.controller.cli.top.display.window import Window

_HOME: Final = "\x1b[H"
_OTHER_SCREEN: Final = "\x1b[?1049h"
_OWN_SCREEN: Final = "\x1b[?1049l"
_INTERVAL: Final = 0.5
_CLOCK: Final = 1.0
"""Seconds after which it is drawn in any case: ages grow."""

_SHARE: Final = 0.25
"""Of the time, that drawing may take."""

_QUIT, _INTERRUPTED = 0, 130


class LiveView:
    """The live view.

    Args:
        look: Returns what is known of the cluster.
        changed: Set when something has changed there.
        explain: Returns all that there is to say of a job, in lines.
        file: The terminal.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[Snapshot]],
        changed: asyncio.Event,
        *,
        explain: Callable[[TopJob], Awaitable[Sequence[str]]],
        file: TextIO,
    ) -> None:
        self._take = look
        self._explain = explain
        self._explaining: asyncio.Task[None] | None = None
        self._page: Page | None = None
        """What is shown in place of the jobs."""

        self._changed = changed
        self._file = file
        self._console = Console(file=file, highlight=False, emoji=False, markup=False)
        # The console of Linux has 512 characters, of which these are none.
        is_known = file.encoding.lower().startswith("utf") and os.environ.get("TERM") != "linux"
        self._glyphs = UNICODE if is_known else ASCII
        self._terminal = HeldTerminal(
            file,
            begin=f"{_OTHER_SCREEN}{HIDE_CURSOR}",
            end=f"{END_UPDATE}{WRAP}{RESET_COLOURS}{_HOME}{ERASE_BELOW}{SHOW_CURSOR}{_OWN_SCREEN}",
            reads_keys=True,
            on_return=self._draw_again,
        )
        self._window = Window()
        self._keyboard = Keyboard()
        self._typed: str | None = None
        """What has been typed of a filter, while that is asked for."""

        self._snapshot: Snapshot | None = None
        self._drawn: list[str] = []
        self._pressed = asyncio.Event()
        self._ended: int | None = None

    async def run(self) -> int:
        """Show it until somebody leaves; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._end, _INTERRUPTED)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        # Where standard input is something else, keys come from the terminal all the same.
        keys = sys.stdin.fileno() if sys.stdin.isatty() else self._file.fileno()
        loop.add_reader(keys, self._read_keys, keys)
        try:
            with _later_stderr(), self._terminal:
                while self._ended is None:
                    began = time.monotonic()
                    await self._look()
                    self._draw()
                    took = time.monotonic() - began
                    await self._wait(max(_INTERVAL, took / _SHARE))
            return self._ended
        finally:
            if self._explaining is not None:
                self._explaining.cancel()
            loop.remove_reader(keys)
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGINT)

    async def _look(self) -> None:
        self._changed.clear()
        self._pressed.clear()
        self._snapshot = await self._take()
        self._window.take(self._snapshot.jobs, self._snapshot.now)

    async def _wait(self, interval: float) -> None:
        """Wait until it is worth while to look again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await self._pressed.wait()
                return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, _CLOCK - interval)):
                await self._changed.wait()

    def _end(self, code: int) -> None:
        self._ended = code
        self._pressed.set()
        self._changed.set()

    # Keys

    def _read_keys(self, file: int) -> None:
        try:
            data = os.read(file, 1024)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(file)  # nobody presses keys any more
            return
        if not self._terminal.has_keys:
            return
        for key in self._keyboard.keys(data):
            if self._page is not None:
                if not self._page.press(key):
                    self._page = None
            elif self._typed is not None:
                self._type(key)
            else:
                self._press(key)
        if self._snapshot is not None:
            self._window.take(self._snapshot.jobs, self._snapshot.now)
        self._draw()

    def _press(self, key: str) -> None:
        window = self._window
        match key:
            case "q":
                self._end(_QUIT)
            case "s":
                window.order = window.order.next
            case "/":
                self._typed = window.filter
            case Key.ESCAPE:
                window.filter = ""
            case Key.ENTER if window.job is not None:
                self._open_page(window.job)
            case Key.UP | "k":
                window.move(-1)
            case Key.DOWN | "j":
                window.move(1)
            case Key.PAGE_UP:
                window.move_page(-1)
            case Key.PAGE_DOWN | " ":
                window.move_page(1)
            case Key.HOME:
                window.move_to_end(first=True)
            case Key.END:
                window.move_to_end(first=False)

    def _type(self, key: str) -> None:
        typed = self._typed or ""
        match key:
            case Key.ENTER:
                self._typed = None
            case Key.ESCAPE:
                self._typed, self._window.filter = None, ""
            case Key.BACKSPACE:
                self._typed = self._window.filter = typed[:-1]
            case _ if len(key) == 1:
                self._typed = self._window.filter = typed + key

    def _open_page(self, job: TopJob) -> None:
        title = f"trainmaster explain {job.argument} -n {job.row.namespace}"
        waiting = self._page = Page(title, ["looking at it"])

        async def fill() -> None:
            page = Page(title, await self._explain(job))
            if self._page is waiting:  # nobody has closed it meanwhile
                self._page = page
                self._draw()

        if self._explaining is not None:
            self._explaining.cancel()
        self._explaining = asyncio.create_task(fill())

    # Drawing

    def _draw(self) -> None:
        if self._snapshot is None or not self._terminal.is_open:
            return
        size = self._terminal.size
        if self._page is not None:
            rows = self._page.rows(size.columns, size.lines)
        else:
            rows = screen(
                self._snapshot,
                self._window,
                columns=size.columns,
                lines=size.lines,
                glyphs=self._glyphs,
                prompt=None if self._typed is None else Prompt(self._typed),
            )
        drawn = self._styled(rows)
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw_again()

    def _draw_again(self) -> None:
        """Draw the same, in the handler of a signal perhaps, which may have come while the next rows are made."""
        text = f"{ERASE_LINE}\r\n".join(self._drawn)
        self._terminal.send(
            f"{BEGIN_UPDATE}{RESET_COLOURS}{NO_WRAP}{_HOME}{text}{ERASE_LINE}{ERASE_BELOW}{WRAP}{END_UPDATE}"
        )

    def _styled(self, texts: Sequence[Text]) -> list[str]:
        with self._console.capture() as capture:
            for text in texts:
                text.plain = marked(text.plain)
                self._console.print(text, soft_wrap=True)
        return capture.get().removesuffix("\n").split("\n")


@contextlib.contextmanager
def _later_stderr() -> Iterator[None]:
    """Keep what is written to standard error, the loggers as well, and write it in the end."""
    kept = io.StringIO()
    with contextlib.ExitStack() as exits:
        exits.callback(lambda: sys.stderr.write(kept.getvalue()))
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                exits.callback(handler.setStream, handler.setStream(kept))
        exits.enter_context(contextlib.redirect_stderr(kept))
        yield
