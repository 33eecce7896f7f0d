"""The store: every object of the cluster, one global revision, a history to watch and a journal on disk."""

from __future__ import annotations

from trainmaster.devcluster.store.journal import Journal, JournalError
from trainmaster.devcluster.store.records import Event, EventType, ObjectKey, Record
from trainmaster.devcluster.store.store import Mismatch, Store
from trainmaster.devcluster.store.subscriptions import Expired, Subscription

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
