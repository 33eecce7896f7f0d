"""Options and errors that the commands for files have in common."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from trainmaster.controller.cli.printers import BAD_INPUT, complain
from trainmaster.runtime.names import dns_label

MANAGER_NAMESPACE: Final = "kubeflow"
"""Where our manifests install the manager, as the original's do."""


class CommandError(Exception):
    """The command cannot do its work: one line says why."""


def read_token(path: Path | None) -> str:
    """Return the token in the file of `--token-file`; empty if there is no such option.

    Raises:
        CommandError: There is none in it.
    """
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--token-file {path} cannot be read: {error}") from error
    if not token or not token.isascii() or any(character.isspace() for character in token):
        raise CommandError(f"--token-file {path} has no token in it")
    return token


def refuse_bad_name(option: str, name: str, problems: Callable[[str], Sequence[str]] = dns_label) -> None:
    """Refuse what cannot be a name.

    Raises:
        CommandError: There are problems with it.
    """
    if found := problems(name):
        raise CommandError(f"{option} {name!r} cannot be a name: {', '.join(found)}")


def add_kubeconfig_option(parser: argparse.ArgumentParser) -> None:
    """Add `--kubeconfig`."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the cluster; default: $KUBECONFIG, the running embedded one, else as kubectl",
    )


def add_files_option(parser: argparse.ArgumentParser) -> None:
    """Add `-f`."""
    parser.add_argument(
        "-f",
        "--filename",
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML or JSON file, a directory, or - for standard input. May be repeated",
    )


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add `-f`, `--namespace`, `--config`, `--feature-gates` and `--traceback`."""
    add_files_option(parser)
    parser.add_argument("-n", "--namespace", help="for objects that name none")
    add_configuration_options(parser)
    add_traceback_option(parser)


def add_configuration_options(parser: argparse.ArgumentParser, *, default: str = "built-in defaults") -> None:
    """Add `--config` and `--feature-gates`."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help=f"configuration file, or a directory of *.yaml; may be repeated; merged in order; default: {default}",
    )
    add_feature_gates_option(parser)


def add_feature_gates_option(parser: argparse.ArgumentParser) -> None:
    """Add `--feature-gates`."""
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,...", help="override the configuration file's gates"
    )


def add_traceback_option(parser: argparse.ArgumentParser) -> None:
    """Add `--traceback`."""
    parser.add_argument("--traceback", action="store_true", help="print the traceback of a plugin that fails")


def reporting_errors(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Have a command that cannot do its work say so in one line, and exit with 2."""

    def reporting(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except CommandError as error:
            if getattr(arguments, "traceback", False) and error.__cause__ is not None:
                traceback.print_exception(error.__cause__.__cause__ or error.__cause__, file=sys.stderr)
            return complain(error, BAD_INPUT)

    return reporting
