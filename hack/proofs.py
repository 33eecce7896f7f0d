"""Tests as proofs: a test proves what its name starts with the id of, and tables in Markdown say so."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent


class Proof(NamedTuple):
    """A test that carries an id."""

    path: str
    name: str


def read_proofs(ids_in: Callable[[str], Iterable[str]]) -> Mapping[str, Sequence[Proof]]:
    """Find the tests that carry ids, by id; `ids_in` reads them from the name of a test."""
    proofs: dict[str, list[Proof]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in _functions(path):
            for identity in ids_in(name):
                proofs[identity].append(Proof(str(path.relative_to(ROOT)), name))
    return proofs


def _functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return text.replace("|", "\\|")


def line(value: object) -> str:
    """Return a text of YAML as one line; nothing is an empty one."""
    return " ".join(str(value or "").split())
