"""Fault injection: making the API server fail on purpose, for tests of its clients.

    with cluster.faults.add(Refuse(429, retry_after=1), verb="create", resource="trainjobs", nth=2) as fault:
        ...
        assert fault.count == 1

A rule says which requests it means and what happens to them. It is pure bookkeeping here; `fault_injection` carries the
actions out, and offers the same over HTTP to tests in other processes.

Guarantees:
- every rule looks at every request that it means and counts it; the actions of all the rules that strike are carried
  out in the order in which they were added, up to the first one that ends the request;
- what is random is the same in every run: the same requests meet the same faults;
- without rules nothing is looked at.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from trainmaster.devcluster.apiserver.errors import StatusError

_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits before anything else happens to it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset: before the request is carried out, or after that, so that the response is lost."""

    when: Literal["before", "after"] = "before"


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused with a Status, such as 409, 410, 429, 500 or 503, and is not carried out."""

    code: int
    reason: str = ""
    """Without one: the usual reason of the code."""

    message: str = "this request was chosen to fail"
    retry_after: int | None = None
    """Seconds for the Retry-After header."""

    def error(self) -> StatusError:
        """Return the refusal."""
        reason = self.reason or _REASONS.get(self.code, "InternalError")
        return StatusError(self.code, reason, self.message, retry_after=self.retry_after)


@dataclass(frozen=True, slots=True)
class StallWatch:
    """The watch stays open and says nothing more, not even bookmarks, until the rule is removed; then it is reset."""

    after: int = 0
    """Frames that still arrive."""


Action: TypeAlias = Delay | Reset | Refuse | StallWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRequest:
    """What rules look at in a request."""

    verb: str
    resource: str
    subresource: str
    user_agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """Which requests are meant; what is left out does not matter."""

    verb: str | None = None
    """One verb of Kubernetes, or several with commas between them: `create,update`."""

    resource: str | None = None
    """The plural."""

    subresource: str | None = None
    """Empty: requests without a subresource only."""

    user_agent: str | None = None
    """A part of the client's User-Agent."""

    nth: int | None = None
    """Of the requests that are meant, only this one, counted from 1."""

    times: int | None = None
    """How often it strikes at most."""

    probability: float = 1.0

    def means(self, request: FaultRequest) -> bool:
        """Return whether a request is meant."""
        return (
            (self.verb is None or request.verb in self.verb.split(","))
            and (self.user_agent is None or self.user_agent in request.user_agent)
            and (self.resource is None or self.resource == request.resource)
            and (self.subresource is None or self.subresource == request.subresource)
        )


class Fault:
    """A rule at work; also a context manager that removes it at the end."""

    def __init__(self, faults: list["Fault"], rule: FaultRule, action: Action) -> None:
        self._faults = faults
        self._random = random.Random(0)
        self.rule = rule
        self.action = action
        self.seen = 0
        """Requests that the rule meant."""
        self.count = 0
        """How often it struck."""
        self.removed = asyncio.Event()
        self._on_removal: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Let it strike no more; connections that it holds up are reset. Removing it twice is harmless."""
        if self in self._faults:
            self._faults.remove(self)
        self.removed.set()
        while self._on_removal:
            self._on_removal.pop()()

    def on_removal(self, callback: Callable[[], None]) -> None:
        """Call back when it is removed."""
        self._on_removal.append(callback)

    def strikes(self, request: FaultRequest) -> bool:
        """Count a request, and return whether it is struck."""
        rule = self.rule
        if isinstance(self.action, StallWatch) and request.verb != "watch":
            return False
        if not rule.means(request):
            return False
        self.seen += 1
        if rule.nth is not None and self.seen != rule.nth:
            return False
        if rule.times is not None and self.count >= rule.times:
            return False
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return False
        self.count += 1
        return True


class Faults:
    """The faults of one server."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    @property
    def active(self) -> bool:
        """Whether there are any rules."""
        return bool(self._faults)

    def add(self, action: Action, **rule: Any) -> Fault:
        """Add a rule; the names of its parts are those of `FaultRule`."""
        fault = Fault(self._faults, FaultRule(**rule), action)
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        for fault in tuple(self._faults):
            fault.remove()

    def striking(self, request: FaultRequest) -> list[Fault]:
        """Count a request, and return the faults that it meets."""
        return [fault for fault in self._faults if fault.strikes(request)]
