"""A program that is imported while its starter has other things to do: when it runs, and when it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import TIMEOUT

from trainmaster.devcluster.manager import parent_death

pytestmark = pytest.mark.nightly

# It waits for a signal, not for its input: the end of that is what it is to be killed for, and it could end by itself
# before.
PROGRAM = """import signal, sys
print("runs", __name__, *sys.argv[1:], flush=True)
signal.pause()
"""


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a module of a directory so that it ends with its starter."""
    return subprocess.Popen(
        [sys.executable, parent_death.__file__, *arguments],
        env={"PYTHONPATH": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def held(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that is to run a module, which says so, as soon as it is let."""
    (tmp_path / "slow.py").write_text("print('imported', flush=True)\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return start(tmp_path, "--hold", "slow", "program", "a", "b")


def test_it_is_imported_at_once_and_runs_when_it_is_let(held: subprocess.Popen[str]) -> None:
    with held:
        assert held.stdout is not None
        assert held.stdin is not None
        assert held.stdout.readline() == "imported\n"
        held.stdin.write("\n")
        held.stdin.flush()
        assert held.stdout.readline() == "runs __main__ a b\n"
        held.stdin.close()
        assert held.wait(TIMEOUT) == -signal.SIGKILL


def test_it_never_runs_when_its_starter_ends_before(held: subprocess.Popen[str]) -> None:
    with held:
        assert held.stdout is not None
        assert held.stdin is not None
        assert held.stdout.readline() == "imported\n"
        held.stdin.close()
        assert held.wait(TIMEOUT) == -signal.SIGKILL
        assert held.stdout.read() == ""


def test_a_program_that_is_not_held_runs_at_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint('runs', *sys.argv[1:], flush=True)\n")
    with start(tmp_path, "program", "a") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs a\n"
        assert process.wait(TIMEOUT) == 0


def test_what_cannot_be_imported_is_left_to_the_program(tmp_path: Path) -> None:
    """That fails in its own way, whose last line is told as the reason."""
    (tmp_path / "program.py").write_text("import nothing_of_this_name\n")
    with start(tmp_path, "--hold", "nothing_of_this_name", "program") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stderr.read()
        assert process.wait(TIMEOUT) == 1
    assert said.count("Traceback") == 1
    assert said.endswith("ModuleNotFoundError: No module named 'nothing_of_this_name'\n")
