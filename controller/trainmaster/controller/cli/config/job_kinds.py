"""What is wrong with the kinds of jobs of a configuration, all at once; a manager would tell of the first and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.controller.configuration import EffectiveConfiguration, Problem
from trainmaster.controller.job_kinds import text_option
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jobs.constants import ENTRY_POINT_GROUP
from trainmaster.runtime.jobs.interface import JobKind
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
        for problem in option_problems(type(kind), _but_files(kind, given.options.get(point.name, {}))):
            path, _, message = problem.partition(": ")
            yield Problem(path, message)


def _but_files(kind: JobKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out options that name a file with the text of another one: only the manager has the file."""
    known = {field.alias for field in type(kind).options_model.model_fields.values()}
    return {name: value for name, value in options.items() if text_option(name) not in known}
