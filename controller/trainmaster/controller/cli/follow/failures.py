"""What is known of the failures of a job: how containers ended that should not have, and what they said last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.controller.container_failures import ContainerFailure, meaning_of


@dataclass(frozen=True, slots=True)
class Failure:
    """One run of a container that failed, with the end of its log."""

    failure: ContainerFailure
    lines: Sequence[str]
    """The last lines of its log; empty if there are none, or if they could not be read any more."""

    @property
    def text(self) -> str:
        """One line about it."""
        return describe(self.failure)


def describe(failure: ContainerFailure) -> str:
    """Say in one line what failed, and how."""
    who = f"container {failure.container}" if failure.rank is None else f"rank {failure.rank}"
    code = f"exit code {failure.exit_code}"
    if failure.reason not in {"", "Error"}:
        code += f" ({failure.reason})"
    meaning = meaning_of(failure.exit_code)
    return f"{who} failed in pod {failure.pod}: {code}{', ' if meaning else ''}{meaning}"
