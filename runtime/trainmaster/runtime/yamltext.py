"""YAML as Kubernetes reads it: a notation for JSON, not the whole of YAML.

Guarantees:
- scalars become what the Kubernetes YAML reader makes of them: no timestamps, no base-60 numbers, YAML 1.1 booleans;
- the result is a JSON tree: keys are strings, numbers are finite;
- a repeated key is an error, not a silent choice between two values;
- a document that grows when its aliases are expanded is refused before anything copies or prints it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import orjson
import yaml

from trainmaster.runtime.jsontree import JsonObject

# The largest body holds about this many values without aliases; only aliases can multiply them further.
_MAX_NODES = 500_000
# The schemas of large custom resources come to about 40 levels; the constructor recurses three frames for each.
_MAX_DEPTH = 150


class YamlError(ValueError):
    """The text is not YAML that stands for a JSON tree."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        self.line = line
        """Where it was noticed, counted from 1; None if that is unknown."""
        self.column = column
        super().__init__(message)


def load_yaml(text: str | bytes, *, repeated: list[str] | None = None) -> Any:
    """Read one YAML document as a JSON tree.

    With `repeated` a key may be repeated: the last one counts, and a sentence about each of the others is added there.

    Raises:
        YamlError: It is none, or there are several documents.
    """
    with _yaml_errors():
        _refuse_depth(text)
        loader = _Loader(text)
        loader.repeated = repeated
        tree = loader.get_single_data()
    _refuse_expansion(tree)
    return tree


def load_yaml_documents(text: str | bytes) -> Iterator[tuple[int, Any]]:
    """Read a stream of YAML documents: for each the line in which it starts, and its JSON tree.

    Raises:
        YamlError: One of them is none; those before it have been returned by then.
    """
    with _yaml_errors():
        _refuse_depth(text)
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            tree = loader.construct_document(node)
            _refuse_expansion(tree)
            yield node.start_mark.line + 1, tree


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


def _refuse_depth(text: str | bytes) -> None:
    """Refuse deep nesting before anything recurses: the composer in C does so without a limit and kills the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise YamlError(f"the document is nested more than {_MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


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

    def construct_json_int(self, node: yaml.ScalarNode) -> int:
        """Build an integer from decimal, hexadecimal, octal or binary notation."""
        digits = node.value.replace("_", "")
        sign = -1 if digits.startswith("-") else 1
        digits = digits.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        return sign * (int(digits, 8) if octal else int(digits, 0))

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


def _refuse_expansion(tree: Any) -> None:
    seen = 0
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        seen += 1
        if seen > _MAX_NODES:
            raise YamlError(f"the document holds more than {_MAX_NODES} values once its aliases are expanded")
        if isinstance(node, dict):
            open_nodes.extend(node.values())
        elif isinstance(node, list):
            open_nodes.extend(node)


def _one_line(error: yaml.YAMLError) -> str:
    """The reason and the position, without the excerpt of the document that PyYAML adds over several lines."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} at line {mark.line + 1} column {mark.column + 1}"
    return " ".join(str(error).split())
