"""Why a collection cannot be read: for people, for metrics, and for whoever decides whether to wait for it.

Guarantees:
- E-7: that a kind is not served is told apart from every other trouble, with what to install.
- A missing permission is told with the verbs and the resource to grant.
- R-6: `Patience` reports every ten seconds without an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from trainmaster.controller.kube.cache.listwatch import Collection
from trainmaster.controller.kube.clock import Clock, Timer
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

PATIENCE: Final = 10.0
"""Seconds without an event after which a snapshot that is not complete is worth a warning."""

Verb: TypeAlias = Literal["list", "watch"]


@dataclass(frozen=True, slots=True)
class Trouble:
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
    def is_absence(self) -> bool:
        """Whether the server does not serve this kind."""
        return isinstance(self.error, NotFound | MethodNotSupported)

    @property
    def is_refusal(self) -> bool:
        """Whether the server is well but does not give us this kind."""
        return self.is_absence or isinstance(self.error, Forbidden)

    def is_like(self, other: Trouble | None) -> bool:
        """Whether the other is the same trouble, whatever its words."""
        return other is not None and self.sort == other.sort

    @property
    def sort(self) -> tuple[object, ...]:
        """What stays the same while the trouble lasts; messages of servers hold ports and times."""
        return self.verb, type(self.error), getattr(self.error, "status", None)


def trouble_of(error: KubeError, collection: Collection, verb: Verb) -> Trouble:
    """Explain a failure to read a collection."""
    resource = collection.resource
    if isinstance(error, NotFound | MethodNotSupported):
        text = f"the cluster does not serve it in version {resource.version}; {resource.remedy}"
        return Trouble(verb, text, error)
    if isinstance(error, Forbidden):
        role = f'a Role in namespace "{collection.namespace}"' if collection.namespace else "a ClusterRole"
        return Trouble(
            verb,
            f"no permission to {verb} it; grant the verbs list and watch on the resource "
            f'"{resource.plural}" of the API group "{resource.group}" by {role}',
            error,
        )
    return Trouble(verb, str(error), error)


def cause_of(error: KubeError, *, opened: bool) -> RestartCause:
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


class Patience:
    """Reports each stretch of `PATIENCE` seconds in which `count` did not change.

    Args:
        clock: The time.
        report: Is told how long nothing has come, and how much came before.
    """

    def __init__(self, clock: Clock, report: Callable[[float, int], None]) -> None:
        self.count = 0
        self._clock = clock
        self._report = report
        self._seen = 0
        self._silent = 0.0
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        self._wait()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        # One timer that looks at a counter, because a timer for each event would cost more than the event.
        self._timer = self._clock.call_at(self._clock.monotonic() + PATIENCE, self._look)

    def _look(self) -> None:
        if self.count == self._seen:
            self._silent += PATIENCE
            self._report(self._silent, self.count)
        else:
            self._seen, self._silent = self.count, 0.0
        self._wait()
