"""What the screen consists of: keys, tables, pages, and which jobs are shown of many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text
from support.top import NOW, top_job

from trainmaster.controller.cli.top.cluster.attention import Order, TopJob
from trainmaster.controller.cli.top.display.columns import Column, laid_out
from trainmaster.controller.cli.top.display.keyboard import Key, Keyboard
from trainmaster.controller.cli.top.display.page import Page
from trainmaster.controller.cli.top.display.window import Window


def test_keys() -> None:
    for sent, keys in (
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", [Key.UP, Key.DOWN]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", [Key.PAGE_UP, Key.PAGE_DOWN, Key.HOME, Key.END]),
        (b"\x1b", [Key.ESCAPE]),
        (b"a\x7fb\r", ["a", Key.BACKSPACE, "b", Key.ENTER]),
        (b"\x1b[15~\x1b[1;5C\x01\tx", ["x"]),
        ("ä".encode(), ["ä"]),
        (b"\xff\xfe", []),
        (b"", []),
    ):
        assert Keyboard().keys(sent) == keys
    # A character may come in pieces.
    keyboard = Keyboard()
    assert keyboard.keys("ü".encode()[:1]) == []
    assert keyboard.keys("ü".encode()[1:]) == ["ü"]


COLUMNS = (
    Column("NAME", keep=9, at_most=20, at_least=6),
    Column("STATE", keep=5),
    Column("AGE", keep=1, right=True),
    Column("CAUSE", keep=3, at_least=8),
)
ROWS = [
    [Text("a"), Text("Running"), Text("5m"), Text("")],
    [Text("a-long-name-of-a-job-that-somebody-chose"), Text("Failed"), Text("120d"), Text("it had no memory left")],
]


def lines(width: int) -> list[str]:
    return [line.plain for line in laid_out(COLUMNS, ROWS, width)]


def test_with_room_enough_all_is_told_and_what_matters_least_goes_first() -> None:
    assert lines(80) == [
        "NAME                  STATE     AGE  CAUSE",
        "a                     Running    5m",
        "a-long-name-of-a-jo…  Failed   120d  it had no memory left",
    ]
    # Long texts are cut before a column goes.
    assert lines(45) == [
        "NAME                  STATE     AGE  CAUSE",
        "a                     Running    5m",
        "a-long-name-of-a-jo…  Failed   120d  it had …",
    ]
    assert lines(38)[2] == "a-long-name-…  Failed   120d  it had …"
    # What matters least goes first.
    assert lines(26)[0].split() == ["NAME", "STATE", "CAUSE"]
    assert lines(16)[0].split() == ["NAME", "STATE"]
    assert lines(5) == ["NAME", "a", "a-lo…"]


@given(st.integers(1, 120), st.lists(st.text(max_size=60).map(lambda text: " ".join(text.split())), max_size=6))
def test_no_line_is_wider_than_the_terminal(width: int, texts: list[str]) -> None:
    rows = [[Text(text), Text("Running"), Text("1s"), Text(text)] for text in texts]
    for line in laid_out(COLUMNS, rows, width):
        assert cell_len(line.plain) <= width


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


JOBS = [top_job(f"job-{number:03}") for number in range(100)]


def window(jobs: list[TopJob] = JOBS) -> Window:
    made = Window()
    made.order = Order.NAME
    made.take(jobs, NOW)
    return made


def shown_jobs(of: Window, height: int = 10) -> list[str]:
    return [job.row.name for job in of.shown(height)]


def selected(of: Window) -> str:
    assert of.job is not None
    assert of.job.key == of.selected_key
    return of.job.row.name


def test_as_many_as_there_is_room_for_are_shown() -> None:
    view = window()
    assert shown_jobs(view) == [f"job-{number:03}" for number in range(10)]
    assert (view.count, selected(view)) == (100, "job-000")
    # With more room the rows are filled.
    view = window()
    view.move_to_end(first=False)
    shown_jobs(view, 10)
    assert shown_jobs(view, 40) == [f"job-{number:03}" for number in range(60, 100)]
    # A filter holds for jobs that come later.
    view = window()
    view.filter = "job-01"
    view.take(JOBS, NOW)
    assert view.count == 10
    assert selected(view) == "job-010"


def test_the_selected_one_is_always_seen() -> None:
    view = window()
    shown_jobs(view)
    view.move(12)
    assert shown_jobs(view)[-1] == "job-012"
    view.move(-5)
    assert shown_jobs(view)[0] == "job-003"
    view.move(-5)
    assert shown_jobs(view)[0] == "job-002"
    view.move_page(1)
    assert selected(view) == "job-012"
    view.move_to_end(first=False)
    assert shown_jobs(view)[-1] == "job-099"
    view.move(5)
    assert selected(view) == "job-099"
    assert "job-099" in shown_jobs(view, 3)
    view.move_to_end(first=True)
    assert shown_jobs(view)[0] == "job-000"


def test_before_somebody_chooses_the_first_one_is_selected_and_then_it_stays_selected() -> None:
    view = window()
    view.take([top_job("a"), *JOBS], NOW)
    assert selected(view) == "a"
    # A selected job stays selected while others come and go.
    view = window()
    view.move(50)
    view.take([*[top_job(f"a-{number:03}") for number in range(10)], *JOBS], NOW)
    assert (selected(view), view.selected) == ("job-050", 60)
    view.take(JOBS[:50], NOW)
    assert selected(view) == "job-049"
    view.take([], NOW)
    assert view.job is None
    assert shown_jobs(view) == []
