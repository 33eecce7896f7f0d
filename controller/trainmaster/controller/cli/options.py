"""Options and errors that the commands for files have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins

WRONG_USE = 2


class CommandError(Exception):
    """The command cannot do its work: one line says why."""


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add `-f`, `--namespace` and `--config`."""
    parser.add_argument(
        "-f",
        "--filename",
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML or JSON, any number of objects; a directory; - is standard input. May be repeated",
    )
    parser.add_argument("-n", "--namespace", help="for objects that name none")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of the controller: its plugins")


def load_framework(configuration: Path | None) -> Framework:
    """Load the plugins, as the controller with this configuration does.

    Raises:
        CommandError: They, or the configuration, cannot be used.
    """
    try:
        if configuration is None:
            return Framework(load_plugins())
        from trainmaster.controller.configuration import (  # noqa: PLC0415 - costs time that most do not need
            ConfigurationInvalid,
            load_configuration,
        )

        try:
            plugins = load_configuration(configuration).plugins
        except ConfigurationInvalid as error:
            raise CommandError(str(error)) from error
        return Framework(load_plugins(disabled=frozenset(plugins.disabled), options=plugins.options))
    except PluginInvalid as error:
        raise CommandError(str(error)) from error


def reporting_errors(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Have a command that cannot do its work say so in one line, and exit with 2."""

    def reporting(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except CommandError as error:
            for line in str(error).splitlines():
                print(f"trainmaster: {line}", file=sys.stderr)
            return WRONG_USE

    return reporting
