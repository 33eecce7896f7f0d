"""The command line as a whole."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from trainmaster.controller import cli


def test_a_broken_command_of_somebody_else_costs_itself_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "no.such.module:command", cli.COMMANDS_GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: [broken])
    with pytest.raises(SystemExit, match="0"):
        cli.main(["manager", "--help"])
    printed = capsys.readouterr()
    assert printed.err == "trainmaster: no command 'broken': no.such.module:command: No module named 'no'\n"
    assert "--feature-gates" in printed.out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["manager", "--bogus"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "usage: trainmaster" in capsys.readouterr().err
