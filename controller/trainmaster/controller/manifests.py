"""Manifests: the Kubernetes objects in YAML and JSON files, each with the line on which it starts.

Guarantees:
- YAML means what it means to Kubernetes (see `trainmaster.runtime.yamltext`); a repeated key is an error in JSON, too.
- Empty documents are skipped, `kind: List` is taken apart.
- Every complaint is a `ManifestError` that begins with `file:line:`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml_documents

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
            document = json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            pass  # the YAML reader says what is wrong and where
        else:
            yield text[: text.index("{")].count("\n") + 1, document
            return
    try:
        yield from load_yaml_documents(text)
    except YamlError as error:
        raise ManifestError(f"{file}:{error.line or 1}: {error}") from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


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
