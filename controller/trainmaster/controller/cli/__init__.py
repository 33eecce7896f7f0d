"""The command line: `trainmaster <command>`.

Commands are found under the entry-point group `trainmaster.commands`, beside the two that the controller brings itself,
so that the embedded cluster can offer its own without being imported here. An entry point is a function that gets the
subparsers of argparse, adds one, and sets its default `run` to a function of the parsed arguments that returns the exit
code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

from trainmaster.controller.cli import manager, run
from trainmaster.runtime.version import __version__

COMMANDS_GROUP = "trainmaster.commands"

Command = Callable[[Any], None]
"""Adds one command to the subparsers of argparse."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="trainmaster",
        description="Distributed training on Kubernetes: the controller, and a cluster for laptops.",
    )
    parser.add_argument("--version", action="version", version=f"trainmaster {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (manager.command, run.command):
        command(commands)
    _add_offered(commands)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away, for instance `| head`.
        return 141
    return code


def _add_offered(commands: Any) -> None:
    """Add the commands of other distributions; one that is broken costs itself only."""
    for point in sorted(entry_points(group=COMMANDS_GROUP), key=lambda point: point.name):
        try:
            command: Command = point.load()
            command(commands)
        except Exception as error:
            print(f"trainmaster: no command {point.name!r}: {point.value}: {error}", file=sys.stderr)
