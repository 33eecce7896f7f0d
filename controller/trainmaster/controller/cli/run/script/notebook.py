"""A Jupyter notebook as a script: its code cells, one after the other.

- Magics, shell commands and questions (`x?`) mean nothing to Python: in cells that are no Python because of them they
  become comments, and each is told. The whole cell does if it begins with a magic such as `%%bash`, whose text is no
  Python.
- An error that ends the script is printed with the cells that it comes from, not with lines of the script.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.controller.cli.run.script.options import ProgramError

_MAGIC: Final = re.compile(r"\s*(?:[%!?]|[\w.]+\?{1,2}\s*;?\s*$)")
"""At the beginning of a line: `%time`, `!pip`, `?name`, and a line that is `name?` or `name??`."""

_MAGIC_OF_PYTHON: Final = ("%%time", "%%timeit", "%%capture", "%%prun")
"""The first lines of cells whose rest is Python all the same."""

_OF_JUPYTER: Final = frozenset({"display", "get_ipython"})
_FOR_JUPYTER: Final = """\
# Jupyter gives its cells display(), of which a script can only print, and get_ipython(), which is None elsewhere.
def display(*objects, **options): print(*objects, sep="\\n")
def get_ipython(): return None"""
"""Goes in front of the first cell that uses a name of them."""

_NAMES_CELLS: Final = """\
# In what Python prints of an error, the lines of this file become those of the cells.
def _print_error(kind, error, trace):
    import linecache, sys, traceback
    script = _print_error.__code__.co_filename
    lines = linecache.getlines(script)
    told = traceback.TracebackException(kind, error, trace)
    chained = [told]
    for each in chained:
        chained += filter(None, [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())])
        for frame in each.stack:
            if frame.filename == script:
                begin = max(n for n, line in enumerate(lines[: frame.lineno], 1) if line.startswith("# cell "))
                frame.filename = {title!a} + ", " + lines[begin - 1][2:].strip()
                for name in ("lineno", "end_lineno"):
                    if getattr(frame, name, None):
                        setattr(frame, name, getattr(frame, name) - begin)
    print("".join(told.format()), end="", file=sys.stderr)
__import__("sys").excepthook = _print_error"""
"""Goes in front of the first cell, or of the next one if that has to be the beginning of the script."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook as a script."""

    text: str

    left_out: tuple[str, ...]
    """The cells with lines that were made comments, each as `cell 2: %matplotlib inline`."""


def convert_notebook(content: bytes, *, title: str) -> Notebook:
    """Return the script of a notebook.

    Raises:
        ProgramError: It is no notebook of nbformat 4, or not one of Python.
    """
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{title}: it is no notebook: {error}") from error
    cells = tree.get("cells") if isinstance(tree, dict) else None
    if not isinstance(cells, list):
        raise ProgramError(
            f"{title}: it is no notebook of version 4, which has its cells under `cells`; "
            "`jupyter nbconvert --to notebook` brings older ones up to date"
        )
    language = _language(tree)
    if language != "python":
        raise ProgramError(f"{title}: it is a notebook of {language}, and only Python is run")
    parts, left_out = [], list[str]()
    is_settled = names_cells = False
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        lines, commented = _python(_source(cell))
        left_out += [f"cell {number}: {line.strip()}" for line in commented]
        if not names_cells and not _is_beginning("\n".join(lines)):
            parts.append(_NAMES_CELLS.replace("{title!a}", ascii(title)))
            names_cells = True
        if not is_settled and (uses := _uses_jupyter("\n".join(lines))) is not None:
            parts += [_FOR_JUPYTER] if uses else []
            is_settled = True
        parts.append("\n".join([f"# cell {number}", *lines]))
    if not parts:
        raise ProgramError(f"{title}: it has no cell with code")
    return Notebook("\n\n".join(parts) + "\n", tuple(left_out))


def cell_of(text: str, line: int) -> tuple[int, int]:
    """Return the cell that a line of the script comes from, and which of its lines it is, both from 1."""
    number, begin = 0, 0
    for position, each in enumerate(text.splitlines()[:line], start=1):
        if each.startswith("# cell ") and each[7:].isdecimal():
            number, begin = int(each[7:]), position
    return number, line - begin


def _language(tree: dict[str, Any]) -> str:
    metadata = tree.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    language = kernel.get("language") if isinstance(kernel, dict) else None
    return language.lower() if isinstance(language, str) and language else "python"


def _source(cell: dict[str, Any]) -> list[str]:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source.splitlines() if isinstance(source, str) else []


def _python(lines: list[str]) -> tuple[list[str], list[str]]:
    """Make comments of what is no Python; returns the lines, and which were changed."""
    if _parsed("\n".join(lines)) is not None:
        return lines, []
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in _MAGIC_OF_PYTHON:
        return [f"# {line}" for line in lines], [first]
    kept, commented = [], []
    for line in lines:
        if _MAGIC.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            kept.append(f"{indent}pass  # {line.strip()}")
            commented.append(line)
        else:
            kept.append(line)
    return kept, commented


def _uses_jupyter(text: str) -> bool | None:
    """Return whether a cell uses what Jupyter alone gives it; False: it has its own; None: it has neither."""
    if _is_beginning(text):
        return None
    tree = _parsed(text)
    nodes = [] if tree is None else list(ast.walk(tree))
    made = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    made |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id in _OF_JUPYTER]
    if made & _OF_JUPYTER or any(isinstance(node.ctx, ast.Store) for node in names):
        return False
    return True if names else None


def _is_beginning(text: str) -> bool:
    """Whether nothing may precede a cell: it imports from `__future__`."""
    tree = _parsed(text)
    nodes = [] if tree is None else tree.body
    return any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in nodes)


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
