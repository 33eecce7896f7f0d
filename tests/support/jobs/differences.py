"""Where Trainmaster deliberately differs from recorded cases: entries of a file, each with the id of its reason.

An entry applies to all cases and stages that its patterns match, and to every path in them: what is expected is
rewritten, and then compared exactly.

    by: V1-B22                      # the id of the reason
    definitions: ours               # only with these, `ours` or `original`; by default with both
    cases: ["*pytorch*"]            # patterns of names; by default all
    stages: ["*"]
    path: pods/*/spec/initContainers/*/image    # patterns, part by part; ~1 stands for a slash
    text: {alpine:3.10: alpine:3}   # one of: text, value, absent, last

In a list a part is a number, or the name and the value of a field of what is meant, as in `env/name=RANK/value`.

- `text` puts one text in the place of another; the keys are regular expressions of the whole text, groups may be used.
- `value` is what is there instead, or besides; its parent has to exist.
- `absent: true`: it is not there.
- `last` is the type of the condition that moves to the end.

Events have entries of their own: regular expressions of what is not told, or told besides.

    by: V1-B30
    cases: ["*-mpi*"]
    missing: "Normal ServiceAccount is exist: .*"   # or `extra`
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from support.golden import load_yaml
from support.jobs.recorded import Case, Stages

from trainmaster.runtime.jsontree import JsonObject, copy_tree

_CHANGES: Final = frozenset({"text", "value", "absent", "last"})


@dataclass(frozen=True)
class Difference:
    """One declared difference."""

    number: int
    """Where it stands in the file, from one."""

    by: str
    definitions: str | None
    cases: list[str]
    stages: list[str]
    path: list[str]
    kind: str
    change: Any

    def __str__(self) -> str:
        return f"entry {self.number} ({self.by}: {'/'.join(self.path)})"

    def applied(self, case: Case, stages: Stages) -> Stages:
        """Return what is expected with this difference; the same if it has no say."""
        if not _matches(case.name, self.cases):
            return stages
        changed: Stages = copy_tree(stages)
        for stage, sections in changed.items():
            if _matches(stage, self.stages):
                for parent, key in reversed(list(_places(sections, self.path))):
                    self._change(parent, key)
        return changed

    def _change(self, parent: Any, key: Any) -> None:
        present = key in parent if isinstance(parent, dict) else key < len(parent)
        match self.kind:
            case "value" if present or isinstance(parent, dict):
                parent[key] = copy_tree(self.change)
            case "value":
                parent.append(copy_tree(self.change))
            case "absent" if present:
                del parent[key]
            case "text" if present and isinstance(parent[key], str):
                for pattern, text in self.change.items():
                    if re.fullmatch(pattern, parent[key], re.DOTALL):
                        parent[key] = re.sub(pattern, text, parent[key], flags=re.DOTALL)
                        break
            case "last" if present:
                parent[key].sort(key=lambda condition: bool(condition["type"] == self.change))


@dataclass(frozen=True)
class EventDifference:
    """A declared difference of events."""

    by: str
    cases: list[str]
    missing: str | None
    extra: str | None

    def __str__(self) -> str:
        return f"{self.by} {self.missing or self.extra}"

    def explains(self, case: Case, event: str, *, missing: bool) -> bool:
        """Tell whether it says that an event is missing, or there besides."""
        pattern = self.missing if missing else self.extra
        return pattern is not None and _matches(case.name, self.cases) and bool(re.fullmatch(pattern, event))


def load_event_differences(path: Path) -> list[EventDifference]:
    """Return the differences of events of a file."""
    return [
        EventDifference(entry["by"], entry.get("cases", ["*"]), entry.get("missing"), entry.get("extra"))
        for entry in load_yaml(path.read_text())["events"]
    ]


def load_differences(path: Path) -> list[Difference]:
    """Return the differences of a file, in the order in which they apply."""
    return [_read(number, entry) for number, entry in enumerate(load_yaml(path.read_text())["differences"], 1)]


def _read(number: int, entry: JsonObject) -> Difference:
    (kind,) = entry.keys() & _CHANGES
    unknown = entry.keys() - {"by", "cases", "stages", "path", "definitions", kind}
    assert not unknown, f"entry {number} has what nobody reads: {', '.join(sorted(unknown))}"
    path = [part.replace("~1", "/") for part in entry["path"].split("/")]
    return Difference(
        number=number,
        by=entry["by"],
        definitions=entry.get("definitions"),
        cases=entry.get("cases", ["*"]),
        stages=entry.get("stages", ["*"]),
        path=path,
        kind=kind,
        change=entry[kind],
    )


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _places(node: Any, path: list[str]) -> Iterator[tuple[Any, Any]]:
    """Yield parents and keys that a path matches; a last part without patterns need not exist."""
    part, *rest = path
    if isinstance(node, list):
        field, _, value = part.partition("=")
        keys: list[Any] = [
            number
            for number, each in enumerate(node)
            if fnmatchcase(str(number), part) or (value and isinstance(each, dict) and each.get(field) == value)
        ]
        if not rest and part.isdigit() and int(part) == len(node):
            keys.append(len(node))
    elif isinstance(node, dict):
        keys = [key for key in node if fnmatchcase(key, part)]
        if not rest and not keys and not re.search(r"[*?\[]", part):
            keys.append(part)
    else:
        return
    for key in keys:
        if rest:
            yield from _places(node[key], rest)
        else:
            yield node, key
