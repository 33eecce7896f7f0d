"""The guide of `trainmaster explain` lists every cause with what the command says of it, and the fields of its JSON."""

from __future__ import annotations

from pathlib import Path

from trainmaster.controller.explain.cause import Cause, Question
from trainmaster.controller.explain.state import State

GUIDE = (Path(__file__).parents[2] / "docs/guides/explain.md").read_text()


def test_every_cause_stands_in_the_table_in_the_words_of_the_command() -> None:
    rows = [
        line
        for line in GUIDE.splitlines()
        if line.startswith("| `") and line.endswith((" start |", " finish |", " failed |"))
    ]
    wanted = [
        f"| `{cause}` | {cause.summary} | {', '.join(each for each in Question if each in cause.questions)} |"
        for cause in Cause
    ]
    assert rows == wanted


def test_every_state_is_named() -> None:
    (line,) = [line for line in GUIDE.splitlines() if line.startswith("| `state.name`")]
    assert all(f"`{state}`" in line for state in State)
