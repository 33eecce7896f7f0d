"""`trainmaster manager`: the controller, with the flags of the Go manager and of the Training Operator."""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

import structlog

from trainmaster.controller.cli.config.flags import (
    add_training_operator_flags,
    notices_of_flags,
    overrides_of_environment,
    overrides_of_flags,
)
from trainmaster.controller.cli.options import add_configuration_options
from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    EffectiveConfiguration,
    Override,
    effective_configuration,
)
from trainmaster.controller.configuration.reload import ConfigurationReloader
from trainmaster.controller.debugging.stacks import stack_dumps_on_signal
from trainmaster.controller.history.postgres import PostgresMissing
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.leaderelection.elector import LeaseLost
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.controller.log_config import configure_logs, set_log_level
from trainmaster.controller.manager import process
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.manager.plugin_options import PluginOptions
from trainmaster.controller.manager.process import background_task, end_process, monitored_loop
from trainmaster.controller.manager.runnables import RunnableFailed
from trainmaster.controller.operator_namespace import pod_namespace
from trainmaster.controller.plugins.guard import guard_of
from trainmaster.controller.plugins.loading import load
from trainmaster.controller.plugins.observer import PluginCallObserver
from trainmaster.controller.server.server import AddressInUse
from trainmaster.controller.statusserver.server import StatusServer
from trainmaster.controller.tracing.installed import new_tracing
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.framework import Framework, PluginInvalid
from trainmaster.runtime.framework.calls import Observer
from trainmaster.runtime.version import __version__

log = structlog.get_logger(__name__)

STOP_AT_MOST: Final = 29.0
"""Seconds from the signal to the end; Kubernetes kills a pod after 30, without a word in its log."""

_NOTICE: Final = "an option has no effect, or an unwanted one"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR, "panic": logging.CRITICAL}


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "manager",
        description="Run the controller against the cluster of a kubeconfig, or the one it runs in.",
    )
    add_configuration_options(parser)
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, the cluster it runs in, ~/.kube/config"
    )
    logs = parser.add_argument_group("logging, as the Go manager spells it")
    logs.add_argument(
        "--zap-log-level",
        metavar="LEVEL",
        help="debug, info, error, panic or a number (2 = debug); default: logging.verbosity of the configuration file",
    )
    logs.add_argument("--zap-encoder", choices=("json", "console"), help="default: console on a terminal, else json")
    logs.add_argument(
        "--zap-devel",
        nargs="?",
        const="true",
        default="false",
        type=str.lower,
        choices=("true", "false"),
        help="console output at debug level",
    )
    logs.add_argument("--zap-stacktrace-level", choices=("error",), help="errors carry their traceback, nothing else")
    logs.add_argument(
        "--zap-time-encoding", choices=("iso8601", "rfc3339", "rfc3339nano"), help="times are RFC 3339 always"
    )
    add_training_operator_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the manager until it is told to stop; returns the exit code."""
    development = arguments.zap_devel == "true"
    level = _log_level(arguments.zap_log_level or "info")
    if level is None:
        print(
            f"trainmaster: --zap-log-level {arguments.zap_log_level!r} is no level; "
            "use debug, info, error, panic or a number",
            file=sys.stderr,
        )
        return 2
    configure_logs(
        colors=True,
        level=logging.DEBUG if development else level,
        style=arguments.zap_encoder or ("console" if development else None),
    )
    try:
        overrides = [*overrides_of_flags(arguments), *overrides_of_environment(os.environ)]
        effective = effective_configuration(
            *arguments.config, feature_gates=arguments.feature_gates, overrides=overrides
        )
        for notice in [*effective.notices, *notices_of_flags(effective.overrides, effective.configuration)]:
            log.warning(_NOTICE, option=notice.path, reason=notice.message)
        apply = functools.partial(_apply, flags_win=development or arguments.zap_log_level is not None)
        apply(effective.configuration)
        return process.run_event_loop(_run(effective, arguments, overrides, apply=apply))
    except (ConfigurationInvalid, ConfigurationError, AddressInUse, PostgresMissing) as error:
        log.error("the manager cannot run", error=str(error))
    except PluginInvalid as error:
        # Its author needs the traceback of what it raised, if it did.
        log.error("the manager cannot run", error=str(error), exc_info=error.__cause__)
    except LeaseLost:
        pass  # the elector has told of it
    except RunnableFailed as error:
        log.error("the manager failed and ends", error=str(error), exc_info=error.__cause__)
    return 1


async def _run(
    effective: EffectiveConfiguration,
    arguments: argparse.Namespace,
    overrides: Sequence[Override],
    *,
    apply: Callable[[Configuration], None],
) -> int:
    configuration, gates = effective.configuration, effective.open_features
    status_server = StatusServer(configuration) if TRAIN_JOB_STATUS_GATE in gates else None
    loaded = load(
        configuration.plugins,
        options=configuration.plugins.options if status_server is None else status_server.plugin_options(),
        features=gates,
    )
    loaded.publish()
    guard = guard_of(configuration.plugins)
    tracing = new_tracing(configuration.tracing)
    observer: Observer = PluginCallObserver()
    framework = Framework(
        loaded.plugins,
        observer=observer if tracing is None else tracing.plugin_calls(observer),
        guard=guard,
        failure_policies=configuration.plugins.failure_policy,
        not_loaded=loaded.failed,
    )
    plugin_options = PluginOptions(framework, configuration.plugins.options)
    kinds = job_kinds(configuration)
    rest_config = await load_config(kubeconfig=arguments.kubeconfig)
    log.info(
        "starting",
        version=__version__,
        configuration=", ".join(map(str, arguments.config)) or "built-in defaults",
        pod=os.environ.get("POD_NAME") or socket.gethostname(),
        namespace=pod_namespace() or rest_config.namespace,
        server=rest_config.server,
        credentials=rest_config.source,
        event_loop=process.name_of_event_loop(asyncio.get_running_loop()),
        plugins=framework.names(),
        job_kinds=[each.kind for each in kinds],
        feature_gates=sorted(gates),
    )
    process.unmap_freed_blocks()
    process.switch_threads_often()
    process.freeze()  # nothing is late yet
    stop = asyncio.Event()
    with _stopping_on_signals(stop), stack_dumps_on_signal():
        async with (
            tracing or nullcontext(),
            monitored_loop(),
            background_task(process.collect_periodically(), name="heap"),
            _following(arguments, configuration, overrides, apply, plugin_options),
        ):
            manager = Manager(
                Setup(
                    rest_config,
                    configuration,
                    framework,
                    status_server=status_server,
                    job_kinds=kinds,
                    tracing=tracing,
                ),
                on_caches_synced=process.freeze,
            )
            manager.healthz.add_readyz_check("plugins", lambda: None, note=lambda: guard.detail(loaded.failed))
            await manager.run(stop)
    return 0


@asynccontextmanager
async def _following(
    arguments: argparse.Namespace,
    configuration: Configuration,
    overrides: Sequence[Override],
    apply: Callable[[Configuration], None],
    plugin_options: PluginOptions,
) -> AsyncIterator[None]:
    """Follow the configuration files, if there are any."""

    def put_in_effect(new: Configuration) -> None:
        plugin_options.reload(new.plugins.options)  # first: it may refuse all of it
        apply(new)

    if not arguments.config:
        yield
        return
    reloader = ConfigurationReloader(
        arguments.config,
        configuration,
        feature_gates=arguments.feature_gates,
        overrides=overrides,
        apply=put_in_effect,
        reloads=plugin_options.reloads,
    )
    async with background_task(reloader.run(), name="configuration"):
        yield


def _apply(configuration: Configuration, *, flags_win: bool) -> None:
    """Put the options in effect that may change while the manager runs."""
    verbosity = configuration.logging.verbosity
    if not flags_win:
        set_log_level(_level_of(verbosity))
    elif verbosity:
        reason = "no effect: --zap-log-level or --zap-devel is given"
        log.warning(_NOTICE, option="logging.verbosity", reason=reason)


@contextmanager
def _stopping_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on the first signal; the second one ends the process, and so does a stop that takes too long."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    overdue = threading.Timer(STOP_AT_MOST, end_process, [f"the manager did not stop within {STOP_AT_MOST:g} s"])
    overdue.daemon = True

    def tell() -> None:
        log.info("told to stop; a second signal ends the process at once")
        overdue.start()
        stop.set()

    def handle(_number: int, _frame: object) -> None:
        # The system ends the process on the next signal, whatever this thread is stuck in by then.
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(tell)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        overdue.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_level(text: str) -> int | None:
    if text.isdigit():
        return _level_of(int(text))
    return _LEVELS.get(text.lower())


def _level_of(verbosity: int) -> int:
    return logging.DEBUG if verbosity > 1 else logging.INFO
