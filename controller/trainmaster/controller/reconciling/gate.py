"""The read-your-writes gate (C-4, KEP-5647).

A cache lags behind the server, so a reconcile right after a write may see the world as it was before, and act twice.
The gate remembers, for each key, the resource versions that the key's own last writes returned; until the caches have
seen them, the key waits. Nothing that matters is lost when the gate forgets: it only ever delays.
"""

from __future__ import annotations

from trainmaster.controller.kube.storing import Store, parse_resource_version


class WriteGate:
    """Resource versions that must be observed before a key is reconciled again. Used from one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[str, tuple[int, Store]]] = {}

    def record(self, key: str, kind: str, resource_version: object, store: Store) -> None:
        """Note a write.

        Args:
            key: The key whose reconcile wrote.
            kind: The kind that was written; a later write of the same kind replaces an earlier one.
            resource_version: What the server returned; ignored if it is not a number (C-5: fail open).
            store: The cache of this kind.
        """
        version = parse_resource_version(resource_version)
        if version:
            self._pending.setdefault(key, {})[kind] = (version, store)

    def is_open(self, key: str) -> bool:
        """Tell whether the caches have seen all writes of this key; forgets those that were seen."""
        pending = self._pending.get(key)
        if not pending:
            return True
        for kind, (version, store) in list(pending.items()):
            if store.resource_version >= version:
                del pending[kind]
        if pending:
            return False
        del self._pending[key]
        return True

    def forget(self, key: str) -> None:
        """Drop everything about a key, for instance when its object is gone."""
        self._pending.pop(key, None)
