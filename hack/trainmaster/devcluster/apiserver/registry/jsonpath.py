"""The JSONPath of printer columns: a small language to pick values out of an object.

Understood: fields (`.spec.x`, `.metadata.labels.a\\.b`, `['a.b']`), `[*]` and `.*`, indices and slices (`[0]`, `[-1]`,
`[-1:]`, `[0:2]`) and filters (`[?(@.type=="Ready")]`, with `==`, `!=`, `<`, `<=`, `>`, `>=`, or only a path, which must
exist). Not understood: `..`, unions, ranges of templates. What is missing in an object is no error: it yields nothing.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import orjson

from trainmaster.runtime.jsontree import JsonObject

Step: TypeAlias = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""
      \.?\[\s*\?\(\s*@(?P<filter_path>[^=!<>)]*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<operand>"[^"]*"|'[^']*'|[^)]*?))?\s*\)\s*\]
    | (?:\.?\[\s*\*\s*\]|\.\*)(?P<every>)
    | \.?\[\s*(?P<index>-?\d+)\s*\]
    | \.?\[\s*(?P<start>-?\d*)\s*:\s*(?P<stop>-?\d*)\s*\]
    | \.?\[\s*(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*\]
    | \.(?P<field>(?:[^.\[\]\\]|\\.)+)
    """,
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@functools.lru_cache(maxsize=1024)
def compile_path(text: str) -> Callable[[JsonObject], list[Any]]:
    """Compile a path into a function that gives all the values it leads to; raises `ValueError` for a bad path."""
    path = text.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    steps = _parse(path.removeprefix("$"), text)

    def find(obj: JsonObject) -> list[Any]:
        return _walk(obj, steps)

    return find


def _parse(path: str, text: str) -> list[Step]:
    if path and path[0] not in ".[":
        path = f".{path}"
    steps: list[Step] = []
    position = 0
    while position < len(path):
        token = _TOKEN.match(path, position)
        if token is None:
            if path == ".":
                break  # the object itself
            raise ValueError(f"cannot read the JSONPath {text!r} from {path[position:]!r} on: see the supported subset")
        steps.append(_step(token, text))
        position = token.end()
    return steps


def _step(token: re.Match[str], text: str) -> Step:
    if (field := token["field"]) is not None:
        return functools.partial(_field, re.sub(r"\\(.)", r"\1", field))
    if (quoted := token["quoted"]) is not None:
        return functools.partial(_field, re.sub(r"\\(.)", r"\1", quoted[1:-1]))
    if token["index"] is not None:
        index = int(token["index"])
        return functools.partial(_slice, slice(index, index + 1 or None))
    if token["start"] is not None:
        start, stop = (int(bound) if bound else None for bound in (token["start"], token["stop"]))
        return functools.partial(_slice, slice(start, stop))
    if token["every"] is not None:
        return _every
    condition = _parse(token["filter_path"], text)
    if token["operator"] is None:
        return functools.partial(_filter, lambda item: bool(_walk(item, condition)))
    compare = _COMPARISONS[token["operator"]]
    operand = _literal(token["operand"], text)
    return functools.partial(_filter, lambda item: any(_holds(compare, it, operand) for it in _walk(item, condition)))


def _walk(value: Any, steps: list[Step]) -> list[Any]:
    values = [value]
    for step in steps:
        values = [found for value in values for found in step(value)]
    return values


def _field(name: str, value: Any) -> Iterable[Any]:
    return (value[name],) if isinstance(value, dict) and name in value else ()


def _slice(bounds: slice, value: Any) -> Iterable[Any]:
    return value[bounds] if isinstance(value, list) else ()


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _filter(holds: Callable[[Any], bool], value: Any) -> Iterable[Any]:
    return [item for item in _every(value) if holds(item)]


def _holds(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return compare is operator.ne
    try:
        return compare(left, right)
    except TypeError:
        return False  # different types have no order


def _literal(text: str, path: str) -> Any:
    if text[:1] in {"'", '"'}:
        return text[1:-1]
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"cannot compare with {text!r} in the JSONPath {path!r}: quote texts") from error
