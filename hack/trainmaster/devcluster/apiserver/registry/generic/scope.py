"""The scope of one write: what its steps have in common, and those that a creation and a change share.

The object that goes in is the private copy of one request; the old one is shared and is not changed. Admission is the
only place that waits.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.apply import update
from trainmaster.devcluster.apiserver.errors import FieldError, StatusError, immutable
from trainmaster.devcluster.apiserver.registry.generic.admission_request import (
    Admission,
    AdmissionRequest,
    write_request,
)
from trainmaster.devcluster.apiserver.registry.generic.decoder import check_types, decode, prune
from trainmaster.devcluster.apiserver.registry.options import WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import JsonObject, copy_tree

Operation: TypeAlias = Literal["CREATE", "UPDATE"]

AdmissionHook: TypeAlias = Callable[[Operation, JsonObject, JsonObject | None], JsonObject | Awaitable[JsonObject]]
"""Defaults and validates in place of a webhook: gets the operation, the new and the old object, returns the new one.

It may change the new object, never the old one, and refuses by raising a StatusError.
"""

_SHAPELESS = frozenset({"NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"})
_RULES_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)

_UNTYPED = Schema.compile({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


@dataclass(frozen=True, slots=True)
class RequestScope:
    """What the steps of one write have in common."""

    kind: Kind
    options: WriteOptions
    now: datetime
    hooks: Sequence[AdmissionHook]
    admission: Admission | None = None

    @property
    def schema(self) -> Schema:
        """The schema by which fields are owned."""
        return self.kind.schema or _UNTYPED

    async def mutate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> JsonObject:
        """Have webhooks change an object."""
        admission, kind = self.admission, self.kind
        operation: Operation = "CREATE" if old is None else "UPDATE"
        if admission is None or not admission.handles(kind, operation, subresource):
            return obj
        request, seen = self._admission_request(obj, old, subresource)
        if subresource == "scale" and kind.scale is not None:
            return kind.scale.scaled(obj, await admission.mutate(request, seen, reshape=copy_tree))
        namespace = obj["metadata"].get("namespace")

        def reshape(changed: JsonObject) -> JsonObject:
            try:
                shaped = decode(kind, changed, namespace=namespace, options=WriteOptions(field_validation="Ignore"))
            except StatusError as error:  # the fault is not the client's
                raise errors.internal(error.message) from error
            if old is not None and (changed_name := shaped["metadata"].get("name")) != old["metadata"]["name"]:
                problem = immutable("metadata.name", changed_name)
                raise errors.invalid(kind.group, kind.kind, old["metadata"]["name"], [problem])
            set_defaults(kind, shaped)
            return shaped

        return await admission.mutate(request, obj, reshape=reshape)

    async def run_hooks(self, operation: Operation, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        """Run the hooks, then bring what they returned into shape again."""
        if not self.hooks:
            return obj
        for hook in self.hooks:
            result = hook(operation, obj, old)
            obj = await result if inspect.isawaitable(result) else result
        kind = self.kind
        prune(kind, obj, options=WriteOptions(field_validation="Ignore"))
        if not kind.custom:
            check_types(kind, obj)
        set_defaults(kind, obj)
        return obj

    async def validate_admission(self, obj: JsonObject, old: JsonObject | None, *, subresource: str = "") -> None:
        """Have webhooks validate an object as it would be stored; raises a StatusError if it is refused."""
        admission, kind = self.admission, self.kind
        operation: Operation = "CREATE" if old is None else "UPDATE"
        if admission is not None and admission.handles(kind, operation, subresource):
            request, seen = self._admission_request(obj, old, subresource)
            await admission.validate(request, seen)

    def _admission_request(
        self, obj: JsonObject, old: JsonObject | None, subresource: str
    ) -> tuple[AdmissionRequest, JsonObject]:
        """Describe the write to webhooks; the object is as they see it: a Scale by the endpoint `scale`."""
        paths = self.kind.scale if subresource == "scale" else None
        if paths is not None and old is not None:
            obj, old = paths.scale_of(obj), paths.scale_of(old)
        return write_request(self.kind, obj, old, subresource=subresource, options=self.options), obj

    def validate_rules(self, new: JsonObject, old: JsonObject | None, known: Sequence[FieldError]) -> list[FieldError]:
        """Check the rules of a custom resource; they rely on the object having the shape that its schema asks for."""
        rules = self.kind.rules
        if not rules:
            return []
        if any(problem.type in _SHAPELESS for problem in known):
            return [FieldError("", "Invalid", None, _RULES_UNCHECKED)]
        result = rules.check(new, old)
        self.options.warnings.extend(result.warnings)
        return result.errors

    def warn(self, warnings: Sequence[str]) -> None:
        """Tell the client something besides, once however often the write is tried."""
        self.options.warnings.extend(text for text in warnings if text not in self.options.warnings)

    def track(self, old: JsonObject | None, new: JsonObject, subresource: str) -> JsonObject:
        """Note which fields the writer manages from now on."""
        return update(
            old,
            new,
            manager=self.options.field_manager,
            schema=self.schema,
            api_version=self.kind.api_version,
            now=timestamp(self.now),
            subresource=subresource,
        )


def set_defaults(kind: Kind, obj: JsonObject) -> None:
    """Fill in what the schema and the strategy of a kind give, in place."""
    if kind.schema is not None:
        kind.schema.default(obj)
    kind.strategy.default(obj)


def validate_schema(kind: Kind, obj: JsonObject) -> list[FieldError]:
    """Return what the schema of a kind finds wrong with an object; the rules of metadata are the same for all kinds."""
    if kind.schema is None or not kind.strategy.required_by_schema:
        return []
    problems = kind.schema.validate(obj)
    return problems if kind.custom else [each for each in problems if not each.field.startswith("metadata.")]


def validate_object(kind: Kind, obj: JsonObject) -> list[FieldError]:
    """Return what the schema and the strategy of a kind find wrong with an object; what both find counts once."""
    problems = kind.strategy.validate(obj)
    return [problem for problem in validate_schema(kind, obj) if problem not in problems] + problems
