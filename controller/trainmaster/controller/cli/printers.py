"""Printing for people and programs: objects as YAML that Kubernetes reads back as the same ones, or JSON; tables,
errors, and commands to be typed next.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
import yaml

from trainmaster.controller.cli.output import UNSAFE
from trainmaster.runtime.jsontree import JsonObject

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes."""

REDACTED: Final = "<redacted>"

_WIDTH: Final = 10**6
"""No line is ever folded: commands and keys are easier to copy in one piece."""

_MANY: Final = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_UNITS: Final = (
    # From which number on, and below which number with what parts.
    ("d", _DAY, 2, "h", _HOUR, 8),
    ("h", _HOUR, 3, "m", _MINUTE, 8),
    ("m", _MINUTE, 2, "s", 1, 10),
)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes texts of several lines as they are read, shared parts out each time, and quotes what is no text else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML calls it with each node
        """Write shared parts out: anchors would be an odd thing to find in a manifest."""
        return True


def _text(dumper: _Dumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    # As `output` writes unsafe characters they mean the same between quotes, and nowhere else.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if UNSAFE.search(text) else style)


def _list(dumper: _Dumper, members: list[Any]) -> Any:
    """Write many numbers in one line: exit codes, for instance."""
    is_long = len(members) > _MANY and all(isinstance(member, int) for member in members)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", members, flow_style=is_long)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
# What Kubernetes takes for a boolean or a number, and PyYAML does not.
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:0o[0-7_]+|[0-9.]+[eE][-+]?[0-9]+)$"), list("-+.0123456789")
)


def to_yaml(obj: Any, *, sort_keys: bool = False) -> str:
    """Write one document."""
    text: str = yaml.dump(obj, Dumper=_Dumper, sort_keys=sort_keys, width=_WIDTH, allow_unicode=True)
    return text


def report(text: str) -> None:
    """Tell the user; what was asked for goes to standard output, this does not."""
    print(text, file=sys.stderr, flush=True)


def complain(error: Exception, code: int) -> int:
    """Print an error to standard error, as that of this program; returns the exit code."""
    for line in str(error).splitlines():
        print(f"trainmaster: {line}", file=sys.stderr)
    return code


def print_objects(objects: Sequence[JsonObject], *, form: str) -> None:
    """Print objects: as documents of YAML, or as a List in JSON."""
    if form == "json":
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        print_json(listed)
        return
    print("---\n".join(map(to_yaml, objects)), end="")


def print_json(value: Any) -> None:
    """Print a value as JSON, for programs and for those who read along."""
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def redacted(obj: JsonObject) -> JsonObject:
    """Return an object without what is secret in it."""
    if (obj.get("apiVersion"), obj.get("kind")) != ("v1", "Secret"):
        return obj
    return obj | {field: dict.fromkeys(obj[field], REDACTED) for field in ("data", "stringData") if obj.get(field)}


def counted(number: int, noun: str) -> str:
    """Write `1 error`, `2 errors`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does, in less detail the longer it is: `119s`, `2m5s`, `3h20m`, `5d1h`, `40d`."""
    whole = max(0, int(seconds))
    for name, unit, least, part_name, part, parts_below in _UNITS:
        if whole >= least * unit:
            number, rest = divmod(whole, unit)
            shown = rest // part if number < parts_below else 0
            return f"{number}{name}" + (f"{shown}{part_name}" if shown else "")
    return f"{whole}s"


def listed(names: Iterable[str]) -> str:
    """Write names one after the other, each once."""
    return ", ".join(dict.fromkeys(names))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines of columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def invocation(
    verb: str, job: str, *options: str, namespace: str, default_namespace: str | None, kubeconfig: str | None
) -> str:
    """Return the command that does something with a job.

    `default_namespace` is the one that the command takes if none is named.
    """
    words = ["trainmaster", verb, job, *options]
    if namespace != (default_namespace or "default"):
        words += ["-n", namespace]
    if kubeconfig:
        words += ["--kubeconfig", kubeconfig]
    return shlex.join(words)
