"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from trainmaster.controller.cli import root

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/numpy-digits"


def test_a_broken_command_of_somebody_else_costs_itself_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "no.such.module:command", root.COMMANDS_GROUP)
    monkeypatch.setattr(root, "entry_points", lambda group: [broken])
    with pytest.raises(SystemExit, match="0"):
        root.main(["--help"])
    printed = capsys.readouterr()
    assert printed.err == "trainmaster: no command 'broken': no.such.module:command: No module named 'no'\n"
    assert all(name in printed.out for name in root.COMMANDS)


def test_what_a_command_of_somebody_else_misses_is_not_said_to_be_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(commands: Any) -> None:
        commands.add_parser("theirs").set_defaults(run=lambda arguments: import_module("no_such_module"))

    class Point(EntryPoint):
        def load(self) -> Any:
            return command

    monkeypatch.setattr(root, "entry_points", lambda group: [Point("theirs", "their.module:command", group)])
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        root.main(["theirs"])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["manager", "--bogus"], ["--bogus", "list"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        root.main(arguments)
    assert "usage: trainmaster" in capsys.readouterr().err


def test_a_misspelt_command_is_told_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        root.main(["runn", "train.py"])
    assert capsys.readouterr().err.endswith("error: there is no command 'runn'; did you mean run?\n")


@pytest.mark.nightly
def test_a_command_loads_nothing_that_another_one_needs() -> None:
    """The client library alone takes longer to import than a rendering may take."""
    script = (
        "import sys; from trainmaster.controller.cli import main\n"
        "try: main(['render', '--help'])\n"
        "except SystemExit: print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "trainmaster" in loaded
    assert not loaded & {"aiohttp", "asyncio", "kubernetes_asyncio", "rich", "structlog"}


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told_in_a_line() -> None:
    """A full disk is no fault of ours, and no traceback."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "trainmaster.controller.cli", "render", "-f", str(EXAMPLE)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "trainmaster: No space left on device\n")
