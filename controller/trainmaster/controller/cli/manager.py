"""`trainmaster manager`: the controller, with the flags of the Go manager."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import structlog

from trainmaster.controller.configuration import Configuration, ConfigurationInvalid, load_configuration
from trainmaster.controller.features import UnknownFeature, enabled_features, parse_feature_gates
from trainmaster.controller.kube.configuration import ConfigurationError, load_cluster_access
from trainmaster.controller.kube.electing import LeaseLost
from trainmaster.controller.logs import configure_logs
from trainmaster.controller.manager import Manager
from trainmaster.controller.serving import AddressInUse
from trainmaster.metrics.plugins import observe_call
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins

log = structlog.get_logger(__name__)

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "manager",
        help="run the controller",
        description="Run the controller against the cluster of a kubeconfig, or the one it runs in.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file; default: built-in defaults")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, the cluster it runs in, ~/.kube/config"
    )
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,...", help="override the configuration file's gates"
    )
    logs = parser.add_argument_group("logging, as the Go manager spells it")
    logs.add_argument(
        "--zap-log-level", default="info", metavar="LEVEL", help="debug, info, error or a number (2 = debug)"
    )
    logs.add_argument("--zap-encoder", choices=("json", "console"), help="default: console on a terminal, else json")
    logs.add_argument("--zap-devel", nargs="?", const="true", default="false", help="console output at debug level")
    logs.add_argument("--zap-stacktrace-level", help="accepted for compatibility; errors carry their traceback always")
    logs.add_argument("--zap-time-encoding", help="accepted for compatibility; times are RFC 3339 always")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the manager until it is told to stop; returns the exit code."""
    development = arguments.zap_devel.lower() == "true"
    level = _log_level(arguments.zap_log_level)
    if level is None:
        print(
            f"trainmaster: --zap-log-level {arguments.zap_log_level!r} is no level; use debug, info, error or a number",
            file=sys.stderr,
        )
        return 2
    configure_logs(
        level=logging.DEBUG if development else level,
        style=arguments.zap_encoder or ("console" if development else None),
    )
    try:
        configuration = load_configuration(arguments.config)
        enabled_features(configuration.feature_gates, parse_feature_gates(arguments.feature_gates))
        return asyncio.run(_run(configuration, arguments.kubeconfig))
    except (ConfigurationInvalid, UnknownFeature, ConfigurationError, PluginInvalid, AddressInUse, LeaseLost) as error:
        log.error("the manager cannot run", error=str(error))
        return 1


async def _run(configuration: Configuration, kubeconfig: str | None) -> int:
    plugins = load_plugins(disabled=frozenset(configuration.plugins.disabled), options=configuration.plugins.options)
    framework = Framework(plugins, observer=observe_call)
    access = await load_cluster_access(kubeconfig=kubeconfig)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await Manager(access, configuration, framework).run(stop)
    return 0


def _log_level(text: str) -> int | None:
    if text.isdigit():
        return logging.DEBUG if int(text) > 1 else logging.INFO
    return _LEVELS.get(text.lower())
