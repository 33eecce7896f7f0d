"""What the displays of commands share: a console on the terminal, and cells.

A console draws by escape sequences, which the guard of the output would write as text, so it writes below it. Whatever
is drawn is made of cells, in which no character acts upon the terminal.
"""

from __future__ import annotations

import io
import logging
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from trainmaster.controller.cli.output import marked


def terminal_console(file: TextIO | None = None) -> Console:
    """Return a console on a terminal, by default that of standard output."""
    stream = file or getattr(sys.stdout, "stream", sys.stdout)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")  # of what its encoding lacks; a display ends for no character
    return Console(file=stream, highlight=False, emoji=False, markup=False)


def cell(text: str, style: str = "") -> Text:
    """Return a text of one row, which is cut where there is no room."""
    return Text(marked(text), style=style, no_wrap=True, overflow="ellipsis")


def table(rows: Iterable[Sequence[RenderableType]]) -> Table:
    """Return cells in columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        grid.add_row(*row)
    return grid


@contextmanager
def drawing(stderr: TextIO) -> Iterator[None]:
    """Have a stream take standard error meanwhile, that of loggers as well, and SIGTERM end the program in its order.

    By default the signal would leave the terminal without its cursor.
    """
    with ExitStack() as exits:
        exits.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _exit))
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                exits.callback(handler.setStream, handler.setStream(stderr))
        exits.enter_context(redirect_stderr(stderr))
        yield


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)
