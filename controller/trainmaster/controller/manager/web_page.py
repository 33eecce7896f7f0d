"""The web page in the manager: what it shows comes from the caches, and from the history if one is kept."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.endpoints import AddPages
from trainmaster.controller.manager.history import ManagerHistory, jobsets_of
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.controller.server.filters import DelegatingAuth
from trainmaster.controller.web.handlers import add_web_handlers
from trainmaster.controller.web.jobs import Jobs


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
        configuration: The configuration file.
        caches: Where TrainJobs come from, and what they became.
        jobs: The informers of other kinds of jobs, by kind.
        history: What has ended; None if no history is kept.
        clock: The time.
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
