"""Commands of ours that pages show are understood, and configurations that they show can be used.

`tests/e2e/test_examples.py` runs those of the guides, of the concepts and of the first pages on a cluster.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.controller.cli.root import full_parser, main

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path != ROOT / "docs/reference/cli.md"),
]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
SHELL = frozenset({"", "sh", "console", "text"})
SYNTAX = re.compile(r"\[|\.\.\.|\| ")
"""In what is no command, but tells how one is written."""


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The blocks of a page, each with its language."""
    for indent, language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


def commands(page: Path) -> Iterator[str]:
    """The commands of ours in the blocks of a page."""
    for language, text in blocks(page):
        if language in SHELL:
            for line in re.sub(r"\\\n\s*", "", text).splitlines():
                found = re.match(r"(?:\$ )?(?:\w+=\S+ )*(trainmaster .*)", line)
                if found and (line.startswith("$") or not SYNTAX.search(found[1])):
                    yield found[1]


COMMANDS = sorted(
    {
        (page.relative_to(ROOT).as_posix(), command)
        for page in PAGES
        for command in commands(page)
        if not command.endswith(("--help", "--version"))  # which run nothing
    }
)
CONFIGURATIONS = sorted(
    {
        (page, text)
        for page in PAGES
        if page.stem not in {"job-kinds", "write-a-plugin"}  # of packages that they tell one to write
        for _, text in blocks(page)
        if text.startswith("apiVersion: config.trainer")
    }
)


def test_commands_of_ours_are_understood() -> None:
    parser = full_parser()
    for page, command in COMMANDS:
        words = shlex.split(re.split(r" (?:[|>]|\|\||2>&1)(?: |$)", command)[0], comments=True)[1:]
        words = words[: words.index("--")] if "--" in words else words  # what is behind belongs to the program
        try:
            parsed = vars(parser.parse_args(words))
        except SystemExit:
            pytest.fail(f"{page}: {command}")
        assert "run" in parsed, (page, command)


def test_commands_that_texts_name_exist() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`trainmaster ([a-z-]+)[` ]", page.read_text(encoding="utf-8"))
        if not name.startswith("-")
    }
    known = {name for action in full_parser()._actions if isinstance(action.choices, dict) for name in action.choices}
    assert len(named) > 15
    assert named <= known


@pytest.mark.parametrize(
    ("page", "text"), CONFIGURATIONS, ids=[f"{page.stem}-{number}" for number, (page, _) in enumerate(CONFIGURATIONS)]
)
def test_configurations_can_be_used(page: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert main(["config", "check", str(file)]) == 0, f"{page}: {capsys.readouterr()}"
