"""What a reflector lists and watches, what it needs of a client for that, and why it fails.

Guarantees:
- R-14: a Table in place of an object is an error and never an empty collection.
- R-29: objects of another kind are skipped.
- S-18: where metadata is enough, only metadata is requested, and only metadata is kept.
- E-7: that a kind is not served is told apart from every other failure, with what to install.
- A missing permission is told with the verbs and the resource to grant.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, Unpack

import structlog

from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.rest.client import ListOptions
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    Forbidden,
    Gone,
    KubeError,
    MalformedResponse,
    MethodNotSupported,
    NotFound,
    ResponseTooLarge,
    StreamSilent,
    TooManyRequests,
    TransportError,
)
from trainmaster.controller.kube.rest.partial import is_well_typed, partial_metadata
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.rest.watch import WatchEvent, WatchStream
from trainmaster.metrics.cache import RestartCause
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
        if type(obj) is not dict:
            raise MalformedResponse(f"reading {self.resource.name}: an item is not an object")
        kind, metadata = obj.get("kind"), obj.get("metadata")
        ours = kind == self.resource.kind or (self.metadata_only and kind == PARTIAL_KIND)
        if not (ours and type(metadata) is dict and type(name := metadata.get("name")) is str and name):
            if kind == "Table":
                raise MalformedResponse(
                    f"reading {self.resource.name}: the server answers with Tables; "
                    "is there a proxy that changes headers?"
                )
            log.warning("object of another kind skipped", resource=self.resource.name, kind=str(kind)[:100])
            return False
        if self.metadata_only:
            # Also of a server that does not know this form and sends all of it.
            kept = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
            obj.clear()
            obj |= kept
        if not is_well_typed(metadata):
            kept = partial_metadata(obj, "its metadata has not the types that the API promises")
            obj.clear()
            obj |= kept
        return True


class ListWatcher(Protocol):
    """What a reflector needs of a client."""

    async def list_bytes(
        self, resource: Resource, namespace: str | None = None, **options: Unpack[ListOptions]
    ) -> bytes:
        """Read a collection, or one page of it, and return the answer undecoded."""

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
    version = _version(metadata)
    if version is None:
        raise MalformedResponse(f"{what} has no metadata.resourceVersion")
    return version


def version_of_event(event: WatchEvent, resource: Resource) -> str:
    """Return the resource version that an event of a watch brings."""
    metadata = event.object.get("metadata")
    return _version(metadata) or version_of(metadata, what=f"an event of {resource.name}")


def _version(metadata: Any) -> str | None:
    version = metadata.get("resourceVersion") if type(metadata) is dict else None
    return version if version and type(version) is str else None


Verb: TypeAlias = Literal["list", "watch"]

CommonReason: TypeAlias = tuple[str, str | int]
"""A reason for which several collections, or several namespaces of one, cannot be read."""


@dataclass(frozen=True, slots=True)
class ListWatchFailure:
    """Why a collection cannot be read.

    Attributes:
        text: What is wrong and what to do, for people.
        accepted: Whether the server had accepted the request, so that the stream failed and not the server.
    """

    resource: Resource
    verb: Verb
    text: str
    error: KubeError
    accepted: bool = False

    @property
    def is_not_served(self) -> bool:
        """Whether the server does not serve this kind."""
        return isinstance(self.error, NotFound | MethodNotSupported)

    @property
    def is_refused(self) -> bool:
        """Whether the server is well but does not give us this kind."""
        return self.is_not_served or isinstance(self.error, Forbidden)

    @property
    def is_outage(self) -> bool:
        """Whether the server is away or broken, and did not say how long to wait.

        A stream that was accepted and failed then is none: when other collections are read again says nothing of it.
        """
        if self.accepted:
            return False
        if isinstance(self.error, ApiError):
            return self.error.status >= 500 and self.error.retry_after is None
        return isinstance(self.error, TransportError)

    @property
    def is_told(self) -> bool:
        """Whether a log says already what is wrong: that a right is missing."""
        return isinstance(self.error, Forbidden) and self.error.told

    @property
    def identity(self) -> tuple[object, ...]:
        """What stays the same while the failure lasts; messages of servers hold ports and times."""
        return self.verb, type(self.error), getattr(self.error, "status", None)

    @property
    def common_reason(self) -> CommonReason | None:
        """What other reflectors may meet alike; None if this collection alone is concerned."""
        if self.is_not_served:
            return "absent", f"{self.resource.api_version} {self.resource.plural}"
        if isinstance(self.error, TransportError):
            return "transport", 0
        if isinstance(self.error, ApiError) and not self.is_refused:
            return "status", self.error.status
        return None


def failure_of(error: KubeError, collection: Collection, verb: Verb, *, accepted: bool = False) -> ListWatchFailure:
    """Explain a failure to read a collection, of a request that the server had accepted or not."""
    resource = collection.resource
    if isinstance(error, NotFound | MethodNotSupported):
        text = f"the cluster does not serve it in version {resource.version}; {resource.remedy}"
        return ListWatchFailure(resource, verb, text, error)
    if isinstance(error, Forbidden):
        role = f'a Role in namespace "{collection.namespace}"' if collection.namespace else "a ClusterRole"
        return ListWatchFailure(
            resource,
            verb,
            f"no permission to {verb} it; grant the verbs list and watch on the resource "
            f'"{resource.plural}" of the API group "{resource.group}" by {role}',
            error,
        )
    return ListWatchFailure(resource, verb, str(error), error, accepted=accepted)


def restart_cause(error: KubeError, *, opened: bool) -> RestartCause:
    """Name the reason why a watch has to be opened again."""
    if isinstance(error, StreamSilent):
        return "silent"
    if isinstance(error, TransportError):
        return "broken" if opened else "refused"
    if isinstance(error, Gone):
        return "expired"
    if isinstance(error, TooManyRequests):
        return "busy"
    if isinstance(error, MalformedResponse | ResponseTooLarge):
        return "malformed"
    return "denied" if isinstance(error, ApiError) and error.status in {401, 403, 404, 405} else "failed"
