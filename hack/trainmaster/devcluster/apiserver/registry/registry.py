"""Kinds, and the registry of those that the API serves at the moment.

A `Kind` is everything that the API needs to know to serve one resource in one version. Custom resource definitions add
kinds to the registry and take them away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainmaster.devcluster.apiserver.errors import route_not_found
from trainmaster.devcluster.apiserver.registry.scale import ScalePaths
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.devcluster.apiserver.schema.cel import Rules
from trainmaster.runtime.jsontree import JsonObject

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; `cell` computes it from an object and the present time."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    cell: Callable[[JsonObject, datetime], Any]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """One resource in one version, as the API serves it."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    strategy: Strategy
    schema: Schema | None = None
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: frozenset[str] = frozenset()
    columns: tuple[Column, ...] = ()
    custom: bool = False
    """Served because of a CustomResourceDefinition."""
    definition: str | None = None
    """The name of the OpenAPI definition of a built-in kind; strategic merge and OpenAPI documents start from it."""
    rules: Rules = field(default_factory=Rules)
    """Rules in CEL, which come from the definition of a custom resource."""
    field_labels: Mapping[str, Callable[[JsonObject], str]] = field(default_factory=dict)
    """What field selectors may ask for, besides `metadata.name` and `metadata.namespace`."""
    scale: ScalePaths | None = None
    """For kinds with the scale subresource."""
    storage: GroupResource | None = None
    """Where the objects are stored, if they are shared with another resource."""

    @property
    def resource(self) -> GroupResource:
        """The resource that this kind is served under."""
        return GroupResource(self.group, self.plural)

    @property
    def stored_as(self) -> GroupResource:
        """The resource that the objects are stored under."""
        return self.storage or self.resource

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """Whether the status is written by its own subresource only."""
        return "status" in self.subresources


class Registry:
    """The served kinds, in the order in which they came; one version of each resource."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self.revision = 0
        """Grows with every change; discovery and OpenAPI documents are valid for one value of it."""
        self._kinds: dict[GroupResource, Kind] = {}
        for kind in kinds:
            self.add(kind)

    def kinds(self) -> list[Kind]:
        """Return all served kinds."""
        return list(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind that a URL names, or None."""
        kind = self._kinds.get(GroupResource(group, plural))
        return kind if kind is not None and kind.version == version else None

    def is_built_in(self, group: str, version: str) -> bool:
        """Return whether a group version is one of the server's own, not one of custom resource definitions."""
        return any((each.group, each.version, each.custom) == (group, version, False) for each in self._kinds.values())

    def get(self, resource: GroupResource) -> Kind:
        """Return the kind of a resource; raises the 404 of an unknown path when it is not served."""
        kind = self._kinds.get(resource)
        if kind is None:
            raise route_not_found()
        return kind

    def serves(self, resource: GroupResource) -> bool:
        """Return whether a resource is served."""
        return resource in self._kinds

    def add(self, kind: Kind) -> None:
        """Serve a kind; it replaces the one that was served under the same resource."""
        self._kinds[kind.resource] = kind
        self.revision += 1

    def remove(self, resource: GroupResource) -> None:
        """Stop serving a resource; unknown ones are ignored."""
        if self._kinds.pop(resource, None) is not None:
            self.revision += 1
