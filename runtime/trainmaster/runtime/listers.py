"""Listers: the read-only view of the cluster that a resolution and its plugins get.

What they return comes from the caches of informers. Plugins declare which kinds they read in `watch_extension`; a kind
that no plugin declared is not cached and reads as absent. Offline (`trainmaster render`) nothing exists but what the
given files hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from trainmaster.runtime.jsontree import JsonObject


class Listers(Protocol):
    """Lookup of cached objects; what comes back is the caller's own copy, which shows the cache of this moment."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when the cache does not hold it."""

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind, of one namespace if given."""


class NoListers:
    """The listers of a resolution without a cluster: nothing exists."""

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:  # noqa: ARG002 - the protocol's
        """Return None."""
        return None

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()


NO_LISTERS: Listers = NoListers()
