"""The selection predicate: which objects of a kind a list, a watch or a deletion of many is about."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.devcluster.apiserver.selectors import FieldSelector, LabelSelector
from trainmaster.runtime.jsontree import JsonObject


class SelectionPredicate:
    """A compiled pair of selectors."""

    def __init__(self, kind: Kind, labels: LabelSelector | None = None, fields: FieldSelector | None = None) -> None:
        self._labels = labels
        self._fields: list[tuple[Callable[[JsonObject], str], bool, str]] = []
        for path, operator, value in fields.requirements if fields is not None else ():
            getter = _METADATA.get(path) or kind.field_labels.get(path)
            if getter is None:
                raise errors.bad_request(_unsupported(kind, path))
            self._fields.append((getter, operator != "!=", value))
        self.everything = labels is None and not self._fields
        """Whether there is nothing to check."""

    def matches(self, obj: JsonObject) -> bool:
        """Return whether an object, in the form of the kind, is selected."""
        if self._labels is not None and not self._labels.matches(obj["metadata"].get("labels") or {}):
            return False
        return all((getter(obj) == value) == wanted for getter, wanted, value in self._fields)


def _unsupported(kind: Kind, path: str) -> str:
    if kind.custom or kind.field_labels:
        return f"field label not supported: {path}"
    return f'{errors.quote(path)} is not a known field selector: only "metadata.name", "metadata.namespace"'


_METADATA: dict[str, Callable[[JsonObject], str]] = {
    "metadata.name": lambda obj: str(obj["metadata"].get("name", "")),
    "metadata.namespace": lambda obj: str(obj["metadata"].get("namespace", "")),
}
