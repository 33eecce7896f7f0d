"""Plugins and kinds of jobs, loaded as the controller with the configuration of a command line loads them."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from trainmaster.controller.cli.options import CommandError
from trainmaster.controller.feature_gates import UnknownFeature, enabled_features, parse_feature_gates
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.calls import Observer
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.framework.loader import unknown_names
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.podgroup import GangScheduler, gang_scheduler

if TYPE_CHECKING:
    from trainmaster.controller.configuration import EffectiveConfiguration

UNKNOWN_AUTHORITY: Final = "<ca.crt of the webhook certificate>\n"
"""In place of the certificates by which trainers know the status server; only the controller has them."""


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
        return framework_of(effective_of(arguments), _observer(arguments))
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
    for text in unknown_names(loaded.plugins, loaded.installed):
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
