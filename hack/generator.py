"""What generators share: their command line, which writes files or with --check only compares; pages, of which they
write a part; docstrings of fields; and their YAML."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import yaml


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser that all generators begin with."""
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a file is not up to date")
    return made


def write(files: Mapping[Path, str], *, check: bool) -> int:
    """Write the files that are not up to date, or with `check` only name them; returns the exit code."""
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path} is out of date: run {Path(sys.argv[0]).name} and commit what it writes", file=sys.stderr)
        else:
            print(f"{path} is written")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
    return 1 if check and stale else 0


_END: Final = "<!-- End of what is written. -->\n"


def spliced(page: Path, begin: str, content: str) -> str:
    """Return a page with something else between a marker and the end of what is written.

    Raises:
        SystemExit: The page has lost its markers.
    """
    before, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(_END)
    if not (begun and ended):
        raise SystemExit(f"{page} has lost its markers: {begin.strip()} and {_END.strip()}")
    return f"{before}{begin}{content}{_END}{after}"


def field_docstrings(thing: type) -> dict[str, str]:
    """Return the fields of a class with the docstrings that follow them, empty where there is none."""
    try:
        tree = ast.parse(dedent(inspect.getsource(thing)))
    except OSError:
        return {}
    (definition,) = tree.body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - that is what was parsed
    fields: dict[str, str] = {}
    last = ""
    for node in definition.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_") and name != "model_config":
                fields[name] = ""
                last = name
            case ast.Assign(targets=[ast.Name(id=name)]) if issubclass(thing, Enum) and not name.startswith("_"):
                fields[name] = ""
                last = name
            case ast.Expr(value=ast.Constant(value=str(text))) if last:
                fields[last] = inspect.cleandoc(text)
            case _:
                last = ""
    return fields


class Dumper(yaml.CSafeDumper):
    """Writes parts that are shared each time: not every reader knows anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML calls it with each node
        """Never write an alias."""
        return True
