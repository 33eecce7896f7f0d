"""Why a collection cannot be read: for people, for metrics, and for whoever decides whether to wait for it.

Guarantees:
- E-7: that a kind is not served is told apart from every other failure, with what to install.
- A missing permission is told with the verbs and the resource to grant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainmaster.controller.kube.cache.listwatch import Collection
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
from trainmaster.metrics.cache import RestartCause

Verb: TypeAlias = Literal["list", "watch"]


@dataclass(frozen=True, slots=True)
class ListWatchFailure:
    """Why a collection cannot be read.

    Attributes:
        verb: What was tried.
        text: What is wrong and what to do, for people.
        error: What came of it.
    """

    verb: Verb
    text: str
    error: KubeError

    @property
    def is_not_served(self) -> bool:
        """Whether the server does not serve this kind."""
        return isinstance(self.error, NotFound | MethodNotSupported)

    @property
    def is_refused(self) -> bool:
        """Whether the server is well but does not give us this kind."""
        return self.is_not_served or isinstance(self.error, Forbidden)

    def is_same_as(self, other: ListWatchFailure | None) -> bool:
        """Whether the other is the same failure, whatever its words."""
        return other is not None and self.identity == other.identity

    @property
    def identity(self) -> tuple[object, ...]:
        """What stays the same while the failure lasts; messages of servers hold ports and times."""
        return self.verb, type(self.error), getattr(self.error, "status", None)


def failure_of(error: KubeError, collection: Collection, verb: Verb) -> ListWatchFailure:
    """Explain a failure to read a collection."""
    resource = collection.resource
    if isinstance(error, NotFound | MethodNotSupported):
        text = f"the cluster does not serve it in version {resource.version}; {resource.remedy}"
        return ListWatchFailure(verb, text, error)
    if isinstance(error, Forbidden):
        role = f'a Role in namespace "{collection.namespace}"' if collection.namespace else "a ClusterRole"
        return ListWatchFailure(
            verb,
            f"no permission to {verb} it; grant the verbs list and watch on the resource "
            f'"{resource.plural}" of the API group "{resource.group}" by {role}',
            error,
        )
    return ListWatchFailure(verb, str(error), error)


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
