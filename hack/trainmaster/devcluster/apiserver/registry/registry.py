"""The registry: which kinds the API serves at the moment; custom resource definitions add to it and take away."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.devcluster.apiserver.errors import route_not_found
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.devcluster.apiserver.resources import GroupResource


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
