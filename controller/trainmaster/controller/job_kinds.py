"""The kinds of jobs that a configuration has served."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint

from trainmaster.controller.configuration import Configuration
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds


def job_kinds(configuration: Configuration, points: Iterable[EntryPoint] | None = None) -> list[JobKind]:
    """Load the kinds of jobs that are served; none if they are switched off.

    Args:
        configuration: The configuration file.
        points: The entry points that there are; default is everything installed.

    Raises:
        PluginInvalid: A kind does not load, or does not fit the interface.
    """
    settings = configuration.training_operator
    if not settings.enabled:
        return []
    return load_job_kinds(
        points,
        enabled=settings.enable_scheme,
        options=settings.options,
        cluster_domain=settings.cluster_domain,
    )
