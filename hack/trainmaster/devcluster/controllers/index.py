"""An index of objects by the uid of their managing controller, kept current by the store itself.

The store tells of every change synchronously, so the index is never behind a read of the store: controllers need
neither expectations nor full lists.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.objects import controller_reference
from trainmaster.runtime.jsontree import JsonObject


class ChildIndex:
    """Children by owner uid; feed it by `ControllerLoop.watch(resource, index.observe)`."""

    def __init__(self) -> None:
        self._children: dict[str, dict[ObjectKey, JsonObject]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change."""
        for record in (event.previous, event.record):
            owner = None if record is None else controller_reference(record.object)
            if owner is not None:
                children = self._children.get(owner["uid"], {})
                children.pop(event.key, None)
                if not children:
                    self._children.pop(owner["uid"], None)
        owner = controller_reference(event.record.object)
        if event.type != "DELETED" and owner is not None:
            self._children.setdefault(owner["uid"], {})[event.key] = event.record.object

    def of(self, uid: str) -> list[JsonObject]:
        """Return the children of an owner, by name."""
        children = self._children.get(uid, {})
        return [children[key] for key in sorted(children)]
