"""A table in the width that there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from trainmaster.controller.cli.top.display.columns import Column, laid_out

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
