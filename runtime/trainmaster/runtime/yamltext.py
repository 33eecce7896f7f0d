"""YAML as Kubernetes reads it: a notation for JSON, not the whole of YAML.

Guarantees:
- scalars become what the Kubernetes YAML reader makes of them: no timestamps, no base-60 numbers, YAML 1.1 booleans;
- the result is a JSON tree: keys are strings, numbers are finite and fit into 64 bits;
- a repeated key is an error, not a silent choice between two values;
- how much a document holds and how deep it is nested, with its aliases and merge keys expanded, is known before
  anything is built of it; what is too much is refused. That bounds the time that reading takes as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, cast

import orjson
import yaml

from trainmaster.runtime.jsontext import MAX_DEPTH, too_deep
from trainmaster.runtime.jsontree import JsonObject

_MAX_VALUES: Final = 200_000
"""What the largest body of a request may hold; about a second's work."""

_MAX_PLAIN_VALUES: Final = 50_000
"""More than fit into an object, at the length that lines of runtimes have; about a fifth of a second's work."""


class YamlError(ValueError):
    """The text is not YAML that stands for a JSON tree."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        self.line = line
        """Where it was noticed, counted from 1; None if that is unknown."""
        self.column = column
        super().__init__(message)


def load_yaml(text: str | bytes, *, repeated: list[str] | None = None) -> Any:
    """Read one YAML document, which an author wrote, as a JSON tree.

    With `repeated` a key may be repeated: the last one counts, and a sentence about each of the others is added there.

    Raises:
        YamlError: It is none, it is too large, or there are several documents.
    """
    with _yaml_errors():
        _check_events(text, limit=_MAX_VALUES, plain=False)
        loader = _Loader(text)
        loader.repeated = repeated
        return loader.get_single_data()


def load_plain_yaml(text: str | bytes) -> Any:
    """Read one YAML document, which a program wrote, as a JSON tree: without anchors, aliases and merge keys.

    Raises:
        YamlError: It is none, it is too large, or there are several documents.
    """
    with _yaml_errors():
        _check_events(text, limit=_MAX_PLAIN_VALUES, plain=True)
        return _Loader(text).get_single_data()


def load_yaml_documents(text: str | bytes) -> Iterator[tuple[int, Any]]:
    """Read a stream of YAML documents: for each the line in which it starts, and its JSON tree.

    Raises:
        YamlError: One of them is none; those before it have been returned by then.
    """
    with _yaml_errors():
        _check_events(text, limit=_MAX_VALUES, plain=False)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            yield node.start_mark.line + 1, loader.construct_document(node)


@contextmanager
def _yaml_errors() -> Iterator[None]:
    try:
        yield
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise YamlError(_one_line(error), line=where[0], column=where[1]) from error
    except YamlError:
        raise
    except ValueError as error:  # a value that does not fit its explicit tag, a number of thousands of digits
        raise YamlError(str(error)) from error


def _check_events(text: str | bytes, *, limit: int, plain: bool) -> None:
    """Refuse what is too deep or too large, expanded, before anything recurses or is built.

    The composer in C recurses without a limit and kills the process; a merge key copies what it merges.
    """
    extent = _Extent()
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.NodeEvent):
            if plain and event.anchor is not None:
                raise _refused(event, "anchors and aliases have no place in what a program writes")
            if plain and isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                raise _refused(event, "merge keys (<<) have no place in what a program writes")
            height = extent.add(event)
            if extent.depth + height > MAX_DEPTH:
                raise _refused(event, too_deep())
            if extent.values > limit:
                raise _refused(event, f"the document holds more than {limit} values, with its aliases expanded")
        elif isinstance(event, yaml.CollectionEndEvent):
            extent.end()
        elif isinstance(event, yaml.DocumentStartEvent):
            extent = _Extent()


class _Extent:
    """How much of a document there is so far.

    Whatever an anchor marks is counted again for each of its aliases. That bounds merge keys as well: they merge only
    what is written there, or marked.

    Attributes:
        values: Scalars, lists and mappings.
    """

    def __init__(self) -> None:
        self.values = 0
        self._open: list[tuple[str | None, int]] = []
        # Of each open collection the anchor and the values before it; in the same order, the levels below it so far.
        self._heights: list[int] = []
        self._anchored: dict[str, tuple[int, int]] = {}

    @property
    def depth(self) -> int:
        """The number of collections that are open."""
        return len(self._open)

    def add(self, event: yaml.NodeEvent) -> int:
        """Take a scalar, an alias or the beginning of a collection; returns how many levels come with an alias."""
        size, height = 1, 0
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchored:
                raise _refused(event, f"the alias *{event.anchor} refers to nothing before it, or to what it is in")
            size, height = self._anchored[event.anchor]
            self._reach(height)
        elif isinstance(event, yaml.CollectionStartEvent):
            if event.anchor is not None:
                self._anchored.pop(event.anchor, None)
            self._open.append((event.anchor, self.values))
            self._heights.append(1)
        elif event.anchor is not None:
            self._anchored[event.anchor] = (1, 0)
        self.values += size
        return height

    def end(self) -> None:
        """Take the end of a collection."""
        (anchor, before), height = self._open.pop(), self._heights.pop()
        if anchor is not None:
            self._anchored[anchor] = (self.values - before, height)
        self._reach(height)

    def _reach(self, height: int) -> None:
        if self._heights:
            self._heights[-1] = max(self._heights[-1], height + 1)


def _refused(event: yaml.Event, reason: str) -> YamlError:
    mark = cast("yaml.Mark", event.start_mark)  # events of a parser have one
    line, column = mark.line + 1, mark.column + 1
    return YamlError(f"{reason} at line {line} column {column}", line=line, column=column)


_TRUE = frozenset({"y", "yes", "true", "on"})
_FALSE = frozenset({"n", "no", "false", "off"})


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader (in C where PyYAML has it) with the scalars of Kubernetes and strict mappings."""

    # Filled below; a copy, because the resolvers of the parent class are shared by every user of PyYAML in the process.
    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    repeated: list[str] | None = None
    """Where sentences about repeated keys go, in the words of Go; None refuses them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> JsonObject:
        """Build a mapping with string keys, refusing repeated ones; a key may still override what `<<` merges in."""
        keys: set[str] = set()
        for key_node, _ in node.value:
            key = self._key(key_node)
            if key_node.tag != "tag:yaml.org,2002:merge" and key in keys:
                if self.repeated is not None:
                    self.repeated.append(f'line {key_node.start_mark.line + 1}: key "{key}" already set in map')
                    continue
                raise yaml.constructor.ConstructorError(None, None, f'key "{key}" is already set', key_node.start_mark)
            keys.add(key)
        self.flatten_mapping(node)
        return {self._key(key_node): self.construct_object(value, deep=deep) for key_node, value in node.value}

    def construct_json_bool(self, node: yaml.ScalarNode) -> bool:
        """Build a boolean; a text with an explicit tag has to be one as well."""
        text = node.value.lower()
        if text not in _TRUE | _FALSE:
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} is not a boolean", node.start_mark)
        return text in _TRUE

    def construct_json_float(self, node: yaml.ScalarNode) -> float:
        """Build a float; infinities and NaN have no JSON notation."""
        text = node.value.lower()
        value = math.inf if text.endswith(("inf", "nan")) else float(text)
        if not math.isfinite(value):
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} is not a JSON number", node.start_mark)
        return value

    def construct_json_int(self, node: yaml.ScalarNode) -> int | float:
        """Build an integer from decimal, hexadecimal, octal or binary notation; from one of many digits a float."""
        digits = node.value.replace("_", "")
        sign = -1 if digits.startswith("-") else 1
        digits = digits.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        value = sign * (int(digits, 8) if octal else int(digits, 0))
        if -(2**63) <= value < 2**64:
            return value
        # Above about 10**308 there is no float either.
        if octal or len(digits) > 300 or not digits.isdigit():
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} is too large", node.start_mark)
        return float(value)

    def refuse(self, node: yaml.Node) -> Any:
        """Refuse a tag that has no counterpart in JSON."""
        raise yaml.constructor.ConstructorError(None, None, f"{node.tag} has no JSON form", node.start_mark)

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", node.start_mark)
        if node.tag == "tag:yaml.org,2002:merge":
            return str(node.value)
        key = self.construct_object(node)
        return key if isinstance(key, str) else orjson.dumps(key).decode()


_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool",
    re.compile(r"^(?:y|Y|n|N|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$"),
    list("yYnNtTfFoO"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_Loader.add_constructor("tag:yaml.org,2002:bool", _Loader.construct_json_bool)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_json_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_json_float)
for _tag in ("binary", "timestamp", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.refuse)


def _one_line(error: yaml.YAMLError) -> str:
    """The reason and the position, without the excerpt of the document that PyYAML adds over several lines."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = f"{error.context} {error.problem}" if str(error.problem).startswith("but ") else error.problem
        return f"{problem} at line {mark.line + 1} column {mark.column + 1}"
    return " ".join(str(error).split())
