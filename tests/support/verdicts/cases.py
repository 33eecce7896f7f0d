"""The recorded cases in `tests/golden/api`, and the list of those that are known to differ."""

import functools
from dataclasses import dataclass
from typing import Any

from support.golden import GOLDEN, load_yaml

from trainmaster.runtime.jsontree import JsonObject


def case_names() -> list[str]:
    """The names of all cases, as `file/name`."""
    names: list[str] = load_yaml((GOLDEN / "api/index.yaml").read_text())["shared"]
    return names


@functools.cache
def _cases(file: str) -> dict[str, JsonObject]:
    return {case["name"]: case for case in load_yaml((GOLDEN / f"api/{file}.yaml").read_text())}


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
    return [Group(**entry) for entry in load_yaml((GOLDEN / "api-differences.yaml").read_text()) or []]
