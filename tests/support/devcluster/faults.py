"""Fault injection: making the API server fail on purpose, for tests of its clients.

    with cluster.faults.add(Refuse(429, retry_after=1), verb="create", resource="trainjobs", nth=2) as fault:
        ...
        assert fault.count == 1

A rule says which requests it means and what happens to them. It is pure bookkeeping here; `fault_injection` carries the
actions out, and offers the same over HTTP to tests in other processes.

Guarantees:
- every rule looks at every request that it means and counts it; the actions of all the rules that strike are carried
  out in the order in which they were added, up to the first one that ends the request;
- what is random follows from the seed of the rule: the same requests meet the same faults;
- without rules nothing is looked at.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeAlias

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.runtime.jsontree import JsonObject

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


class FaultInvalid(ValueError):
    """A rule makes no sense; the message says which part of it."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits before anything else happens to it."""

    name: ClassVar[str] = "delay"
    seconds: float

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise FaultInvalid(f"a delay of {self.seconds} seconds is in the past; use 0 or more")


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset: before the request is carried out, or after that, so that the response is lost."""

    name: ClassVar[str] = "reset"
    when: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        if self.when not in ("before", "after"):
            raise FaultInvalid(f"a connection cannot be reset {self.when!r}; use 'before' or 'after'")


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused with a Status, such as 409, 410, 429, 500 or 503, and is not carried out."""

    name: ClassVar[str] = "refuse"
    code: int
    reason: str = ""
    """Without one: the usual reason of the code."""

    message: str = "this request was chosen to fail"
    retry_after: int | None = None
    """Seconds for the Retry-After header."""

    def __post_init__(self) -> None:
        if not 400 <= self.code <= 599:
            raise FaultInvalid(f"{self.code} is no code of a refusal; use one from 400 to 599")

    def error(self) -> StatusError:
        """Return the refusal."""
        reason = self.reason or _REASONS.get(self.code, "InternalError")
        return StatusError(self.code, reason, self.message, retry_after=self.retry_after)


@dataclass(frozen=True, slots=True)
class StallWatch:
    """The watch stays open and says nothing more, not even bookmarks, until the rule is removed; then it is reset."""

    name: ClassVar[str] = "stall-watch"
    after: int = 0
    """Frames that still arrive."""


@dataclass(frozen=True, slots=True)
class TruncateFrame:
    """The watch ends in the middle of a frame."""

    name: ClassVar[str] = "truncate-frame"
    after: int = 0
    """Frames that still arrive whole."""


@dataclass(frozen=True, slots=True)
class CloseWatch:
    """The watch ends in an orderly way, long before its time."""

    name: ClassVar[str] = "close-watch"
    after: int = 0
    """Frames that still arrive."""


@dataclass(frozen=True, slots=True)
class ExpireWatch:
    """The watch ends with an ERROR event that says 410 Expired."""

    name: ClassVar[str] = "expire-watch"
    after: int = 0
    """Frames that still arrive before it."""


WatchAction: TypeAlias = StallWatch | TruncateFrame | CloseWatch | ExpireWatch
Action: TypeAlias = Delay | Reset | Refuse | WatchAction

_ACTIONS: Mapping[str, type[Action]] = {
    action.name: action for action in (Delay, Reset, Refuse, StallWatch, TruncateFrame, CloseWatch, ExpireWatch)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRequest:
    """What rules look at in a request."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """Which requests are meant; what is left out does not matter."""

    verb: str | None = None
    """One verb of Kubernetes, or several with commas between them: `create,update`."""

    group: str | None = None
    resource: str | None = None
    """The plural."""

    subresource: str | None = None
    """Empty: requests without a subresource only."""

    namespace: str | None = None
    name: str | None = None
    """As it stands in the URL: a creation has none there."""

    user_agent: str | None = None
    """A part of the client's User-Agent."""

    nth: int | None = None
    """Of the requests that are meant, only this one, counted from 1."""

    times: int | None = None
    """How often it strikes at most."""

    probability: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise FaultInvalid(f"{self.probability} is no probability; use a number from 0 to 1")
        for field in ("nth", "times"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise FaultInvalid(f"{field} is {value}; requests are counted from 1")

    def means(self, request: FaultRequest) -> bool:
        """Return whether a request is meant."""
        return (
            (self.verb is None or request.verb in self.verb.split(","))
            and (self.user_agent is None or self.user_agent in request.user_agent)
            and all(
                wanted is None or wanted == given
                for wanted, given in (
                    (self.group, request.group),
                    (self.resource, request.resource),
                    (self.subresource, request.subresource),
                    (self.namespace, request.namespace),
                    (self.name, request.name),
                )
            )
        )


class Fault:
    """A rule at work; also a context manager that removes it at the end."""

    def __init__(self, faults: Faults, number: int, rule: FaultRule, action: Action) -> None:
        self._faults = faults
        self._random = random.Random(rule.seed)
        self.id = str(number)
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
        self._faults.forget(self)
        self.removed.set()
        while self._on_removal:
            self._on_removal.pop()()

    def on_removal(self, callback: Callable[[], None]) -> None:
        """Call back when it is removed."""
        self._on_removal.append(callback)

    def strikes(self, request: FaultRequest) -> bool:
        """Count a request, and return whether it is struck."""
        rule = self.rule
        if isinstance(self.action, WatchAction) and request.verb != "watch":
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

    def described(self) -> JsonObject:
        """Return it in the form of the control API."""
        rule = {field.name: getattr(self.rule, field.name) for field in fields(self.rule)}
        action = {field.name: getattr(self.action, field.name) for field in fields(self.action)}
        return {
            "id": self.id,
            "rule": {key: value for key, value in rule.items() if value is not None},
            "action": {"type": self.action.name, **{key: value for key, value in action.items() if value is not None}},
            "seen": self.seen,
            "count": self.count,
        }


class Faults:
    """The faults of one server."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self._last = 0

    @property
    def active(self) -> bool:
        """Whether there are any rules."""
        return bool(self._faults)

    def add(self, action: Action, **rule: Any) -> Fault:
        """Add a rule; the names of its parts are those of `FaultRule`."""
        self._last += 1
        fault = Fault(self, self._last, _built(FaultRule, rule, "rule"), action)
        self._faults[fault.id] = fault
        return fault

    def add_described(self, described: JsonObject) -> Fault:
        """Add a rule in the form of the control API: `{"rule": {...}, "action": {"type": ..., ...}}`."""
        unknown = described.keys() - {"rule", "action"}
        rule, action = described.get("rule", {}), described.get("action")
        if unknown or not isinstance(rule, dict) or not isinstance(action, dict):
            raise FaultInvalid("a fault is an object with the objects `rule` and `action`, and nothing else")
        parts = {key: value for key, value in action.items() if key != "type"}
        name = action.get("type")
        if not isinstance(name, str) or name not in _ACTIONS:
            raise FaultInvalid(f"{name!r} is no action; the actions are {', '.join(_ACTIONS)}")
        return self.add(_built(_ACTIONS[name], parts, name), **rule)

    def forget(self, fault: Fault) -> None:
        """Drop a fault."""
        self._faults.pop(fault.id, None)

    def find(self, fault_id: str) -> Fault | None:
        """Return a fault by its id."""
        return self._faults.get(fault_id)

    def all(self) -> list[Fault]:
        """Return the faults in the order in which they were added."""
        return list(self._faults.values())

    def clear(self) -> None:
        """Remove all faults."""
        for fault in self.all():
            fault.remove()

    def striking(self, request: FaultRequest) -> list[Fault]:
        """Count a request, and return the faults that it meets."""
        return [fault for fault in self.all() if fault.strikes(request)]


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "seconds": (int, float),
    "probability": (int, float),
    "code": int,
    "retry_after": int,
    "after": int,
    "nth": int,
    "times": int,
    "seed": int,
}


def _built(wanted: type[Any], parts: JsonObject, what: str) -> Any:
    """Build a rule or an action from what may have come over the wire."""
    known = {field.name for field in fields(wanted)}
    if unknown := parts.keys() - known:
        raise FaultInvalid(f"{what} has no {min(unknown)!r}; it has {', '.join(sorted(known))}")
    for name, value in parts.items():
        expected = _TYPES.get(name, str)
        if value is not None and (not isinstance(value, expected) or isinstance(value, bool)):
            raise FaultInvalid(f"{name!r} of {what} cannot be {value!r}")
    try:
        return wanted(**parts)
    except TypeError as error:
        raise FaultInvalid(f"{what}: {error}") from error
