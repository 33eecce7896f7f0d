"""What a manager serves beside its metrics: the history, which it also records, and the web page.

The recorder of the history runs while this process leads; its writer writes a moment longer, what was left; every
replica reads. The web page shows what is in the caches, and in the history if one is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

from aiohttp import web

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.configuration.types import History
from trainmaster.controller.history.handlers import NamespaceAccess, add_history_handlers
from trainmaster.controller.history.postgres import postgres_store
from trainmaster.controller.history.recorder import HistoryRecorder
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryReader, HistoryStore
from trainmaster.controller.history.writer import Bounds, HistoryWriter
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_value
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.server.filters import AddPages, DelegatingAuth
from trainmaster.controller.web.handlers import add_web_handlers
from trainmaster.controller.web.jobs import Jobs
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.jsontree import JsonObject

CLOSE_TIMEOUT: Final = 2.0
"""Seconds for what is not written yet when the manager ends; what is lost is recorded again by whoever leads next."""


class ManagerHistory:
    """The parts of the history.

    Raises:
        PostgresMissing: A database is configured, and nothing is installed to reach it with.
    """

    def __init__(
        self,
        configuration: Configuration,
        caches: Caches,
        jobs: Iterable[tuple[str, Informer]],
        *,
        clock: Clock,
    ) -> None:
        settings = configuration.history
        self._clock = clock
        self._writer = HistoryWriter(
            _store(settings),
            Bounds(records=settings.max_records, age=timedelta(seconds=duration_seconds(settings.max_age))),
            clock=clock,
        )
        self.reader = HistoryReader(_store(settings))
        """Reads what is recorded."""

        self._recorder = HistoryRecorder(
            self._writer,
            workloads=jobsets_of(caches),
            user_key=settings.user_annotation,
            namespaces=configuration.watch_namespaces,
            clock=clock,
        )
        for kind, informer in ((TRAINJOBS.kind, caches.trainjobs), *jobs):
            self._recorder.watch(kind, informer)

    def start(self) -> None:
        """Begin to write what is recorded."""
        self._writer.start()

    async def lead(self) -> None:
        """Record while this process leads, until cancelled."""
        await self._recorder.lead()

    def detail(self) -> str | None:
        """Say, to those who ask for details of readiness, why nothing is recorded; None if all is well."""
        return self._writer.problem

    def add_handlers(self, app: web.Application, auth: DelegatingAuth | None) -> None:
        """Serve the history."""
        add_history_handlers(app, self.reader, NamespaceAccess(auth), clock=self._clock)

    async def close(self) -> None:
        """End, after a moment for what is not written yet."""
        await asyncio.to_thread(self._writer.close, CLOSE_TIMEOUT)
        await self.reader.close()


def web_page(
    configuration: Configuration,
    caches: Caches,
    jobs: Iterable[tuple[str, Informer]],
    history: ManagerHistory | None,
    *,
    clock: Clock,
) -> AddPages:
    """Return what adds the pages to the metrics server.

    Args:
        history: What has ended; None if no history is kept.
    """
    shown = Jobs(
        [(TRAINJOBS.kind, caches.trainjobs), *jobs],
        workloads=jobsets_of(caches),
        reader=history.reader if history is not None else None,
        user_key=configuration.history.user_annotation,
        clock=clock,
    )

    def add(app: web.Application, auth: DelegatingAuth | None) -> None:
        add_web_handlers(app, shown, auth, clock=clock)

    return add


def jobsets_of(caches: Caches) -> Callable[[JsonObject], Iterable[JsonObject]]:
    """Return what finds the JobSets that a TrainJob controls."""
    found = caches.stores().get((JOBSET_API_VERSION, JOBSET_KIND))

    def jobsets(job: JsonObject) -> Iterable[JsonObject]:
        metadata = job["metadata"]
        owner = owner_value(metadata.get("namespace"), metadata["uid"])
        return () if found is None else found[1].by_index(OWNER_INDEX, owner)

    return jobsets


def _store(settings: History) -> HistoryStore:
    if settings.database_url_file:
        return postgres_store(Path(settings.database_url_file))
    return sqlite_store(Path(settings.file))
