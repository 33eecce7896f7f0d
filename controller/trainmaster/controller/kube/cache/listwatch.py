"""What a reflector lists and watches, and what it needs of a client for that.

Guarantees:
- R-14: a Table in place of an object is an error and never an empty collection.
- R-29: objects of another kind are skipped.
- S-18: where metadata is enough, only metadata is requested, and only metadata is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import structlog

from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.rest.errors import MalformedResponse
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.rest.watch import WatchEvent, WatchStream
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

PARTIAL_KIND: Final = "PartialObjectMetadata"

ToEntry: TypeAlias = Callable[[JsonObject], Entry]
"""Makes of an object what is kept of it."""

Snapshot: TypeAlias = tuple[list[Entry], str]
"""Everything in a collection, and the resource version of that state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What is read: a resource type, as far as it is of interest."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    metadata_only: bool = False

    def accepts(self, obj: Any) -> bool:
        """Whether an object is one of those requested, which are brought into shape; others stop nothing (R-29).

        Raises:
            MalformedResponse: It is a Table, so the server has not understood what we want at all (R-14).
        """
        if not isinstance(obj, dict):
            raise MalformedResponse(f"reading {self.resource.name}: an item is not an object")
        kind, metadata = obj.get("kind"), obj.get("metadata")
        if kind == "Table":
            raise MalformedResponse(
                f"reading {self.resource.name}: the server answers with Tables; is there a proxy that changes headers?"
            )
        ours = kind == self.resource.kind or (self.metadata_only and kind == PARTIAL_KIND)
        if not (ours and isinstance(metadata, dict) and metadata.get("name")):
            log.warning("object of another kind skipped", resource=self.resource.name, kind=str(kind)[:100])
            return False
        if self.metadata_only:
            # Also of a server that does not know this form and sends all of it.
            obj.clear()
            obj |= {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        return True


class ListClient(Protocol):
    """What `ListPager` needs of a client."""

    async def list_bytes(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
    ) -> bytes:
        """Read a collection, or one page of it, and return the answer undecoded."""


class ListWatcher(ListClient, Protocol):
    """What a reflector needs of a client."""

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float,
        send_initial_events: bool = False,
        metadata_only: bool = False,
    ) -> AbstractAsyncContextManager[WatchStream]:
        """Open a watch."""


def version_of(metadata: Any, *, what: str) -> str:
    """Return the resource version in some metadata; without one there is no way to go on."""
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise MalformedResponse(f"{what} has no metadata.resourceVersion")
    return version


def version_of_event(event: WatchEvent, resource: Resource) -> str:
    """Return the resource version that an event of a watch brings."""
    return version_of(event.object.get("metadata"), what=f"an event of {resource.name}")
