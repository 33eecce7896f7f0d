"""Tests as proofs: a mark on a test names the statements that it proves, and tables in Markdown say so."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent


class Proof(NamedTuple):
    """A test that carries an id."""

    path: str
    name: str


def read_proofs(mark: str) -> Mapping[str, Sequence[Proof]]:
    """Find the tests that carry `@pytest.mark.MARK("ID", ...)`, by id."""
    proofs: dict[str, list[Proof]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, identity in _marked(path.read_text(encoding="utf-8"), mark):
            proofs[identity].append(Proof(str(path.relative_to(ROOT)), name))
    return proofs


def _marked(source: str, mark: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each test and each id that its mark gives."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{mark}":
                    for argument in decorator.args:
                        yield node.name, ast.literal_eval(argument)


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return text.replace("|", "\\|")


def line(value: object) -> str:
    """Return a text of YAML as one line; nothing is an empty one."""
    return " ".join(str(value or "").split())
