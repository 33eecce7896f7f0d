"""Pages for operators name probes, pages, log messages and objects that there are; for commands see `test_commands`."""

import re
from pathlib import Path

from trainmaster.controller.debugging.handlers import INDEX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations.md").read_text()
RUNBOOKS = (ROOT / "docs/runbooks/README.md").read_text()
DEPLOYED = "".join(path.read_text() for path in (ROOT / "deploy").rglob("*.yaml"))
CODE = "".join(path.read_text() for path in (ROOT / "controller").rglob("*.py"))


def test_every_check_of_a_probe_is_explained() -> None:
    added = set(re.findall(r"add_(?:healthz|readyz)_check\(\s*\"([\w-]+)\"", CODE)) | {"ping"}
    explained = re.findall(r"^\| `([\w-]+)` \| (?:both|liveness|readiness) \|", PAGE, re.MULTILINE)
    assert set(explained) == added


def test_every_page_below_debug_is_listed() -> None:
    assert re.findall(r"^\| `(/debug/\S+)` \|", PAGE, re.MULTILINE) == re.findall(r"^(/debug/\S+)", INDEX, re.MULTILINE)


def lines() -> list[str]:
    """Every line of a command of the runbooks."""
    blocks = re.findall(r"```sh\n(.*?)```", RUNBOOKS, re.DOTALL)
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
