"""How containers of a job ended that should not have, and what they said last: the facts, and a line about each."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.follow.excerpts import excerpt
from trainmaster.controller.cli.follow.torchrun_report import exit_code_of_program
from trainmaster.controller.container_failures import (
    OOM_KILLED,
    SIGNALS_FROM,
    STATUS_UNKNOWN,
    ContainerFailure,
    meaning_of,
)

_REASONS: Final = {
    OOM_KILLED: "it used more memory than its limit",
    STATUS_UNKNOWN: "its node was away meanwhile, so that nobody knows how it ended",
}
"""What reasons mean that kubelets give; they know more than the exit code tells."""

_UNTOLD: Final = frozenset({"", "Error"})


@dataclass(frozen=True, slots=True)
class Failure:
    """One run of a container that failed, with the end of its log."""

    failure: ContainerFailure
    lines: Sequence[str]
    """The last lines of its log; empty if there are none, or if they could not be read any more."""

    @property
    def text(self) -> str:
        """One line about it."""
        return _describe(self.failure, exit_code_of_program(self.lines))

    @property
    def excerpt(self) -> list[str]:
        """What of the last lines is shown."""
        return excerpt(self.lines)


def _describe(failure: ContainerFailure, of_program: int | None) -> str:
    """Say in one line what failed, how, and in which of all its runs."""
    who = f"container {failure.container}" if failure.rank is None else f"rank {failure.rank}"
    reason = "" if failure.reason in _UNTOLD else f", {failure.reason}"
    meaning = _REASONS.get(failure.reason) or meaning_of(failure.exit_code)
    code = f"exit code {failure.exit_code}{reason}{f' ({meaning})' if meaning else ''}"
    if of_program is not None and of_program != failure.exit_code:
        code += f"; torchrun says that its process ended {_by(of_program)}"
    return f"{who} failed: {code}; {attempt_of(failure)}, pod {failure.pod}"


def _by(exit_code: int) -> str:
    """Say how a process ended, as its parent sees it: of signals the number below 0."""
    if exit_code >= 0:
        meaning = meaning_of(exit_code)
        return f"with exit code {exit_code}{f' ({meaning})' if meaning else ''}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        return f"by signal {-exit_code}"
    meaning = meaning_of(SIGNALS_FROM - exit_code)
    return f"by {name}" + ("" if meaning == f"ended by {name}" else f" ({meaning})")


def attempt_of(failure: ContainerFailure) -> str:
    """Say in which attempt of the whole workload it was, and in which run of its container, as conditions do."""
    return f"attempt {failure.attempt}{f', restart {failure.run}' if failure.run else ''}"
