"""`cluster up`: running a cluster in the foreground, until a signal ends it.

A signal is obeyed at any moment: what was started by then is stopped, and the next start finds nothing in its way.

The log has one readable line an event, in a file that does not grow without limit.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog

from trainmaster.devcluster.cli.starting import STOP_SIGNALS, prepare_start, print_problem, print_remedy, print_usage
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.garbage_collection import limit_passes
from trainmaster.devcluster.manager.health import CRASHING, READY, ManagerHealth
from trainmaster.devcluster.settings import ClusterSettings

_LEVEL = logging.INFO
_SIZE_LIMIT = 10 * 2**20


class _LogFile(RotatingFileHandler):
    """Loses what a full disk has no room for; the terminal of a user is no place for it."""

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Go on."""


def configure_logging(path: Path) -> None:
    """Write the logs of structlog and of the standard library to a file."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVEL),
        cache_logger_on_first_use=True,
    )
    handler = _LogFile(path, maxBytes=_SIZE_LIMIT, backupCount=1, encoding="utf-8")
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("trainmaster").setLevel(_LEVEL)


def run_foreground(settings: ClusterSettings) -> int:
    """Run the cluster until a signal ends it; returns the exit code."""
    state = settings.state
    prepare_start(settings)
    with state.in_use():
        configure_logging(state.log)
    limit_passes()
    asyncio.run(_run(settings))
    return 0


async def _run(settings: ClusterSettings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.create_task(stop.wait())
    cluster = Cluster(settings)
    try:
        await _run_until(stopped, cluster, settings)
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)  # a second Ctrl-C is for somebody who does not want to wait
        stopped.cancel()
        if stop.is_set():
            print("Stopping.", flush=True)
        await cluster.stop()


async def _run_until(stopped: asyncio.Task[bool], cluster: Cluster, settings: ClusterSettings) -> None:
    """Run the cluster until it is stopped or a part of it fails."""
    starting = asyncio.create_task(cluster.start())
    await _first(starting, stopped)
    if stopped.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)  # how far it came is of no interest any more
        return
    starting.result()
    failed = asyncio.create_task(cluster.failure())
    reported = asyncio.create_task(_report_start(cluster, settings))
    reporting = None
    try:
        await _first(failed, stopped, reported)
        if reported.done():
            reported.result()
            reporting = asyncio.create_task(_report_changes(cluster.health))
            await _first(failed, stopped)
        if failed.done():
            failed.result()
    finally:
        for task in (failed, reported, reporting):
            if task is not None:
                task.cancel()


async def _first(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of them is done."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _report_start(cluster: Cluster, settings: ClusterSettings) -> None:
    """Wait until it is known how the start went, and print it.

    Without its manager the cluster runs on: the API server, and all that is in it, can still be looked at, and who
    started it in the foreground reads this.
    """
    manager = await cluster.wait_ready()
    problem = manager is not None and manager.phase != READY
    if manager is not None and problem:
        print_remedy(manager, settings)
    print_usage(cluster.record, settings.state, word="runs" if problem else "is ready")
    print("Press Ctrl-C to stop it; what is in it stays.", flush=True)


async def _report_changes(health: ManagerHealth) -> None:
    """Print when the manager begins to crash, and when it recovers."""
    while True:
        if health.status.phase != READY:
            await health.until(lambda status: status.phase == READY)
            print("trainmaster: the manager of the cluster runs again", file=sys.stderr, flush=True)
        print_problem(await health.until(lambda status: status.phase == CRASHING))
