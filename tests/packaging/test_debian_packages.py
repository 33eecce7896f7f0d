"""hack/debian_packages.sh: it provides programs, or says what to install."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A checkout on a machine without apt, and without any of the programs."""
    (tmp_path / "hack").mkdir()
    shutil.copy(ROOT / "hack/debian_packages.sh", tmp_path / "hack")
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "mkdir"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "hack/debian_packages.sh", *arguments],
        env={"PATH": str(checkout / "bin")}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_without_apt_it_says_what_must_be_installed(elsewhere: Path) -> None:
    made = run(elsewhere, "promtool", "chromium")
    assert made.returncode == 1
    assert "no apt-get on this machine: promtool chromium must be on the PATH" in made.stderr


def test_what_is_optional_fails_nothing_and_is_told_all_the_same(elsewhere: Path) -> None:
    made = run(elsewhere, "--optional", "promtool")
    assert made.returncode == 0
    assert "promtool must be on the PATH" in made.stderr


def test_a_program_on_the_path_is_left_at_that(elsewhere: Path) -> None:
    (elsewhere / "bin/promtool").symlink_to("/bin/sh")
    made = run(elsewhere, "promtool")
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    assert not (elsewhere / ".cache").exists()


def test_an_unknown_program_is_refused_with_those_that_are_known(elsewhere: Path) -> None:
    made = run(elsewhere, "grafana")
    assert made.returncode == 2
    assert "no program grafana; it knows chromium, pngquant, prometheus, promtool, valgrind and vgdb" in made.stderr
