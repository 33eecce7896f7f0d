"""docs/guides/files.md: what it shows of `render --explain` is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainmaster.controller.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/files.md").read_text(encoding="utf-8")


def test_the_excerpt_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [(command, excerpt)] = re.findall(
        r"```sh\ntrainmaster (render .*--explain)\n```\n\n```yaml\n(.*?)```", PAGE, re.DOTALL
    )
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    missing = [line for line in excerpt.splitlines() if line not in printed]  # takes what is before it, too
    assert not missing
