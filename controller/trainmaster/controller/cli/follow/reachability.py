"""Whether the informers of a command reach the cluster, and what they may not read, reported once."""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.outages import Outages


class Reachability:
    """Reports outages and refusals of some informers, which call `changed` and share `outages`.

    Args:
        on_outage: Called with the reason when the cluster cannot be reached, and with None when it can again.
        on_refusal: Called with each new reason for which something cannot be read, and what to do about it.
    """

    def __init__(
        self, *, on_outage: Callable[[str | None], object], on_refusal: Callable[[Informer, str], object]
    ) -> None:
        self.outages = Outages(logs=False)
        self._on_outage = on_outage
        self._on_refusal = on_refusal
        self._away: set[Informer] = set()
        """The informers that cannot reach the cluster."""

        self._refusals: set[tuple[str, str]] = set()

    def changed(self, informer: Informer) -> None:
        """Take note of how an informer fares."""
        failures = [each.failure for each in informer.reflectors.values() if each.failure is not None]
        outage = next((failure for failure in failures if failure.is_outage), None)
        if outage is not None:
            if not self._away:
                self._on_outage(str(outage.error))
            self._away.add(informer)
        elif informer in self._away:
            self._away.remove(informer)
            if not self._away:
                self._on_outage(None)
        for failure in failures:
            refusal = informer.name, failure.text
            if not failure.is_outage and refusal not in self._refusals:
                self._refusals.add(refusal)
                self._on_refusal(informer, failure.text)
