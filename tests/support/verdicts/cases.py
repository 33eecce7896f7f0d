"""The recorded cases in `tests/golden/api`, and the list of those that are known to differ."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainmaster.runtime.jsontree import JsonObject

GOLDEN = Path(__file__).parent.parent.parent / "golden"
DIFFERENCES = GOLDEN / "api-differences.yaml"

OPEN = "Not judged yet."
"""The reason under which differences are listed that nobody has looked at."""


class _Loader(yaml.CSafeLoader):
    """YAML in which times, yes and no are text."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false|True|False)$"), list("tfTF"))


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(), _Loader)


def case_names() -> list[str]:
    """The names of all cases, as `file/name`."""
    names: list[str] = _load(GOLDEN / "api" / "index.yaml")["shared"]
    return names


@functools.cache
def _cases(file: str) -> dict[str, JsonObject]:
    return {case["name"]: case for case in _load(GOLDEN / "api" / f"{file}.yaml")}


def case(name: str) -> JsonObject:
    """The case of that name; not to be changed."""
    file, _, rest = name.partition("/")
    return _cases(file)[rest]


def in_namespace(node: Any, namespace: str) -> Any:
    """Copy a part of a case, with its placeholders replaced."""
    match node:
        case {"$repeat": text, "times": times}:
            return text * times
        case dict():
            return {key: in_namespace(value, namespace) for key, value in node.items()}
        case list():
            return [in_namespace(value, namespace) for value in node]
    return namespace if node == "NS" else node


@dataclass(frozen=True)
class Group:
    """Cases that differ for one reason, and how deep."""

    reason: str
    level: str
    cases: list[str]


def listed() -> list[Group]:
    """The cases that are known to differ."""
    return [Group(**entry) for entry in _load(DIFFERENCES) or []]


def relist(levels: Mapping[str, str]) -> None:
    """Rewrite the list by what was found: names of all cases that differ, with the level.

    A case stays in its group as long as it differs as deeply as before; what is new goes to groups of their own.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    left = dict(levels)
    for group in listed():
        groups[group.reason, group.level] = [name for name in group.cases if left.get(name) == group.level]
        for name in groups[group.reason, group.level]:
            del left[name]
    for name, level in left.items():
        groups.setdefault((f"{OPEN} ({name.partition('/')[0]})", level), []).append(name)
    comment = "".join(line for line in DIFFERENCES.read_text().splitlines(keepends=True) if line.startswith("#"))
    entries = [
        {"reason": reason, "level": level, "cases": sorted(names)} for (reason, level), names in groups.items() if names
    ]
    DIFFERENCES.write_text(comment + yaml.safe_dump(entries, sort_keys=False, width=120))
