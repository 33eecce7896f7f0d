"""The object that is converted, taken apart: what nobody took is what would be dropped silently.

Types are strict, as those of the API server: `"2"` and `true` are no integers. `null` is the same as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.jsontree import JsonObject, copy_tree

T = TypeVar("T")

_NOUNS = {dict: "an object", list: "a list", str: "a text", int: "an integer", bool: "true or false"}

_SERVER_FIELDS: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Source:
    """One JSON object of the input.

    Args:
        tree: The object; it is not changed.
        path: Where it is, for instance `spec.runPolicy`; nothing for the whole.
    """

    def __init__(self, tree: JsonObject, path: str = "") -> None:
        self._fields = {name: copy_tree(value) for name, value in tree.items() if value is not None}
        self._parts: dict[str, Source] = {}
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    @property
    def names(self) -> list[str]:
        """The fields that nobody took."""
        return list(self._fields)

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, type_: type[T]) -> T | None:
        """Take a field with all that is in it.

        Raises:
            ConversionError: It has another type.
        """
        value = self._fields.pop(name, None)
        if value is None:
            return None
        return checked(value, type_, self.at(name))

    def take_all(self) -> JsonObject:
        """Take what nobody took yet."""
        fields, self._fields = self._fields, {}
        return fields

    def part(self, name: str) -> Source:
        """Return a field that is taken apart itself; an absent one is empty.

        Raises:
            ConversionError: It is no object.
        """
        if name not in self._parts:
            self._parts[name] = Source(self.take(name, dict) or {}, self.at(name))
        return self._parts[name]

    def left(self) -> Iterator[str]:
        """Yield the paths of what nobody took, leaf by leaf."""
        for name, value in self._fields.items():
            yield from leaves(value, self.at(name))
        for part in self._parts.values():
            yield from part.left()


def checked(value: Any, type_: type[T], path: str) -> T:
    """Return a value that must have a type.

    Raises:
        ConversionError: It has another one.
    """
    if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
        raise ConversionError(path, f"must be {_NOUNS[type_]}, not {value!r:.80}")
    return value


def objects(values: list[Any], path: str) -> list[JsonObject]:
    """Return the members of a list that must be objects.

    Raises:
        ConversionError: One of them is none.
    """
    return [checked(value, dict, f"{path}[{place}]") for place, value in enumerate(values)]


def leaves(value: Any, path: str) -> Iterator[str]:
    """Yield the path of each value in a tree that is neither a map nor a list, and of empty ones."""
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for place, member in enumerate(value):
            yield from leaves(member, f"{path}[{place}]")
    else:
        yield path


def convert_metadata(source: Source, notes: Notes) -> JsonObject:
    """Return the metadata of the new object.

    Raises:
        ConversionError: It has no name.
    """
    metadata: JsonObject = {}
    for name in ("name", "generateName", "namespace"):
        if value := source.take(name, str):
            metadata[name] = value
    if not metadata.get("name") and not metadata.get("generateName"):
        raise ConversionError("metadata.name", "is missing")
    for name in ("labels", "annotations"):
        if pairs := source.take(name, dict):
            metadata[name] = pairs
    if metadata.get("annotations", {}).pop(_LAST_APPLIED, None) is not None:
        notes.tell(source.at(f"annotations.{_LAST_APPLIED}"), "left out: it holds the old object as text")
        if not metadata["annotations"]:
            del metadata["annotations"]
    if owners := source.take("ownerReferences", list):
        metadata["ownerReferences"] = owners
    if source.take("finalizers", list):
        notes.lose(
            source.at("finalizers"),
            "left out: who set them looks for the old object; let it set them on the new one where it should wait",
        )
    for name in _SERVER_FIELDS:
        if source.take(name, object) is not None:
            notes.tell(source.at(name), "left out: the API server sets it")
    return metadata


def drop_status(source: Source, notes: Notes) -> None:
    """Leave out a status, which is that of the old object."""
    if source.take("status", object) is not None:
        notes.tell("status", "left out: the new object gets a status of its own")
