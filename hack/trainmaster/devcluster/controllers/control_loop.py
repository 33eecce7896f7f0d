"""The control loop that every controller runs in: a work queue of keys, and a reconcile function.

- Level-triggered: an event only names an object to look at; any number of events for one key cause one more reconcile.
- An event that arrives while its key is being reconciled causes another reconcile afterwards.
- A reconcile that fails is repeated, after pauses that double up to a cap (exponential backoff); the other keys are not
  held up. Conflicts are part of normal life and logged as such; anything else is logged with its traceback. Nothing
  ends the loop but its cancellation.
- At start every existing object is offered as ADDED, so a restart of the process needs no memory of the past.
- Time is the injected clock, because deadlines are computed from time stamps of the API. `run_ready` does all that is
  due and returns: that is how tests drive controllers, without tasks and without waiting.

One task works on one key at a time: the API is in the same process, so there is nothing to gain from more.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.runtime.jsontree import JsonObject

_MAX_EXPONENT = 30  # beyond it every pause is longer than any sensible cap, and the power stays a small number


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """How long to wait before trying again."""

    base: float
    """Seconds after the first failure; 0: never any."""

    cap: float
    """The longest pause, in seconds."""

    def after(self, failures: int) -> float:
        """Return the seconds to wait after a number of failures in a row, which is at least one."""
        return min(self.base * float(2 ** min(failures - 1, _MAX_EXPONENT)), self.cap)


NO_BACKOFF = ExponentialBackoff(base=0.0, cap=0.0)
"""For tests, and for who wants every attempt at once."""


Reconcile = Callable[[ObjectKey], Awaitable[float | None]]
"""Brings one object closer to its desired state; may return seconds after which to look at it again."""

_BACKOFF = ExponentialBackoff(base=0.05, cap=30.0)
_LONGEST_SLEEP = 60.0  # the clock may be set; look at it at least once a minute

_log = structlog.get_logger(__name__)


class Controller(Protocol):
    """What the embedded cluster runs."""

    @property
    def loops(self) -> tuple[ControlLoop, ...]:
        """The control loops that make up the controller."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class ControlLoop:
    """Reconciles keys one after the other, in the order in which they became due.

    Args:
        name: Names the controller in the log.
        reconcile: Is called with each key that is due.
        api: Its store is watched, its clock counts.
        backoff: The pauses between the attempts of a reconcile that fails.
    """

    def __init__(self, name: str, reconcile: Reconcile, *, api: Api, backoff: ExponentialBackoff = _BACKOFF) -> None:
        self.name = name
        self._reconcile = reconcile
        self._api = api
        self._backoff = backoff
        self._watches: list[tuple[GroupResource | None, Callable[[Event], None]]] = []
        self._unsubscribe: list[Callable[[], None]] = []
        self._ready: dict[ObjectKey, None] = {}
        self._due: dict[ObjectKey, datetime] = {}
        self._timers: list[tuple[datetime, ObjectKey]] = []
        self._failures: dict[ObjectKey, int] = {}
        self._wakeup = asyncio.Event()
        self._log = _log.bind(controller=name)

    def watch(self, resource: GroupResource | None, handler: Callable[[Event], None]) -> None:
        """Call the handler for every change of a resource (None: of any) once the loop has started."""
        self._watches.append((resource, handler))

    def watch_keys(self, resource: GroupResource) -> None:
        """Reconcile every object of the resource that appears or changes, and its key once more when it is gone."""
        self.watch(resource, lambda event: self.add(event.key))

    def add(self, key: ObjectKey) -> None:
        """Reconcile the key as soon as possible."""
        self._due.pop(key, None)
        self._ready[key] = None
        self._wakeup.set()

    def add_after(self, key: ObjectKey, seconds: float) -> None:
        """Reconcile the key after a while, or earlier if it is already due earlier."""
        if key in self._ready:
            return
        due = self._api.clock() + timedelta(seconds=max(seconds, 0.0))
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, key))
        self._wakeup.set()

    @property
    def next_due(self) -> datetime | None:
        """The moment of the earliest delayed reconcile."""
        while self._timers and self._due.get(self._timers[0][1]) != self._timers[0][0]:
            heapq.heappop(self._timers)  # overtaken by an event or by an earlier timer
        return self._timers[0][0] if self._timers else None

    def start(self) -> None:
        """Subscribe to the store and offer what it already holds; without an await in between nothing can be missed."""
        for resource, handler in self._watches:
            self._unsubscribe.append(self._api.store.subscribe(resource, handler))
            for event in self._existing(resource):
                handler(event)

    def stop(self) -> None:
        """End the subscriptions."""
        while self._unsubscribe:
            self._unsubscribe.pop()()

    async def run(self) -> None:
        """Start, work until cancelled, stop."""
        self.start()
        try:
            while True:
                self._wakeup.clear()
                await self.run_ready()
                await self._sleep()
        finally:
            self.stop()

    async def run_ready(self) -> int:
        """Reconcile until nothing is due now; tells how many reconciles that took."""
        reconciled = 0
        self._collect_due()
        while self._ready:
            key = next(iter(self._ready))
            del self._ready[key]
            await self._process(key)
            reconciled += 1
            if reconciled % 16 == 0:
                await asyncio.sleep(0)  # in-process calls may never suspend; the server beside us needs its turn
            self._collect_due()
        return reconciled

    async def _process(self, key: ObjectKey) -> None:
        try:
            again = await self._reconcile(key)
        except StatusError as error:
            pause = self._record_failure(key)
            if error.reason == "Conflict":
                self._log.debug("reconcile met a conflict", key=_text(key), retry_in=pause)
            else:
                self._log.warning("reconcile was refused by the API", key=_text(key), error=str(error), retry_in=pause)
            self.add_after(key, pause)
        except Exception:
            # The border of the loop: whatever one object provokes must not stop the work on all others.
            pause = self._record_failure(key)
            self._log.exception("reconcile failed", key=_text(key), retry_in=pause)
            self.add_after(key, pause)
        else:
            self._failures.pop(key, None)
            if again is not None:
                self.add_after(key, again)

    def _record_failure(self, key: ObjectKey) -> float:
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._backoff.after(self._failures[key])

    def _collect_due(self) -> None:
        now = self._api.clock()
        while (due := self.next_due) is not None and due <= now:
            _, key = heapq.heappop(self._timers)
            del self._due[key]
            self._ready[key] = None

    async def _sleep(self) -> None:
        due = self.next_due
        seconds = _LONGEST_SLEEP if due is None else min((due - self._api.clock()).total_seconds(), _LONGEST_SLEEP)
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wakeup.wait()
        except TimeoutError:
            pass  # a timer is due

    def _existing(self, resource: GroupResource | None) -> list[Event]:
        # Two kinds may share one storage; each object is offered once.
        every = {kind.stored_as: None for kind in self._api.registry.kinds()}
        resources = list(every) if resource is None else [resource]
        return [
            Event("ADDED", key_of(each, record.object), record, None, record.revision)
            for each in resources
            for record in self._api.store.list(each)
        ]


class SingleLoopController:
    """The base of a controller that consists of one control loop, which its constructor makes."""

    _loop: ControlLoop

    @property
    def loops(self) -> tuple[ControlLoop, ...]:
        """The loop."""
        return (self._loop,)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()


def key_of(resource: GroupResource, obj: JsonObject) -> ObjectKey:
    """Return where the object lives."""
    metadata = obj["metadata"]
    return ObjectKey(resource, metadata.get("namespace", ""), metadata["name"])


def _text(key: ObjectKey) -> str:
    return f"{key.resource} {key.namespace}/{key.name}" if key.namespace else f"{key.resource} {key.name}"
