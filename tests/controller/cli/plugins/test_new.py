"""`trainmaster plugins new`: the package that it writes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from support.dockerfile import read_dockerfile

from trainmaster.controller.cli import root
from trainmaster.runtime.version import __version__


def test_the_package_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert root.main(["plugins", "new", "cost-labels"]) == 0
    package = tmp_path / "cost-labels"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {"trainmaster.plugins": {"cost-labels": "cost_labels:CostLabels"}}
    for path in package.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    assert not [path for path in package.rglob("*") if "__module__" in path.name or path.suffix == ".in"]


def test_its_image_is_made_as_our_image_allows(tmp_path: Path) -> None:
    package = tmp_path / "cost-labels"
    assert root.main(["plugins", "new", "cost-labels", "--directory", str(package)]) == 0
    assert (package / "Dockerfile").read_text().splitlines()[1:3] == [
        f"ARG IMAGE=trainmaster:{__version__}",
        "FROM ${IMAGE}",
    ]
    # Ours has a user that cannot write, and its `python` has no pip.
    *_, become_root, _, install, back = (package / "Dockerfile").read_text().splitlines()
    assert become_root == "USER root"
    assert install.startswith('RUN ["pip", "install"')
    assert back == f"USER {read_dockerfile().user}"


def test_what_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    new, none = str(tmp_path / "new"), "cannot be the name of a plugin: use lower-case letters"
    for arguments, told in (
        *((["--directory", new, "--", name], none) for name in ("Cost", "cost_labels", "-cost", "cost-", "class", "")),
        *((["--directory", new, "--", name], none) for name in ("x" * 41, "../cost")),
        (["torch", "--directory", new], "a plugin 'torch' is installed already"),
        (["cost-labels", "--directory", str(tmp_path)], "exists and is not empty; choose another --directory"),
        (["cost-labels", "--directory", f"{tmp_path}/mine.txt/new"], f"cannot write {tmp_path}/mine.txt/new"),
    ):
        assert root.main(["plugins", "new", *arguments]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("trainmaster: ")
        assert told in printed
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
