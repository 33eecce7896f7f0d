"""What stands in the place of an option of the file, or beneath it: flags win over the file, the environment does not.

Guarantees:
- The result is checked as a file is; an error names the flag or the variable that it comes from.
- Each option that has its value from elsewhere says from where, and it is told if the file says something else.
- Mappings are merged, everything else is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trainmaster.controller.configuration.loading import Problem, invalid, merged, problems_of
from trainmaster.controller.configuration.types import Configuration


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
class Overridden:
    """A configuration with values from elsewhere."""

    configuration: Configuration
    overrides: Sequence[Override]
    """Those that count."""

    notices: Sequence[Problem]
    """Where something else is given, too."""


def override(configuration: Configuration, overrides: Iterable[Override]) -> Overridden:
    """Put values in the place of those of a file.

    Args:
        configuration: The file.
        overrides: The values; of two for one option the later one wins.

    Raises:
        ConfigurationInvalid: A value is wrong.
    """
    data = configuration.model_dump(by_alias=True, exclude_unset=True)
    counting, notices = list[Override](), list[Problem]()
    for each in overrides:
        *around, name = each.option.split(".")
        section = data
        for part in around:
            section = section.setdefault(part, {})
        before = section.get(name)
        if before is not None and not each.wins:
            if before != each.value:
                notices.append(Problem(each.option, f"{each.source} has no effect: {before!r} is given"))
            continue
        section[name] = merged(before, each.value)
        counting.append(each)
        for path, lost in _replaced(before, each.value, each.option):
            notices.append(Problem(path, f"{each.source} wins over what is given as well: {lost!r}"))
    if not counting:
        return Overridden(configuration, [], notices)
    try:
        return Overridden(Configuration.model_validate(data), counting, notices)
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
