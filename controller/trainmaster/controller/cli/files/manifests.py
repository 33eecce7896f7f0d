"""Manifests: the Kubernetes objects in YAML and JSON files, each with the place in which it starts.

Guarantees:
- YAML means what it means to Kubernetes (see `trainmaster.runtime.yamltext`); a repeated key is an error in JSON, too.
- Empty documents are skipped, `kind: List` is taken apart. Of a directory all files are read whose names end in .yaml,
  .yml or .json, in alphabetical order.
- Every error is a `ManifestError` that begins with `file:line:`.
- A `Source` locates single fields. Only diagnostics need that, so the text is parsed again when there is one. Where a
  field is missing, its position is that of the nearest field around it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.crds import shipped
from trainmaster.runtime.api.constants import CLUSTER_TRAINING_RUNTIME_KIND, GROUP, TRAINING_RUNTIME_KIND, TRAINJOB_KIND
from trainmaster.runtime.jobs.constants import installed_kinds
from trainmaster.runtime.jsontext import is_too_deep, too_deep
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamlmarks import FieldMark, find_field
from trainmaster.runtime.yamltext import YamlError, load_yaml_documents

STDIN: Final = "-"
CRD_KIND: Final = "CustomResourceDefinition"
_ENDINGS: Final = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an object comes from."""

    file: str
    line: int
    """In which its document starts; 0 if this command made it."""

    text: str
    document: int
    """Which of the documents in the text it is, from 0."""

    within: str = ""
    """Its path in the document, if it is a part of it: `items[2]`."""

    def find(self, path: str) -> FieldMark | None:
        """Return where in the text a field like `spec.trainer.env[0].name` is."""
        return find_field(self.text, f"{self.within}.{path}".strip("."), document=self.document)

    def locate(self, path: str) -> tuple[int, int | None]:
        """Return line and column of a field, from 1."""
        found = self.find(path)
        return (self.line, None) if found is None else (found.line, found.column)


class ManifestError(Exception):
    """A file cannot be read, or does not hold Kubernetes objects; the message begins with the place."""

    def __init__(self, problem: str, *, file: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(f"{file}: {problem}" if line is None else f"{file}:{line}: {problem}")
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, and where it came from."""

    source: Source
    object: JsonObject

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.source.file}:{self.source.line}" if self.source.line else self.source.file

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


def is_trainjob(manifest: Manifest) -> bool:
    """Whether it is a TrainJob."""
    return manifest.kind == TRAINJOB_KIND and manifest.api_version.partition("/")[0] == GROUP


def is_job(manifest: Manifest) -> bool:
    """Whether it is a job of `kubeflow.org/v1`, or, by its kind, of one that others offer."""
    return manifest.kind.lower() in installed_kinds()


def apply_order(manifest: Manifest) -> int:
    """Return how early an object is to be written: what others depend on first."""
    if is_trainjob(manifest) or is_job(manifest):
        return 4
    if manifest.kind in {TRAINING_RUNTIME_KIND, CLUSTER_TRAINING_RUNTIME_KIND}:
        return 2
    return {"Namespace": 0, CRD_KIND: 1}.get(manifest.kind, 3)


def load_manifests(files: Iterable[str]) -> list[Manifest]:
    """Read all objects of some files and directories, in order; `-` is standard input.

    Raises:
        ManifestError: One of them cannot be read.
    """
    manifests = []
    for found in scan_manifests(files):
        if isinstance(found, ManifestError):
            raise found
        manifests.append(found)
    return manifests


def scan_manifests(files: Iterable[str]) -> Iterator[Manifest | ManifestError]:
    """Read all objects of some files and directories, and yield an error for everything that cannot be read."""
    for file in files:
        try:
            members = _members(file)
        except ManifestError as error:
            yield error
            continue
        for member in members:
            try:
                text = _read(member)
            except ManifestError as error:
                yield error
            else:
                yield from scan_text(text, _title(member))


def scan_text(text: str, file: str) -> Iterator[Manifest | ManifestError]:
    """Read all objects of a text; `file` is where it comes from."""
    try:
        documents = list(_documents(text, file))
    except ManifestError as error:
        yield from scan_text(_before(error, text), file)
        yield error
        return
    for number, (line, document) in enumerate(documents):
        if document is None:
            continue
        source = Source(file, line, text, number)
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
        if not isinstance(items, list):
            yield _checked(document, source)
            continue
        for position, item in enumerate(items):
            yield _checked(item, Source(file, line, text, number, f"items[{position}]"))


def _before(error: ManifestError, text: str) -> str:
    """Return the documents before the one in which an error is."""
    lines = text.splitlines(keepends=True)[: (error.line or 1) - 1]
    while lines and not lines[-1].startswith("---"):
        lines.pop()
    return "".join(lines[:-1])


def _members(file: str) -> list[str]:
    directory = Path(file)
    if file == STDIN or not directory.is_dir():
        return [file]
    members = sorted(str(path) for path in directory.iterdir() if path.suffix in _ENDINGS and path.is_file())
    if not members:
        raise ManifestError(f"the directory holds no file that ends in {', '.join(_ENDINGS)}", file=file)
    return members


def _title(file: str) -> str:
    return "<stdin>" if file == STDIN else file


def _read(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(f"the file is not UTF-8 text ({error.reason})", file=_title(file), line=1) from error
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror or error}", file=_title(file)) from error


def _documents(text: str, file: str) -> Iterator[tuple[int, Any]]:
    if text.lstrip().startswith("{"):
        # YAML is nearly a superset of JSON, but for tabs. What is no JSON may still be YAML in flow style.
        try:
            document = json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            pass  # the YAML reader says what is wrong and where
        else:
            if is_too_deep(document):
                raise ManifestError(too_deep(), file=file, line=1)
            yield text[: text.index("{")].count("\n") + 1, document
            return
    try:
        yield from load_yaml_documents(text)
    except YamlError as error:
        raise ManifestError(str(error), file=file, line=error.line or 1, column=error.column) from error


def _unrepeated(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _checked(document: Any, source: Source) -> Manifest | ManifestError:
    """Return the object, or why it is none."""
    problem = "expected a Kubernetes object, got " + type(document).__name__
    if isinstance(document, dict):
        problem = _problem(document)
    return ManifestError(problem, file=source.file, line=source.line) if problem else Manifest(source, document)


def _problem(document: JsonObject) -> str:
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            return f"{field} is missing or no text; every object needs one"
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "metadata is missing or no mapping; every object needs a name in it"
    names = [metadata.get("name"), metadata.get("generateName")]
    if names[0] is not None and not isinstance(names[0], str):
        return "metadata.name is no text; quote it"
    if not any(isinstance(name, str) and name for name in names):
        return f"metadata.name is missing; give the {document['kind']} a name"
    if not isinstance(metadata.get("namespace", ""), str):
        return "metadata.namespace is no text; quote it"
    return ""


def built_in_names() -> list[str]:
    """Return their names."""
    return sorted(path.stem for path in built_in_directory().glob("*.yaml"))


def built_in_file(name: str) -> Path | None:
    """Return the file of one of them, if there is such a one."""
    return built_in_directory() / f"{name}.yaml" if name in built_in_names() else None


def built_in_directory() -> Path:
    """Return where they are."""
    return shipped("runtimes")
