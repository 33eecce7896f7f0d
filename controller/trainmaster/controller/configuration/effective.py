"""The configuration that is in effect: files, flags and the environment together, checked, and where each value comes
from.

Guarantees:
- Flags win over the file, the environment does not. Mappings are merged, everything else is replaced.
- The result is checked as a file is; an error names the flag or the variable that it comes from.
- Each option that has its value from elsewhere says from where, and it is told if the file says something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from trainmaster.controller.configuration.loading import (
    ConfigurationInvalid,
    Problem,
    decode_configuration,
    invalid,
    merged,
    named,
    problems_of,
    read_files,
    with_files,
)
from trainmaster.controller.configuration.types import Configuration
from trainmaster.controller.configuration.validation import conflicts, notices
from trainmaster.controller.feature_gates import UnknownFeature, enabled_features, known_gates, parse_feature_gates
from trainmaster.runtime.field_errors import did_you_mean

FEATURE_GATES_FLAG: Final = "--feature-gates"


@dataclass(frozen=True, slots=True)
class Override:
    """A value from outside of the file."""

    option: str
    """For instance `webhook.port`."""

    value: Any
    """As it would stand in the file."""

    source: str
    """For instance `--webhook-server-port=9443`."""

    wins: bool = True
    """Over the file; otherwise it counts where the file says nothing."""


@dataclass(frozen=True, slots=True)
class EffectiveConfiguration:
    """What a manager with this file and these flags does."""

    configuration: Configuration
    """The file and the flags, with defaults."""

    features: Mapping[str, bool]
    """All feature gates, by file and flag."""

    gates_of_flag: Mapping[str, bool]
    """Those that the flag sets."""

    notices: Sequence[Problem]
    """What has no effect, or another one than its author may think."""

    problems: Sequence[Problem]
    """Why no manager would start with it."""

    overrides: Sequence[Override] = ()
    """What is in effect and does not come from the file, nor from `gates_of_flag`."""

    @property
    def open_features(self) -> frozenset[str]:
        """The feature gates that are open."""
        return frozenset(name for name, is_open in self.features.items() if is_open)


def effective_configuration(
    *paths: Path, feature_gates: str = "", overrides: Iterable[Override] = ()
) -> EffectiveConfiguration:
    """Read the configuration files, if there are any, and the flags.

    Raises:
        ConfigurationInvalid: They cannot be read, or say something wrong, or contradict themselves.
    """
    files = read_files(paths)
    effective = complete(decode_configuration(files), feature_gates=feature_gates, overrides=overrides)
    if effective.problems:
        place = f"{named(files)}: " if files else ""
        raise ConfigurationInvalid(f"{place}{invalid(with_files(effective.problems, files))}", effective.problems)
    return effective


def complete(
    configuration: Configuration, *, feature_gates: str = "", overrides: Iterable[Override] = ()
) -> EffectiveConfiguration:
    """Add what the flags say to a configuration, and check what its sections say of each other.

    Raises:
        ConfigurationInvalid: A flag cannot be read, or says something wrong.
    """
    configuration, counting, lost = _overridden(configuration, overrides)
    try:
        gates = parse_feature_gates(feature_gates)
        enabled_features(gates)
    except UnknownFeature as error:
        raise ConfigurationInvalid(f"{FEATURE_GATES_FLAG}: {error}") from error
    in_file, known = configuration.feature_gates, known_gates()
    features = enabled_features({name: in_file[name] for name in known if name in in_file}, gates)
    problems = [
        Problem(f"featureGates.{name}", f"unknown feature gate {did_you_mean(name, known)}")
        for name in in_file
        if name not in known
    ]
    return EffectiveConfiguration(
        configuration,
        features,
        gates,
        notices=[*lost, *notices(configuration, features)],
        problems=[*problems, *conflicts(configuration, features)],
        overrides=counting,
    )


def _overridden(
    configuration: Configuration, overrides: Iterable[Override]
) -> tuple[Configuration, list[Override], list[Problem]]:
    """Put values in the place of those of a file; of two for one option the later one wins.

    Returns the result, the overrides that count, and where something else is given, too.
    """
    data = configuration.model_dump(by_alias=True, exclude_unset=True)
    counting, lost = list[Override](), list[Problem]()
    for each in overrides:
        *around, name = each.option.split(".")
        section = data
        for part in around:
            section = section.setdefault(part, {})
        before = section.get(name)
        if before is not None and not each.wins:
            if before != each.value:
                lost.append(Problem(each.option, f"{each.source} has no effect: {before!r} is given"))
            continue
        section[name] = merged(before, each.value)
        counting.append(each)
        for path, value in _replaced(before, each.value, each.option):
            lost.append(Problem(path, f"{each.source} wins over what is given as well: {value!r}"))
    try:
        return Configuration.model_validate(data) if counting else configuration, counting, lost
    except ValidationError as error:
        raise invalid(_named(problem, counting) for problem in problems_of(error)) from error


def _replaced(before: Any, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Return what another value takes the place of, each with its path."""
    if isinstance(before, dict) and isinstance(value, dict):
        for key in before.keys() & value.keys():
            yield from _replaced(before[key], value[key], f"{path}.{key}")
    elif before is not None and before != value:
        yield path, before


def _named(problem: Problem, overrides: Iterable[Override]) -> Problem:
    """Say of a problem which flag or variable it comes from."""
    for each in overrides:
        if problem.path == each.option or problem.path.startswith((f"{each.option}.", f"{each.option}[")):
            return Problem("", f"{each.source}: {problem.message}")
    return problem
