"""The strategy of a kind: the steps of a request that differ from kind to kind.

Every method has the behaviour of a plain kind, such as a ConfigMap, as its default. Methods change `obj` in place: it
is the private copy of one request. `old` is shared by the store and all its readers and must never be changed.
"""

# ruff: noqa: ARG002 - the arguments are for the strategies that override a method

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain


class Strategy:
    """The behaviour of a plain kind."""

    has_generation: ClassVar[bool] = False
    """Whether the server counts `metadata.generation`."""
    required_by_schema: ClassVar[bool] = True
    """Whether the schema tells which fields an object needs; otherwise `validate` does."""
    allow_unconditional_update: ClassVar[bool] = True
    """Whether a PUT may leave out the resource version and so overwrite whatever is there."""
    allow_create_on_update: ClassVar[bool] = False
    """Whether a PUT creates an object that does not exist."""
    return_deleted_object: ClassVar[bool] = False
    """Whether the answer to a deletion is the deleted object; otherwise it is a Status."""
    orphans_by_default: ClassVar[bool] = False
    """Whether a deletion that does not say otherwise leaves the dependents alone."""
    current_since: int = 0
    """The revision from which on stored objects have the shape of the kind; `from_storage` gives it to older ones."""
    collects_dependents: ClassVar[bool] = True
    """Whether the propagation of deletions applies to the kind."""

    def validate_name(self, name: str) -> list[str]:
        """Return what is wrong with a name."""
        return dns_subdomain(name)

    def to_storage(self, obj: JsonObject) -> JsonObject:
        """Translate an object from the form of this kind to the stored form."""
        return obj

    def from_storage(self, obj: JsonObject) -> JsonObject:
        """Translate a stored object, which must not be changed, to the form of this kind."""
        return obj

    def default(self, obj: JsonObject) -> None:
        """Fill in what the client left open."""

    def check_create(self, obj: JsonObject) -> None:
        """Raise a StatusError if objects like this cannot be created at all."""

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Set what belongs to the server in a new object, whatever the client sent; the metadata is stamped already."""

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what an update through the main endpoint must not change."""

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what an update through the status endpoint must not change."""
        restore(obj, old, "spec")

    def limit_to_subresource(self, obj: JsonObject, old: JsonObject, subresource: str) -> JsonObject:
        """Return what an update through a subresource of the kind's own makes of the old object."""
        raise errors.route_not_found()

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether the desired state changed."""
        return bool(obj.get("spec") != old.get("spec"))

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Return the broken rules of an object, new or changed."""
        return []

    def validate_create(self, obj: JsonObject) -> list[FieldError]:
        """Return the broken rules that only a new object has to keep."""
        return []

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Return the broken rules of a change through the main endpoint."""
        return []

    def validate_status(self, obj: JsonObject) -> list[FieldError]:
        """Return the broken rules of a status that its own endpoint writes, if the schema does not tell them."""
        return []

    def validate_subresource_update(self, obj: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
        """Return the broken rules of a change through a subresource of the kind's own."""
        return []

    def allocate(
        self, obj: JsonObject, old: JsonObject | None, others: Callable[[], Iterable[JsonObject]], *, dry_run: bool
    ) -> None:
        """Give out what no two objects may share, right before an object is stored; `others` lists those there are.

        Raises a StatusError if the object asks for what is taken.
        """

    def warnings_on_create(self, obj: JsonObject) -> list[str]:
        """Return what the author of a sound new object should know."""
        return []

    def warnings_on_update(self, obj: JsonObject, old: JsonObject) -> list[str]:
        """Return what the author of a sound change through the main endpoint should know."""
        return []

    def check_delete(self, obj: JsonObject) -> None:
        """Raise a StatusError if the object must not be deleted."""

    def grace_seconds(self, obj: JsonObject, requested: int | None) -> int:
        """Return for how long the object stays after its deletion was requested."""
        return 0

    def mark_deleted(self, obj: JsonObject) -> None:
        """Show in the object that its deletion was requested; called once, after the deletionTimestamp was set."""

    def is_held(self, obj: JsonObject) -> bool:
        """Return whether a deleted object must stay for a reason other than `metadata.finalizers`."""
        return False


def protect(obj: JsonObject, finalizer: str) -> None:
    """Give an object a finalizer, by which it outlives its deletion."""
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def restore(obj: JsonObject, old: Mapping[str, Any], field: str) -> None:
    """Put the old value of a field back, or its absence."""
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)
