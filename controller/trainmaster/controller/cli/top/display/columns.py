"""A table in the width that there is: columns that matter least go first, texts are cut; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    header: str
    keep: int
    """How much it matters: the smallest goes first."""

    at_most: int = 0
    """Its greatest width; 0: that of its longest text."""

    at_least: int = 0
    """To which width it may be cut; 0: not at all."""

    right: bool = False
    """Whether its texts end at the same place, as numbers do."""


def laid_out(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> list[Text]:
    """Return the lines of a table, its header first.

    Args:
        columns: Of the table.
        rows: A text for each column; they are not changed.
        width: What a line may take.
    """
    wanted = {
        index: max([cell_len(column.header), *(cell_len(row[index].plain) for row in rows)])
        for index, column in enumerate(columns)
    }
    for index, column in enumerate(columns):
        wanted[index] = min(wanted[index], column.at_most or wanted[index])
    shown = list(wanted)
    while (widths := _cut(columns, {index: wanted[index] for index in shown}, width)) is None:
        shown.remove(min(shown, key=lambda index: columns[index].keep))
    header = [Text(column.header) for column in columns]
    return [_line(columns, row, widths) for row in (header, *rows)]


def _cut(columns: Sequence[Column], widths: dict[int, int], width: int) -> dict[int, int] | None:
    """Return the widths at which columns fit, those cut that may be; None if they do not."""
    room = width - _GAP * (len(widths) - 1) - sum(widths.values())
    for index in sorted(widths, key=lambda index: -widths[index]):
        column = columns[index]
        if room < 0 and column.at_least:
            cut = min(-room, max(widths[index] - max(column.at_least, len(column.header)), 0))
            widths[index] -= cut
            room += cut
    if room < 0 and len(widths) == 1:
        return dict.fromkeys(widths, max(width, 1))
    return None if room < 0 else widths


def _line(columns: Sequence[Column], texts: Sequence[Text], widths: dict[int, int]) -> Text:
    line = Text()
    for number, index in enumerate(sorted(widths)):
        text = texts[index].copy()
        text.truncate(widths[index], overflow="ellipsis")
        space = widths[index] - cell_len(text.plain)
        if number:
            line.append(" " * _GAP)
        if columns[index].right:
            text.pad_left(space)
        else:
            text.pad_right(space)
        line.append_text(text)
    line.rstrip()
    return line
