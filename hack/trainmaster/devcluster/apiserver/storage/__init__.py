"""The store: every object of the cluster, one global revision, a history to watch and a journal on disk."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.storage.journal import Journal, JournalError
from trainmaster.devcluster.apiserver.storage.records import Event, EventType, ObjectKey, Record
from trainmaster.devcluster.apiserver.storage.store import Mismatch, Store
from trainmaster.devcluster.apiserver.storage.subscriptions import Expired, Subscription

__all__ = [
    "Event",
    "EventType",
    "Expired",
    "Journal",
    "JournalError",
    "Mismatch",
    "ObjectKey",
    "Record",
    "Store",
    "Subscription",
]
