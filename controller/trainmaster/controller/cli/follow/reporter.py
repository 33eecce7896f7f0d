"""What the user sees while a job runs: plain lines, the output of the jobs on standard output, everything about them on
standard error, so that `trainmaster run job.yaml > training.log` does what one hopes for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Self

from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.summary import Commands, closing_summary
from trainmaster.controller.cli.output import write_log
from trainmaster.controller.cli.printers import report


class Reporter:
    """Writes lines; a context manager. What draws something overrides it."""

    pods_told = 32
    """How many pods of a job are reported one by one; of the others only what is unusual."""

    def __init__(self, commands: Commands | None = None) -> None:
        self.commands = commands or Commands()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    @property
    def is_mixed(self) -> bool:
        """Whether logs and reports go to the same place, so that who reads the one has read the other."""
        try:
            return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
        except (OSError, ValueError):
            return False  # a stream that is no file

    def report(self, text: str, *, bad: bool = False) -> None:  # noqa: ARG002 - a plain line looks the same either way
        """Report something about the jobs."""
        report(text)

    def log(self, lines: Sequence[str], *, job: str = "") -> None:  # noqa: ARG002 - progress is in the lines themselves
        """Pass on complete lines that pods have printed, as many as have arrived at once.

        They are without newlines, with whatever prefix tells whose they are. `job` is the key of the job whose rank 0
        printed them, since they may tell of its progress; empty for other ranks.
        """
        if lines:
            write_log("\n".join(lines))
            sys.stdout.flush()

    def partial(self, text: str, *, job: str = "") -> None:
        """Take the last line of a log as it stands while no newline has ended it; here a line is written once."""

    def show(self, jobs: Iterable[JobStatus]) -> None:
        """Bring the display up to date, if there is one."""

    def close(self, jobs: Iterable[JobStatus]) -> None:
        """End the display, and sum up what the jobs have come to."""
        for line in closing_summary(list(jobs), self.commands):
            self.report(line.text)


def shows_displays() -> bool:
    """Whether a person looks at this who sees what is drawn over; if what draws it is not installed, that is told."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    if os.environ.get("TERM", "") in {"", "dumb", "unknown"} or os.environ.get("CI", "") not in {"", "0", "false"}:
        return False
    # `!` in a notebook gives its command a terminal, of which only lines get into the notebook. Kernels name the
    # backend of their plots in the environment, Jupyter its process, Colab its release.
    if (
        "JPY_PARENT_PID" in os.environ
        or "COLAB_RELEASE_TAG" in os.environ
        or "inline" in os.environ.get("MPLBACKEND", "")
    ):
        return False
    if find_spec("rich") is None:
        print("for a live display: pip install 'trainmaster[local]'", file=sys.stderr)
        return False
    return True
