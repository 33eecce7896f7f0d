"""Another commit of this repository, ready to run: its files, and an environment with what its own lock files pin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.api import BenchmarkFailed
from bench.processes import Program

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / ".cache/bench"
"""Where checkouts of other commits stay, for the next time."""

_OF_OUR_MAKE: Final = frozenset({"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV"})
"""What another commit's make must not take from the make that runs this."""

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit, and the directory with its files."""

    name: str
    directory: Path

    @property
    def program(self) -> Program:
        """What its managers are run as."""
        return Program(interpreter=(str(self._python),))

    @property
    def is_ready(self) -> bool:
        """Whether it has an environment."""
        return self._python.is_file()

    @property
    def _python(self) -> Path:
        return self.directory / ".venv/bin/python"


def ready(commit: str, *, say: Callable[[str], None], repository: Path = ROOT, kept: Path = KEPT) -> Checkout:
    """Return a checkout of a commit with an environment, which the commit's own Makefile makes.

    Args:
        commit: As git knows it.
        say: Is told what takes a while.
        repository: Where the commit is.
        kept: Where checkouts stay.

    Raises:
        BenchmarkFailed: There is no such commit, or its environment cannot be made.
    """
    sha = _run(["git", "-C", str(repository), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]).strip()
    if not sha:
        raise BenchmarkFailed(
            f"there is no commit {commit}; a clone without history gets it by: git fetch origin {commit}"
        )
    checkout = Checkout(sha[:8], kept / sha)
    if not checkout.directory.is_dir():
        # --force: git still knows of one that was here, if somebody has deleted it.
        add = ["worktree", "add", "--force", "--detach", str(checkout.directory), sha]
        _run(["git", "-C", str(repository), *add], must_succeed=f"git cannot check out {commit}")
    say(f"making an environment for {checkout.name}, unless there is one")
    _run(
        ["make", "--directory", str(checkout.directory), f"PYTHON={sys.executable}", ".venv/.runtime"],
        must_succeed=f"the environment of {commit} cannot be made in {checkout.directory}",
    )
    if not checkout.is_ready:
        raise BenchmarkFailed(f"make .venv/.runtime has made no environment in {checkout.directory}")
    return checkout


def _run(command: list[str], *, must_succeed: str = "") -> str:
    """Run a command and return what it printed; if it must succeed and does not, that is the error."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_OUR_MAKE}
    finished = subprocess.run(  # noqa: S603 - git and make, as this checkout was made
        command, check=False, capture_output=True, text=True, env=environment
    )
    if finished.returncode and must_succeed:
        lines = (finished.stdout + finished.stderr).splitlines()[-_LAST_LINES:]
        raise BenchmarkFailed("\n".join([f"{must_succeed}:", *(f"  {line}" for line in lines)]))
    return finished.stdout
