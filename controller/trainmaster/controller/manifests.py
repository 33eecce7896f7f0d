"""Manifests: the Kubernetes objects in YAML and JSON files, each with the line on which it starts.

Guarantees:
- Scalars are read as Kubernetes reads them: no timestamps, no base-60 numbers; what JSON cannot express is refused.
- A repeated key is an error. Empty documents are skipped, `kind: List` is taken apart.
- Every complaint is a `ManifestError` that begins with `file:line:`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson
import yaml

from trainmaster.runtime.jsontree import JsonObject

STDIN: Final = "-"


class ManifestError(Exception):
    """A file cannot be read, or does not hold Kubernetes objects; the message begins with the place."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, and where it came from."""

    place: str
    """`file:line`."""

    object: JsonObject

    @property
    def api_version(self) -> str:
        """The object's `apiVersion`."""
        return str(self.object["apiVersion"])

    @property
    def kind(self) -> str:
        """The object's `kind`."""
        return str(self.object["kind"])

    @property
    def title(self) -> str:
        """What to call the object when talking to its author."""
        metadata = self.object["metadata"]
        return f"{self.kind} {metadata.get('name') or metadata['generateName'] + '*'}"


def load_manifests(files: Iterable[str]) -> list[Manifest]:
    """Read all objects of some files, in order; `-` is standard input."""
    return [manifest for file in files for manifest in parse_manifests(_read(file), file=_title(file))]


def parse_manifests(text: str, *, file: str) -> Iterator[Manifest]:
    """Read all objects of one text."""
    for line, document in _documents(text, file):
        if document is None:
            continue
        place = f"{file}:{line}"
        if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
            for item in document["items"]:
                yield _checked(item, place)
        else:
            yield _checked(document, place)


def _title(file: str) -> str:
    return "<stdin>" if file == STDIN else file


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{_title(file)}:1: the file is not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise ManifestError(f"{_title(file)}: cannot be read: {error.strerror or error}") from error


def _documents(text: str, file: str) -> Iterator[tuple[int, Any]]:
    if text.lstrip().startswith("{"):
        # YAML is nearly a superset of JSON, but for tabs. What is no JSON may still be YAML in flow style.
        try:
            document = json.loads(text, object_pairs_hook=_unrepeated)
        except ValueError:
            pass
        else:
            yield text[: text.index("{")].count("\n") + 1, document
            return
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            yield node.start_mark.line + 1, loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(f"{file}:{mark.line + 1 if mark else 1}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ManifestError(f"{file}:1: {' '.join(str(error).split())}") from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")  # the YAML reader, which comes next, says which and where
    return found


def _checked(document: Any, place: str) -> Manifest:
    if not isinstance(document, dict):
        raise ManifestError(f"{place}: expected a Kubernetes object, got {type(document).__name__}")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise ManifestError(f"{place}: {field} is missing or no text; every object needs one")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise ManifestError(f"{place}: metadata is missing or no mapping; every object needs a name in it")
    names = [metadata.get("name"), metadata.get("generateName")]
    if not any(isinstance(name, str) and name for name in names):
        raise ManifestError(f"{place}: metadata.name is missing; give the {document['kind']} a name")
    if not isinstance(metadata.get("namespace", ""), str):
        raise ManifestError(f"{place}: metadata.namespace is no text; quote it")
    try:
        orjson.dumps(document)
    except (TypeError, ValueError) as error:  # an alias inside of itself, an integer beyond 64 bits
        raise ManifestError(f"{place}: the object cannot be expressed as JSON: {error}") from error
    return Manifest(place, document)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader with the scalars of Kubernetes and strict mappings."""

    # A copy: the resolvers of the parent class are shared by every user of PyYAML in the process.
    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int", ":float"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> JsonObject:
        """Build a mapping, refusing what JSON objects cannot have as keys, and repeated keys."""
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key.start_mark)
            if key.value in keys and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is repeated", key.start_mark)
            keys.add(key.value)
        self.flatten_mapping(node)
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Build an integer from its decimal, hexadecimal, octal or binary notation."""
        digits = node.value.replace("_", "")
        octal = re.fullmatch(r"([-+]?)0([0-7]+)", digits)
        return int(f"{octal[1]}{octal[2]}", 8) if octal else int(digits, 0)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Build a number with a fraction or an exponent."""
        text = node.value.replace("_", "").lower()
        value = math.nan if text.endswith(("inf", "nan")) else float(text)
        if not math.isfinite(value):
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} has no JSON form", node.start_mark)
        return value

    def refuse(self, node: yaml.Node) -> Any:
        """Refuse a tag that has no counterpart in JSON."""
        raise yaml.constructor.ConstructorError(None, None, f"{node.tag} has no JSON form", node.start_mark)


_INTEGER = re.compile(r"^[-+]?(?:0b[01_]+|0o[0-7]+|0x[0-9a-fA-F_]+|0[0-7]*|[1-9][0-9_]*)$")
_NUMBER = re.compile(
    r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789."))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
for _tag in ("binary", "timestamp", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.refuse)
