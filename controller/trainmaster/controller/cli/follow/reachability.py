"""Whether the informers of a command reach the cluster, and what they may not read, told once to whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.listwatch import ListWatchFailure
from trainmaster.controller.kube.cache.outages import Outages


class Reachability:
    """Tells of outages and refusals of some informers; their `on_state_change` and `on_return` lead here.

    Args:
        on_outage: Called with the reason when the cluster cannot be reached, and with None when it can again.
        on_refusal: Called with each new reason for which something cannot be read, and what to do about it.
    """

    def __init__(
        self, *, on_outage: Callable[[str | None], object], on_refusal: Callable[[Informer, str], object]
    ) -> None:
        self._on_outage = on_outage
        self._on_refusal = on_refusal
        self._away: set[Informer] = set()
        """The informers that cannot reach the cluster."""

        self._refusals: set[tuple[str, str]] = set()

    def changed(self, informer: Informer) -> None:
        """Take note of how an informer fares."""
        failures = [each.failure for each in informer.partitions.values() if each.failure is not None]
        outage = next((failure for failure in failures if failure.is_outage), None)
        if outage is None:
            self.returned(informer)
        else:
            if not self._away:
                self._on_outage(str(outage.error))
            self._away.add(informer)
        for failure in failures:
            refusal = informer.name, failure.text
            if not failure.is_outage and refusal not in self._refusals:
                self._refusals.add(refusal)
                self._on_refusal(informer, failure.text)

    def returned(self, informer: Informer) -> None:
        """Take note that the cluster answers; that it has something new to tell may take a while."""
        if informer not in self._away:
            return
        self._away.remove(informer)
        if not self._away:
            self._on_outage(None)
        for other in self._away:
            other.try_again()


class _ToldElsewhere(Outages):
    """Leaves nothing for informers to log."""

    def note(self, who: object, failure: ListWatchFailure | None) -> bool:  # noqa: ARG002 - it is nobody's to tell
        return False


TOLD_ELSEWHERE: Final = _ToldElsewhere()
