"""Why collections cannot be read at present, shared by their reflectors: which one logs it, and when to try again.

Guarantees:
- E-8: of a reason that concerns all collections alike (the API server is away, or refuses everything) the first
  reflector logs, its end as well; the others do at debug level. What a collection alone lacks, its definition or a
  permission, it logs itself.
- E-7: a kind that the server does not serve is looked for by one reflector, whatever the number of namespaces; the
  others wait until that one has found something else, for instance that its request is accepted.
- R-27: a reflector that waits because the server was away tries at once when another one is answered again; one that
  was told to wait does wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.controller.kube.cache.listwatch import CommonReason, ListWatchFailure
from trainmaster.controller.kube.clock import Clock, SystemClock


@dataclass(slots=True, eq=False)
class _Outage:
    """A reason that several reflectors may meet."""

    first: object
    """The reflector that met it first, and has not met anything else since."""

    over: asyncio.Event = field(default_factory=asyncio.Event)


class Outages:
    """The reasons for which collections cannot be read.

    Args:
        on_return: Called when the server answers one of them after it was away.
        logs: Whether reflectors log any of them above debug level.
    """

    def __init__(
        self, on_return: Callable[[], object] = lambda: None, *, logs: bool = True, clock: Clock | None = None
    ) -> None:
        self._on_return = on_return
        self._logs = logs
        self._clock = clock or SystemClock()
        self._outages: dict[CommonReason | None, _Outage] = {}
        self._away: set[object] = set()
        self._sleeping: set[asyncio.Future[None]] = set()

    def note(self, who: object, failure: ListWatchFailure | None) -> bool:
        """Record how a collection fares; returns whether `who` is the one that logs it."""
        reason = failure.common_reason if failure is not None else None
        self.end(who, but=reason)
        if failure is not None and failure.is_outage:
            self._away.add(who)
        elif who in self._away:
            self._away.discard(who)
            if failure is None:
                self.server_returned()
        is_first = reason is None or self._outages.setdefault(reason, _Outage(who)).first == who
        return is_first and self._logs

    def end(self, who: object, *, but: CommonReason | None = None) -> None:
        """Have those try who wait for what `who` finds out of a reason that it does not meet any more."""
        for known, outage in list(self._outages.items()):
            if outage.first == who and known != but:
                del self._outages[known]
                outage.over.set()

    def server_returned(self) -> None:
        """Have everybody who waits because the server was away try at once."""
        for each in self._sleeping:
            each.cancel()
        self._on_return()

    async def wait(self, who: object, failure: ListWatchFailure, delay: float) -> None:
        """Wait before the next try: `delay` seconds, or until another reflector has found that there is reason to."""
        if failure.is_outage:
            sleeping = asyncio.ensure_future(self._clock.sleep(delay))
            self._sleeping.add(sleeping)
            try:
                await asyncio.wait({sleeping})
            finally:
                self._sleeping.discard(sleeping)
                sleeping.cancel()
            return
        outage = self._outages.get(failure.common_reason) if failure.is_not_served else None
        if outage is None or outage.first == who:
            await self._clock.sleep(delay)
        else:
            await outage.over.wait()
