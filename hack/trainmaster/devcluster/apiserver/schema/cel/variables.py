"""Variables: which ones an expression gets, and their values for an object.

Each scalar field that a rule selects (`self.a.b`) becomes a variable of its own (`self_a_b`), with its type: so the
compiler finds comparisons that make no sense, and the library is given no more of an object than it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainmaster.devcluster.apiserver.schema.cel import decltype
from trainmaster.devcluster.apiserver.schema.cel.conversion import Convert, converter, selector
from trainmaster.devcluster.apiserver.schema.cel.parser import Selection, is_shadowed, tokens
from trainmaster.devcluster.apiserver.schema.cel.program import EvaluationFailed, marked
from trainmaster.runtime.jsontree import JsonObject


class Variable:
    """What an expression needs of `self` or `oldSelf`."""

    def __init__(
        self,
        name: str,
        text: str,
        selections: Sequence[Selection],
        schema: JsonObject,
        *,
        is_resource: bool,
    ) -> None:
        self.types: dict[str, str] = {}
        """The fields that are variables of their own."""
        self._name = name
        self._fields: dict[str, tuple[tuple[str, ...], Convert]] = {}
        self._replaced: list[Selection] = []
        taken = {token.text for token in tokens(text)}
        chosen: list[list[tuple[str, str]]] = []
        if is_shadowed(text, name):
            # Which selections are from the macro's variable cannot be told.
            selections = ()
            chosen.append([])
        for selection in selections:
            try:
                path = decltype.follow(schema, selection.names, is_resource=is_resource)
            except decltype.Undefined as error:
                raise marked(text, selection.positions[error.index], str(error)) from error
            own_name = "_".join((name, *selection.names))
            fields = tuple(field for field, _ in path)
            declared = decltype.cel_type(path[-1][1]) if path else ""
            # self.a_b and self.a.b would be one name.
            is_free = own_name not in taken and self._fields.get(own_name, (fields,))[0] == fields
            if declared in decltype.SCALAR_TYPES and selection.is_plain and is_free:
                self.types[own_name] = declared
                self._fields[own_name] = fields, converter(path[-1][1])
                self._replaced.append(selection)
            else:
                chosen.append([(spelled, field) for spelled, (field, _) in zip(selection.names, path, strict=False)])
        self._convert = converter(schema, is_resource=is_resource)
        if is_resource:
            schema = {**schema, "properties": dict(decltype.fields(schema, is_resource=True) or {})}
        self._is_used = bool(chosen)
        self._select = selector(schema, chosen, whole=self._convert)

    def rewrite(self, text: str) -> str:
        """Return the expression with the names of the variables in place of selections; it keeps its length."""
        for selection in self._replaced:
            name = text[selection.start : selection.end].replace(".", "_")
            text = text[: selection.start] + name + text[selection.end :]
        return text

    def values(self, value: Any) -> dict[str, Any]:
        """Return the variables for a value; raises EvaluationFailed if that is not what its schema says."""
        try:
            given = {self._name: self._select(value)} if self._is_used else {}
            for name, (path, convert) in self._fields.items():
                found = value
                for field in path:
                    found = found.get(field) if isinstance(found, dict) else None
                if found is not None:
                    given[name] = convert(found)
        except (AttributeError, TypeError, ValueError) as error:
            # Ratcheting lets such values pass that were there before.
            raise EvaluationFailed(f"invalid data: {error}") from error
        return given

    def optional(self, value: Any) -> dict[str, Any]:
        """Return a map that holds the whole value, if there is one, under `value`."""
        if value is None:
            return {}
        try:
            return {"value": self._convert(value)}
        except (AttributeError, TypeError, ValueError) as error:
            raise EvaluationFailed(f"invalid data: {error}") from error

    def missing(self, name: str, value: Any) -> str:
        """Return the field for want of which a variable has no value."""
        for field in self._fields[name][0] if name in self._fields else ():
            value = value.get(field) if isinstance(value, dict) else None
            if value is None:
                return field
        return name
