"""How urgent a change is: the priority with which it puts keys into a work queue.

Guarantees:
- W-22: what was there at the start, and reminders, come after everything else.
- W-19: what somebody changes of an object that is there already, and what becomes of what was made for it, come before
  objects that are new: in a burst of creations, suspending or deleting an older job, or its failure, waits for none of
  them.
- What a reconcile has written itself comes back without a priority: what it has created is an addition, and a status
  or a label of the reconciled object is nothing that somebody waits for.
"""

from __future__ import annotations

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, LOW_PRIORITY

_WANTED = ("uid", "generation", "deletionTimestamp")


def priority_of_own(change: Delta) -> int:
    """Return the priority of a change of the object itself that is reconciled."""
    priority = priority_of_other(change)
    return (
        CHANGE_PRIORITY if priority == 0 and not change.is_addition and _asks_for_something_else(change) else priority
    )


def priority_of_owned(change: Delta) -> int:
    """Return the priority of a change of an object that belongs to the one that is reconciled."""
    priority = priority_of_other(change)
    return CHANGE_PRIORITY if priority == 0 and not change.is_addition else priority


def priority_of_other(change: Delta) -> int:
    """Return the priority of a change of anything else, which may concern any number of objects."""
    return LOW_PRIORITY if change.initial or change.resync else 0


def _asks_for_something_else(change: Delta) -> bool:
    """Whether an object is deleted or its spec has changed; the server counts both as another generation."""
    if change.statuses() is not None:
        return False
    before, after = change.old, change.new
    if before is None or after is None:
        return True
    return any(before["metadata"].get(name) != after["metadata"].get(name) for name in _WANTED)
