"""The store: every object of the cluster, one global revision, a history to watch and a journal on disk."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.storage.entries import Event, EventType, ObjectKey, Record
from trainmaster.devcluster.apiserver.storage.journal import Journal, JournalError
from trainmaster.devcluster.apiserver.storage.store import RevisionConflict, Store
from trainmaster.devcluster.apiserver.storage.watcher import Expired, Watcher

__all__ = [
    "Event",
    "EventType",
    "Expired",
    "Journal",
    "JournalError",
    "ObjectKey",
    "Record",
    "RevisionConflict",
    "Store",
    "Watcher",
]
