"""What is wrong with the kinds of jobs of a configuration, all at once; a manager would tell of the first and end."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.controller.configuration import EffectiveConfiguration, Problem
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jobs.interface import ENTRY_POINT_GROUP
from trainmaster.runtime.jobs.loader import SECTION, load_job_kinds, option_problems


def job_kind_problems(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Try to make every kind that would be served, with its options."""
    given = effective.configuration.training_operator
    if not given.enabled:
        return
    for point in discover(ENTRY_POINT_GROUP):
        if given.enable_scheme and point.name not in given.enable_scheme:
            continue
        try:
            (kind,) = load_job_kinds([point])
        except PluginInvalid as error:
            yield Problem(SECTION, str(error))
            continue
        for problem in option_problems(type(kind), given.options.get(point.name, {})):
            path, _, message = problem.partition(": ")
            yield Problem(path, message)
