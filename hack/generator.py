"""What generators share: their command line, which writes files or with --check only compares; pages, of which they
write a part; and their YAML."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


class PlaceUnknown(Exception):
    """A page and what is written into it do not fit; the message says how."""


def spliced(text: str, begin: str, content: str, end: str) -> str:
    """Return a page with something else between two markers.

    Raises:
        PlaceUnknown: The page has lost its markers.
    """
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise PlaceUnknown(f"it has lost its markers: {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{content}{end}{after}"


class Dumper(yaml.CSafeDumper):
    """Writes parts that are shared each time: not every reader knows anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML calls it with each node
        """Never write an alias."""
        return True
