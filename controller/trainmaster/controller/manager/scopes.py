"""Scopes: how much of a kind is read and kept, so that nobody's declaration widens what others have declared.

Guarantees:
- S-18, S-19: an informer reads what one plugin declared, never more: metadata stays metadata, and a selector stays. Of
  two scopes the narrower is served by the wider, which somebody has asked for; if neither covers the other, each has an
  informer of its own.
- Whoever gets more than it declared is told of in the log, with who asked for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.reconciling.expectations import UnreadStore, WrittenStore
from trainmaster.controller.reconciling.trainjobs.event_handlers import owner_keys
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a kind, and how much of them."""

    label_selector: str | None
    metadata_only: bool
    owned_only: bool
    """Whether objects that are no TrainJob's are kept by name and owners alone."""

    namespaces: tuple[str, ...] | None = None
    """The only namespaces, in order; None: all that are served."""

    @classmethod
    def of(cls, watch: Watch, served: Collection[str] = ()) -> Scope:
        """Return the scope that a plugin declared: those who only build need what TrainJobs own.

        Args:
            served: The namespaces that the manager serves; empty: all.
        """
        return cls(
            watch.label_selector or None,
            watch.metadata_only,
            owned_only=watch.writes and watch.jobs is None and not watch.indexes,
            namespaces=_namespaces_of(watch, served),
        )

    def covers(self, other: Scope) -> bool:
        """Tell whether this scope has all of another one."""
        return (
            self.label_selector in (None, other.label_selector)
            and self.metadata_only <= other.metadata_only
            and self.owned_only <= other.owned_only
            and (
                self.namespaces is None or (other.namespaces is not None and {*other.namespaces} <= {*self.namespaces})
            )
        )

    @property
    def hears_of_all(self) -> bool:
        """Whether no object is left out."""
        return self.namespaces is None and self.label_selector is None

    def __str__(self) -> str:
        """Return it as it stands in metrics and logs."""
        parts = [
            self.label_selector or "",
            "metadata" if self.metadata_only else "",
            "owned" if self.owned_only else "",
            f"in {' '.join(self.namespaces) or 'no namespace'}" if self.namespaces is not None else "",
        ]
        return ",".join(filter(None, parts)) or "all"


def _namespaces_of(watch: Watch, served: Collection[str]) -> tuple[str, ...] | None:
    if not watch.namespaces or (served and set(served) <= set(watch.namespaces)):
        return None
    return tuple(sorted({each for each in watch.namespaces if not served or each in served}))


def widest_first(scope: Scope) -> tuple[bool, bool, bool, bool]:
    """Sort key of scopes: all objects before some, whole ones before metadata."""
    return scope.namespaces is not None, scope.label_selector is not None, scope.metadata_only, scope.owned_only


def served_by(watches: Sequence[Watch], namespaces: Collection[str] = ()) -> dict[Scope, list[Watch]]:
    """Return the scopes that it takes to serve all declarations of one kind, widest first, each with whom it serves.

    Args:
        namespaces: The namespaces that the manager serves; empty: all.
    """
    scope_of = partial(Scope.of, served=namespaces)
    declared = sorted(dict.fromkeys(map(scope_of, watches)), key=widest_first)
    needed = [scope for scope in declared if not any(scope != other and other.covers(scope) for other in declared)]
    served: dict[Scope, list[Watch]] = {scope: [] for scope in needed}
    for watch in watches:
        scope = scope_of(watch)
        if scope.namespaces == ():
            log.warning(
                "a plugin watches namespaces none of which is served here, so it is shown nothing of a kind",
                kind=watch.kind,
                plugin=watch.declared_by,
                namespaces=list(watch.namespaces),
                hint="add them to watchNamespaces, or correct the options of the plugin",
            )
        by = next(each for each in needed if each.covers(scope))
        served[by].append(watch)
        if by != scope:
            log.warning(
                "a plugin is shown more of a kind than it declared, because another one declared that",
                kind=watch.kind,
                plugin=watch.declared_by,
                declared=str(scope),
                shown=str(by),
                because_of=[each.declared_by for each in watches if scope_of(each) == by],
            )
    return served


class JoinedStore(StoreReader):
    """The stores of several scopes of one kind, to read from: each object once, as whole as any of them has it."""

    def __init__(self, parts: Iterable[tuple[Scope, Store]]) -> None:
        self._parts = sorted(parts, key=lambda part: (part[0].metadata_only, part[0].owned_only))
        # Whoever writes does so in all namespaces, and has to see it.
        unbound = [part for part in self._parts if part[0].namespaces is None] or self._parts
        everywhere = [store for scope, store in unbound if scope.label_selector is None]
        self._unselected = everywhere or [store for _, store in unbound]

    @property
    def is_served(self) -> bool:
        """Whether the server serves the kind, as far as the parts know."""
        return all(store.is_served for _, store in self._parts)

    def get(self, key: str) -> JsonObject | None:
        """Return the object of `key`, or None; the tree is the caller's."""
        rest: JsonObject | None = None
        for scope, store in self._parts:
            found = store.get(key)
            if found is not None and (not scope.owned_only or owner_keys(found)):
                return found
            rest = rest or found
        return rest

    def keys(self, namespace: str | None = None) -> list[str]:
        """Return every key, or those of one namespace."""
        return list(dict.fromkeys(key for _, store in self._parts for key in store.keys(namespace)))

    def index_names(self) -> list[str]:
        """Return the names of the indexes of all parts."""
        return list(dict.fromkeys(name for _, store in self._parts for name in store.index_names()))

    def index_keys(self, index_name: str, value: str) -> list[str]:
        """Return the keys of the objects that the index `index_name` has under `value` in the parts that have it."""
        indexed = [store for _, store in self._parts if index_name in store.index_names()]
        return list(dict.fromkeys(key for store in indexed for key in store.index_keys(index_name, value)))

    def uid(self, key: str) -> str | None:
        """Return the UID of the object of `key`."""
        return next((uid for _, store in self._parts if (uid := store.uid(key)) is not None), None)

    def size(self, key: str) -> int:
        """Return how many bytes the object of `key` has at most."""
        return max(store.size(key) for _, store in self._parts)

    def reached(self, key: str) -> int:
        """Return the version that those parts have reached for the object of `key` that see every object."""
        return min(store.reached(key) for store in self._unselected)


class WrittenBesideStore(JoinedStore, WrittenStore):
    """The same, with what was written here of the kind: nobody reads that who writes it.

    Args:
        parts: The scopes with their stores, of which none hears of every object.
    """

    def __init__(self, parts: Iterable[tuple[Scope, Store]], written: UnreadStore) -> None:
        super().__init__([*parts, (Scope(None, metadata_only=True, owned_only=True), written)])
        self.written = written
