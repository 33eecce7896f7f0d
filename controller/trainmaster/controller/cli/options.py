"""Options and errors that the commands for files have in common."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainmaster.controller.cli.printers import complain
from trainmaster.controller.feature_gates import UnknownFeature, enabled_features, parse_feature_gates
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.calls import Observer
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.podgroup import GangScheduler, gang_scheduler

if TYPE_CHECKING:
    from trainmaster.controller.configuration import EffectiveConfiguration

WRONG_USE = 2

UNKNOWN_AUTHORITY: Final = "<ca.crt of the webhook certificate>\n"
"""In place of the certificates by which trainers know the status server; only the controller has them."""


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


def add_files_option(parser: argparse.ArgumentParser) -> None:
    """Add `-f`."""
    parser.add_argument(
        "-f",
        "--filename",
        dest="files",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML or JSON, any number of objects; a directory; - is standard input. May be repeated",
    )


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add `-f`, `--namespace`, `--config`, `--feature-gates` and `--traceback`."""
    add_files_option(parser)
    parser.add_argument("-n", "--namespace", help="for objects that name none")
    add_configuration_options(parser)
    add_traceback_option(parser)


def add_configuration_options(parser: argparse.ArgumentParser, *, default: str = "built-in defaults") -> None:
    """Add `--config` and `--feature-gates`.

    Args:
        parser: Of the command.
        default: What the controller is taken to run with if `--config` is not given, for the help text.
    """
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="configuration file of the controller, or a directory of such files (*.yaml). May be repeated: files are "
        f"merged in order, those of a directory in that of their names; default: {default}",
    )
    add_feature_gates_option(parser)


def add_feature_gates_option(parser: argparse.ArgumentParser) -> None:
    """Add `--feature-gates`."""
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,...", help="override the configuration file's gates"
    )


def add_traceback_option(parser: argparse.ArgumentParser) -> None:
    """Add `--traceback`."""
    parser.add_argument(
        "--traceback", action="store_true", help="print where in its code a plugin has failed, for its author"
    )


def load_framework(arguments: argparse.Namespace) -> Framework:
    """Load the plugins, as the controller with this configuration and these feature gates does.

    The authority of the status server is known to the controller alone: `UNKNOWN_AUTHORITY` is in its place.

    Raises:
        CommandError: They, the configuration or the gates cannot be used.
    """
    try:
        gates = parse_feature_gates(arguments.feature_gates)
        if not arguments.config and not any(gates.values()):
            enabled_features(gates)
            return Framework(load_plugins(), observer=_observer(arguments))
        return _configured(arguments)
    except (PluginInvalid, UnknownFeature) as error:
        raise CommandError(str(error)) from error


def load_jobs(arguments: argparse.Namespace) -> tuple[Sequence[JobKind], GangScheduler | None]:
    """Load the kinds of jobs of `kubeflow.org/v1` and their gang scheduler, as the controller so configured does.

    Raises:
        CommandError: They, or the configuration, cannot be used.
    """
    try:
        if not arguments.config:
            return load_job_kinds(), None
        from trainmaster.controller.job_kinds import job_kinds  # noqa: PLC0415 - as below

        configuration = effective_of(arguments).configuration
        return job_kinds(configuration), gang_scheduler(configuration.training_operator.gang_scheduler_name)
    except PluginInvalid as error:
        raise CommandError(str(error)) from error


def effective_of(arguments: argparse.Namespace) -> EffectiveConfiguration:
    """Return the configuration that a controller with the same files and feature gates has.

    Raises:
        CommandError: It cannot be used.
    """
    from trainmaster.controller.configuration import (  # noqa: PLC0415 - costs time that most do not need
        ConfigurationInvalid,
        effective_configuration,
    )

    try:
        return effective_configuration(*arguments.config, feature_gates=arguments.feature_gates)
    except ConfigurationInvalid as error:
        raise CommandError(str(error)) from error


def plugin_options_in_effect(effective: EffectiveConfiguration) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of all plugins, with those that the controller itself gives to one of ours."""
    if not effective.features[TRAIN_JOB_STATUS_GATE]:
        return effective.configuration.plugins.options
    from trainmaster.controller.statusserver.server import plugin_options  # noqa: PLC0415 - as above

    return plugin_options(effective.configuration, authority=lambda: UNKNOWN_AUTHORITY)


def _configured(arguments: argparse.Namespace) -> Framework:
    return framework_of(effective_of(arguments), _observer(arguments))


def framework_of(effective: EffectiveConfiguration, observer: Observer | None = None) -> Framework:
    """Load the plugins as a controller with this configuration does.

    Raises:
        PluginInvalid: They cannot be used.
    """
    from trainmaster.controller.plugins.loading import load  # noqa: PLC0415 - as above

    settings = effective.configuration.plugins
    loaded = load(settings, options=plugin_options_in_effect(effective), features=effective.open_features)
    for error in loaded.failed.values():
        print(f"trainmaster: warning: left out, as plugins.onLoadError says: {error}", file=sys.stderr)
    for text in loaded.unknown_names():
        print(f"trainmaster: warning: {text}", file=sys.stderr)
    return Framework(
        loaded.plugins,
        failure_policies=settings.failure_policy,
        not_loaded=loaded.failed,
        observer=observer,
    )


def _observer(arguments: argparse.Namespace) -> Observer | None:
    """Return who prints the tracebacks of plugins, each once, if they are asked for."""
    if not getattr(arguments, "traceback", False):
        return None
    printed: set[str] = set()

    def observe(plugin: str, phase: str, seconds: float, error: BaseException | None) -> None:  # noqa: ARG001 - the protocol's
        if error is None or isinstance(error, Rejected):
            return
        text = "".join(traceback.format_exception(error))
        if text not in printed:
            printed.add(text)
            print(f"trainmaster: plugin {plugin} failed in {phase}:\n{text}", end="", file=sys.stderr)

    return observe


def reporting_errors(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Have a command that cannot do its work say so in one line, and exit with 2."""

    def reporting(arguments: argparse.Namespace) -> int:
        try:
            return run(arguments)
        except CommandError as error:
            if getattr(arguments, "traceback", False) and isinstance(error.__cause__, PluginInvalid):
                traceback.print_exception(error.__cause__.__cause__ or error.__cause__, file=sys.stderr)
            return complain(error, WRONG_USE)

    return reporting
