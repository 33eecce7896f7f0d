"""docs/write-a-plugin.md, Test it: its plugin conforms, its tests pass, and a failure says what to do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.runtime.testing import PluginConformance

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "write-a-plugin.md").read_text(encoding="utf-8").partition("## Test it")[2]
FILES = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL)
BROKEN = """
from itertools import count

from ring import Ring
from trainmaster.runtime.sdk import Info


class Counting(Ring):
    numbers = count()

    def pre_build(self, info: Info) -> None:
        info.annotations["example.com/number"] = str(next(self.numbers))
"""
FAILING = """
from broken import Counting
from test_conformance import TestRing

class TestCounting(TestRing):
    plugin = Counting
"""
FAILURE = (
    "AssertionError: plugin 'ring' does not conform:",
    "- TrainJob demo-0 becomes something else when the same plugin resolves it again: ",
    "JobSet demo-0.metadata.annotations.example.com/number is '1' instead of '0'.",
    "Why it matters: the manager compares what is built with what the cluster has",
    "What to do: use no time, no random number, no counter",
)


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as an author does, without any configuration of ours."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=110)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ring")
    (directory / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    for name, code in FILES:
        (directory / name).write_text(code)
    return directory


def test_every_block_of_python_is_a_file() -> None:
    assert len(FILES) == TEXT.count("```python")
    assert [name for name, _ in FILES] == [
        "ring.py",
        "test_conformance.py",
        "test_ring.py",
        "test_cluster.py",
    ]


@pytest.mark.nightly
def test_the_tests_of_the_page_pass(package: Path) -> None:
    done = run(package, "-q", "test_conformance.py", "test_ring.py", "test_cluster.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "23 passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.nightly
def test_a_failure_says_what_is_wrong_why_it_matters_and_what_to_do(package: Path) -> None:
    (package / "broken.py").write_text(BROKEN)
    (package / "test_broken.py").write_text(FAILING)
    done = run(package, "-q", "test_broken.py", "-k", "TestCounting and deterministic")
    assert done.returncode == 1, done.stdout
    told = " ".join(line.removeprefix("E").strip() for line in done.stdout.splitlines() if line.startswith("E"))
    assert re.search(".*".join(map(re.escape, FAILURE)), told)


def test_every_test_of_the_suite_is_in_the_table() -> None:
    reference = (DOCS / "plugin-reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `(test_\w+)`:", reference, re.MULTILINE)
    assert listed == [name for name in vars(PluginConformance) if name.startswith("test_")]
    assert "nineteen" in TEXT
    assert len(listed) == 19
