"""What is told of the log of a manager that ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.devcluster.manager.last_error import last_error

HEAD = "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it said nothing; see its log"),
        (f"{HEAD} [info     ] all is well [trainmaster.x]\nText.\n{HEAD} [warning  ] oh [a.b] error='x'\n", "Text."),
        (f"{HEAD} [info     ] all is well [trainmaster.x]\n", "it said nothing; see its log"),
        ("\n\n", "it said nothing; see its log"),
        (
            "Traceback (most recent call last):\n  File\nModuleNotFoundError: no acme\n\n",
            "ModuleNotFoundError: no acme",
        ),
        (
            f"{HEAD} [error    ] it cannot run         [trainmaster.x] error='no such file'\n",
            "it cannot run: no such file",
        ),
        (
            f'{HEAD} [error    ] it failed [trainmaster.x] code=3 error="it\'s\\n  over\\n" more=1\n',
            "it failed: it's; over",
        ),
        (f"{HEAD} [critical ] no more  [trainmaster.x]\n{HEAD} [info     ] stopped [trainmaster.x]\n", "no more"),
        (f"{HEAD} [error    ] failed [a.b] error=Odd\nTraceback:\nValueError: 3\n", "failed: Odd"),
    ],
)
def test_the_last_error_is_found(tmp_path: Path, text: str, error: str) -> None:
    log = tmp_path / "manager.log"
    log.write_text(text)
    assert last_error(log, 0) == error


def test_what_an_earlier_manager_said_is_not_meant(tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    assert last_error(log, 0) == "it said nothing; see its log", "there is none yet"
    log.write_text("old\n")
    begin = log.stat().st_size
    assert last_error(log, begin) == "it said nothing; see its log"
    with log.open("a") as file:
        file.write("new\n")
    assert last_error(log, begin) == "new"
    # The log has been rotated since.
    log.write_text("n\n")
    assert last_error(log, begin) == "n"
    log.write_text("x" * 1_000_000 + "\nthe end\n")
    assert last_error(log, 0) == "the end"
