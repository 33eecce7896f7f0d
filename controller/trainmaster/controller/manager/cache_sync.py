"""Whether the caches are filled, and of which namespaces.

Guarantees:
- E-7: an optional kind that the server refuses holds nobody up. Of a kind of plugins that it does not serve, or that
  the manager may not read, there are no objects, so controllers may begin, and tell whose TrainJobs need it; the
  manager is ready, unless the kind is the workload of every TrainJob. Which plugins need it is told in the log, and
  beside the readiness. When a kind is served that was not, `on_served` is called.
- Without the controller's own kinds there is nothing to do, unless something else is served (`do_without_own`): then
  that goes on, and their absence is told.
- Of named namespaces one in which something may not be read is left out, and told of once, as long as there is another
  one; it is served as soon as everything in it can be read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import structlog

from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.reflector import Reflector
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.runtime.listers import Watch

log = structlog.get_logger(__name__)

_REQUEST: Final = re.compile(r"^GET \S+: ")
"""With which the texts of failed requests begin; the rest is the same for all kinds if the API server is away."""


class CacheSync:
    """Knows how all informers fare.

    Args:
        namespaces: Those that are read; empty: all of them at once.
        own: The resources that the controller itself needs: without those there is nothing to do.
        on_served: Called when the server serves a kind that it did not.
    """

    def __init__(self, namespaces: Sequence[str], *, own: Collection[str], on_served: Callable[[], object]) -> None:
        self._namespaces = namespaces
        self._own = own
        self._needs_own = True
        """Whether there is nothing else to do."""

        self._on_served = on_served
        self._informers: list[Informer] = []
        self._watches: dict[Informer, Sequence[Watch]] = {}
        self._changed = asyncio.Event()
        self._absent: set[Informer] = set()
        self._left_out: set[str] = set()

    def add(self, informer: Informer, watches: Sequence[Watch]) -> None:
        """Take an informer into account, and what the plugins declared for which it reads."""
        self._informers.append(informer)
        self._watches[informer] = watches

    def do_without_own(self) -> None:
        """Wait no longer for kinds of the controller itself that the server does not serve: there are others to do."""
        self._needs_own = False
        if missing := self._missing_own():
            log.warning(
                "TrainJobs are not served, because the cluster does not serve all of their kinds; other jobs are",
                missing=[each.name for each in missing],
                hint="install their definitions, if there are to be TrainJobs; it goes on by itself",
            )
        self._wake()

    def note(self, informer: Informer) -> None:
        """Take note that an informer fares otherwise than before."""
        self._wake()
        if not informer.store.is_served:
            if informer not in self._absent:
                self._absent.add(informer)
                self._tell_of_absence(informer)
        elif informer in self._absent:
            self._absent.discard(informer)
            if self._plugins_in_need(informer):
                log.info("a kind that plugins need is served now", resource=informer.name)
            self._on_served()
        for namespace in self._namespaces:
            if namespace in informer.reflectors:
                self._tell_of(namespace, informer.reflectors[namespace])

    async def wait(self) -> None:
        """Wait until controllers may begin."""
        await self._wait_until(self._may_begin)

    async def wait_for_rest_of(self, namespace: str, last: Informer) -> None:
        """Wait until everything of a namespace is there but for what the informer `last` reads."""
        await self._wait_until(partial(self._is_filled, namespace, but=last))

    def missing(self) -> list[str]:
        """The resources whose caches have not synced and should have, with the reason if there is one: once for all."""
        left_out = {each for each in self._namespaces if self._is_left_out(each)}
        if len(left_out) == len(self._namespaces):
            left_out = set()
        by_reason: dict[str, list[str]] = {}
        for informer in self._informers:
            if informer in self._absent and not self._is_required(informer):
                continue
            if not all(each.is_ready or name in left_out for name, each in informer.reflectors.items()):
                by_reason.setdefault(_REQUEST.sub("", informer.failure or ""), []).append(informer.name)
        return [", ".join(names) + (f" ({reason})" if reason else "") for reason, names in by_reason.items()]

    def waited_for(self) -> list[str]:
        """The kinds that some TrainJobs wait for, while the manager is ready: who needs them, and what to do."""
        return [
            f"{informer.name} for the TrainJobs of {', '.join(plugins)} ({_REQUEST.sub('', informer.failure or '')})"
            for informer in self._informers
            if informer in self._absent
            and not self._is_required(informer)
            and (plugins := self._plugins_in_need(informer))
        ] + [
            f"{informer.name} for TrainJobs ({_REQUEST.sub('', informer.failure or '')})"
            for informer in self._missing_own()
            if not self._needs_own
        ]

    def _missing_own(self) -> list[Informer]:
        return [each for each in self._informers if each.resource.name in self._own and each in self._absent]

    def _is_required(self, informer: Informer) -> bool:
        if not self._needs_own and self._missing_own():
            return False  # nothing is required for TrainJobs of which there can be none
        return informer.resource.name in self._own or any(watch.required for watch in self._watches[informer])

    def _plugins_in_need(self, informer: Informer) -> list[str]:
        return [watch.declared_by for watch in self._watches[informer] if not watch.optional]

    def _tell_of_absence(self, informer: Informer) -> None:
        plugins = self._plugins_in_need(informer)
        if plugins and not self._is_required(informer):
            log.warning(
                "a kind that plugins need cannot be read, so the TrainJobs that they serve wait for it",
                kind=informer.resource.kind,
                resource=informer.name,
                plugins=plugins,
                reason=_REQUEST.sub("", informer.failure or ""),
                hint="install its definition or grant the right, or disable the plugins; it goes on by itself",
            )

    def _may_begin(self) -> bool:
        # Of all namespaces, or of those that only a plugin chose.
        others = {name for informer in self._informers for name in informer.reflectors}.difference(self._namespaces)
        if not all(map(self._is_filled, others)):
            return False
        filled = [each for each in self._namespaces if self._is_filled(each)]
        rest = set(self._namespaces).difference(filled)
        return not rest or (bool(filled) and all(map(self._is_left_out, rest)))

    def _is_filled(self, namespace: str | None, *, but: Informer | None = None) -> bool:
        """Whether everything is there that is read of a namespace; of None: what is not read by namespace."""
        return all(
            each.is_ready or (each.is_absent and not (self._needs_own and informer.resource.name in self._own))
            for informer in self._informers
            if informer is not but and (each := informer.reflectors.get(namespace)) is not None
        )

    def _is_left_out(self, namespace: str) -> bool:
        return any(
            _is_denied(each) for informer in self._informers if (each := informer.reflectors.get(namespace)) is not None
        )

    def _tell_of(self, namespace: str, reflector: Reflector) -> None:
        """Tell that a namespace is left out, or that it is served after all."""
        if namespace not in self._left_out:
            if _is_denied(reflector) and reflector.failure is not None:
                self._left_out.add(namespace)
                log.warning(
                    "a namespace is not served, because something in it may not be read",
                    namespace=namespace,
                    reason=reflector.failure.text,
                    hint="there may be no such namespace, or no Role in it; it is tried again",
                )
        elif self._is_filled(namespace):
            self._left_out.discard(namespace)
            log.info("the namespace is served now", namespace=namespace)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()


def _is_denied(reflector: Reflector) -> bool:
    """Whether it cannot be read for want of a permission, and has never been, and nobody can do without."""
    if reflector.is_absent:
        return False
    return not reflector.is_ready and reflector.failure is not None and isinstance(reflector.failure.error, Forbidden)
