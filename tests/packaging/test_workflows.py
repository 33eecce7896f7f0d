"""The workflows for GitHub, which run elsewhere: what can be said about them here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))

workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        yield from job["steps"]


def scripts(path: Path) -> str:
    return "\n".join(step["run"] for step in steps(path) if "run" in step)


def test_there_are_those_that_the_documentation_names() -> None:
    named = re.findall(r"\.github/workflows/([a-z0-9-]+\.yaml)`", (ROOT / "docs/image.md").read_text())
    assert sorted(set(named)) == [path.name for path in WORKFLOWS]


@workflows
def test_every_action_is_pinned_by_commit_and_says_its_version(path: Path) -> None:
    """A tag can be moved by whoever takes over an action."""
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # \S+", each)] == []


@workflows
def test_no_job_may_more_than_it_says(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= (240 if name == "nightly" else 60), name
        assert job["runs-on"] in ("ubuntu-24.04", "macos-15")


@workflows
def test_scripts_take_nothing_that_others_write_but_by_variables(path: Path) -> None:
    """What a title or a branch says would be run as a command."""
    assert set(re.findall(r"\$\{\{\s*(.*?)\s*\}\}", scripts(path))) <= {"matrix.target"}


@workflows
def test_the_targets_and_scripts_that_are_run_are_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", scripts(path))) <= targets
    files = re.findall(r"(?<![\w.])(?:\.ci|hack|deploy)/[\w./-]+", scripts(path))
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_every_version_of_python_that_is_promised_is_tested() -> None:
    """The oldest and the newest by the gate, all of them every night."""
    classifiers = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    jobs = [yaml.safe_load((ROOT / f".github/workflows/{name}.yaml").read_text())["jobs"] for name in ("ci", "nightly")]
    gate, nightly = (
        each[job]["strategy"]["matrix"]["python"] for each, job in zip(jobs, ("gate", "nightly"), strict=True)
    )
    assert gate == [classifiers[0], classifiers[-1]]
    assert nightly == classifiers


def test_the_image_of_a_release_is_made_from_the_images_of_the_dockerfile() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    environment = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())["env"]
    assert environment == {"PYTHON_TAG": arguments["PYTHON_IMAGE"], "BUILD_TAG": arguments["BUILD_IMAGE"]}
