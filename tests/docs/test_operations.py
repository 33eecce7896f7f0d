"""The page for operators names what there is, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.controller.debugging.handlers import INDEX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations.md").read_text()
CODE = "".join(path.read_text() for path in (ROOT / "controller").rglob("*.py"))


def test_every_check_of_a_probe_is_explained() -> None:
    added = set(re.findall(r"add_(?:healthz|readyz)_check\(\s*\"([\w-]+)\"", CODE)) | {"ping"}
    explained = re.findall(r"^\| `([\w-]+)` \| (?:both|liveness|readiness) \|", PAGE, re.MULTILINE)
    assert set(explained) == added


def test_every_page_below_debug_is_listed() -> None:
    assert re.findall(r"^\| `(/debug/\S+)` \|", PAGE, re.MULTILINE) == re.findall(r"^(/debug/\S+)", INDEX, re.MULTILINE)
