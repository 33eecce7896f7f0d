"""Guides list what there is: causes and fields of `trainmaster explain`, and what `render --explain` prints."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmaster.controller.cli import main
from trainmaster.controller.cli.printers import BAD_INPUT, FAILURE, INTERRUPTED
from trainmaster.controller.explain.cause import Cause, Question
from trainmaster.controller.explain.state import WORDS
from trainmaster.controller.job_fields import PRECEDENCE

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/controller/cli/explain/golden"
GUIDE = (ROOT / "docs/guides/explain.md").read_text()
FILES = (ROOT / "docs/guides/files.md").read_text()


def test_every_cause_is_listed_in_the_words_of_the_command() -> None:
    rows = [line for line in GUIDE.splitlines() if line.endswith(("start)", "finish)", "failed)"))]
    wanted = [
        f"- `{cause}`: {cause.summary} ({', '.join(each for each in Question if each in cause.questions)})"
        for cause in Cause
    ]
    assert rows == wanted


def test_every_field_of_the_json_is_told() -> None:
    def fields(node: Any) -> Iterator[str]:
        for key, value in node.items() if isinstance(node, dict) else ():
            yield key
            yield from fields(value)
        for each in node if isinstance(node, list) else ():
            yield from fields(each)

    section = GUIDE.partition("## For programs")[2]
    told = {part for name in re.findall(r"`([\w.\[\]]+)`", section) for part in name.replace("[]", "").split(".")}
    documents = [json.loads(path.read_text()) for path in GOLDEN.glob("*.json")]
    assert len(documents) > 1
    used = {name for each in documents for name in fields(each)}
    assert used <= told
    # The others that are told are the one that these files do not have, and values.
    others = {name for name in told - used if name[:1].islower()}
    assert others == {"history", "certain", "likely", "possible", "forbidden", "failed"}


def test_every_exit_code_is_told() -> None:
    rows = re.findall(r"^\| (\d+) \|", GUIDE, re.MULTILINE)
    assert rows == [str(code) for code in (0, FAILURE, BAD_INPUT, INTERRUPTED)]


def test_every_state_is_named_in_the_order_in_which_conditions_count() -> None:
    states = (ROOT / "docs/concepts/life-of-a-job.md").read_text().partition("\n## States\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", states, re.MULTILINE)) == PRECEDENCE
    assert all(f"`{state}`" in states for state in WORDS)


def test_the_excerpt_is_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    [(command, excerpt)] = re.findall(
        r"```sh\ntrainmaster (render .*--explain)\n```\n\n```yaml\n(.*?)```", FILES, re.DOTALL
    )
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    missing = [line for line in excerpt.splitlines() if line not in printed]  # takes what is before it, too
    assert not missing
