"""A text on a screen of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from trainmaster.controller.cli.top.display.keyboard import Key
from trainmaster.controller.cli.top.display.page import Page

LINES = [f"line {number}" for number in range(50)]


def shown(page: Page, columns: int = 40, lines: int = 12) -> list[str]:
    return [row.plain for row in page.rows(columns, lines)]


def test_keys_move_it_and_others_leave_it() -> None:
    page = Page("TrainJob team/mnist", LINES)
    assert shown(page) == ["TrainJob team/mnist", *LINES[:10], "enter, q back   40 more below"]
    assert page.press(Key.DOWN)
    assert shown(page)[1] == "line 1"
    assert page.press(Key.PAGE_DOWN)
    assert shown(page)[1] == "line 11"
    assert page.press(Key.END)
    assert shown(page)[1:] == [*LINES[-10:], "enter, q back"]
    assert page.press(Key.PAGE_UP)
    assert shown(page)[1] == "line 30"
    assert page.press(Key.HOME)
    assert page.press(Key.UP)
    assert shown(page)[1] == "line 0"
    assert page.press("x")
    assert [page.press(key) for key in (Key.ENTER, Key.ESCAPE, "q")] == [False, False, False]


def test_a_long_line_is_wrapped_below_its_beginning() -> None:
    assert shown(Page("", ["  - ask for less memory, or for a larger node"]), 24, 5)[1:3] == [
        "  - ask for less memory,",
        "  or for a larger node",
    ]


@given(st.lists(st.text(max_size=80), max_size=20), st.integers(1, 60), st.integers(1, 30))
def test_it_fits_into_any_terminal(lines: list[str], columns: int, height: int) -> None:
    rows = Page("a title", lines).rows(columns, height)
    assert len(rows) <= height
    assert all(cell_len(row.plain) <= columns for row in rows)
