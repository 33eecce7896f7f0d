"""Runbooks name log messages and objects that there are; their commands are in `test_commands`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/runbooks").glob("*.md"))
CODE = "".join(path.read_text() for path in (ROOT / "controller").rglob("*.py"))
DEPLOYED = "".join(path.read_text() for path in (ROOT / "deploy").rglob("*.yaml"))


def lines() -> list[str]:
    """Every line of a command, of all pages."""
    blocks = [block for page in PAGES for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)]
    return sorted({line for block in blocks for line in block.splitlines()})


def test_messages_that_are_searched_for_are_logged() -> None:
    searched = {text for line in lines() for text in re.findall(r"grep '([a-z ]{12,})'", line)}
    assert searched
    assert [text for text in searched if f'"{text}' not in CODE] == []


def test_objects_of_ours_have_these_names() -> None:
    ours = "\n".join(line for line in lines() if line.startswith("kubectl --namespace kubeflow "))
    names = [f"name: {name}" for name in re.findall(r"\bkubeflow-trainer-[a-z-]+", ours)]
    selected = [f"{key}: {value}" for key, value in re.findall(r"--selector (\S+)=(\S+)", ours)]
    assert names
    assert selected
    assert [text for text in (*names, *selected) if text not in DEPLOYED] == []
