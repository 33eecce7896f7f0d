#!/usr/bin/env python3
"""Draw what a command leaves on a terminal, as SVG: draw_terminal.py PICTURE COMMAND [ARGUMENT ...]

The picture of README.md: in a directory with examples/torch-digits/train.py, where PyTorch is installed,
`draw_terminal.py docs/images/run.svg trainmaster run train.py --nodes 2`.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
from itertools import groupby
from pathlib import Path
from typing import Final

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS: Final = 100
LINES: Final = 60
FORMAT: Final = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without fonts, which would be loaded from elsewhere."""


_COLOURS: Final = {"brown": "yellow"}
"""Names of the terminal's colours that are not those of the drawing."""


def run(command: list[str]) -> pyte.Screen:
    """Run a command in a terminal; return what that shows at the end."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.pop("CI", None)
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        os.execvp(command[0], command)  # noqa: S606 -- the command is that of the caller
    try:
        while written := os.read(terminal, 65536):
            stream.feed(written)
    except OSError:
        pass  # how a terminal tells that nobody writes any more
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit("\n".join(row.rstrip() for row in screen.display).rstrip())
    return screen


def text_of(screen: pyte.Screen) -> Text:
    """Return what a terminal shows, with its colours."""
    lines = []
    for number, row in enumerate(screen.display):
        cells = [screen.buffer[number][column] for column in range(len(row.rstrip()))]
        parts = [
            ("".join(cell.data for cell in alike), Style(color=_COLOURS.get(colour, colour), bold=bold))
            for (colour, bold), alike in groupby(cells, lambda cell: (cell.fg, cell.bold))
        ]
        lines.append(Text.assemble(*parts))
    shown = Text("\n").join(lines)
    shown.rstrip()
    return shown


def main(picture: str, *command: str) -> None:
    """Run the command, and draw it below its prompt."""
    shown = Text.assemble(("$ ", "bold green"), (shlex.join(command), "bold"), "\n", text_of(run(list(command))))
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(shown, soft_wrap=True)
    # A fixed id: the same text makes the same file.
    drawn = console.export_svg(title="trainmaster", code_format=FORMAT, unique_id="run")
    Path(picture).write_text(drawn, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
