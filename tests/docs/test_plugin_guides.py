"""docs/write-a-plugin.md: the package that it shows is the one that is written, and its commands work."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.distributions import Distributions

from trainmaster.controller.cli import root
from trainmaster.runtime.yamltext import load_yaml_documents

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "write-a-plugin.md").read_text(encoding="utf-8")
FILE = re.compile(r"`([a-z.]+\.yaml)`:\n\n```yaml\n(.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
CODE = re.compile(r"```python\n(\"{3}The plugin .*?)```", re.DOTALL)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of the guide, installed as `pip install -e` does it."""
    monkeypatch.chdir(tmp_path)
    assert root.main(["plugins", "new", "cost-labels"]) == 0
    package = tmp_path / "cost-labels"
    code = (package / "cost_labels.py").read_text()
    monkeypatch.delitem(sys.modules, "cost_labels", raising=False)
    installed = tmp_path / "site-packages"
    installed.mkdir()
    Distributions(installed, monkeypatch).install("cost-labels", {"cost-labels": "CostLabels"}, module=code)
    yield package
    sys.modules.pop("cost_labels", None)


def test_the_plugin_of_the_guide_is_what_the_command_writes(package: Path) -> None:
    (code,) = CODE.findall(GUIDE)
    assert (package / "cost_labels.py").read_text() == code
    assert (
        '[project.entry-points."trainmaster.plugins"]\ncost-labels = "cost_labels:CostLabels"\n'
        in (package / "pyproject.toml").read_text()
    )


def test_every_command_of_the_guide_works(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for those that install or need a cluster, which the tour of the plugins runs."""
    for name, text in FILE.findall(GUIDE):
        (package / name).write_text(text)
    monkeypatch.chdir(package)
    outputs = {}
    for line in "".join(COMMANDS.findall(GUIDE)).splitlines():
        words = shlex.split(line)
        if words[0] != "trainmaster" or words[1] == "cluster" or words[1:3] == ["plugins", "new"]:
            continue
        assert root.main(words[1:]) == 0, line
        outputs[line] = capsys.readouterr().out
    assert "centre: research" in outputs["trainmaster render -f job.yaml --only JobSet"]
    assert "centre: robotics" in outputs["trainmaster render -f job.yaml --only JobSet --config config.yaml"]
    assert "state: loaded" in outputs["trainmaster plugins show cost-labels"]


@pytest.mark.nightly
def test_the_tests_of_the_package_pass(package: Path) -> None:
    """The conformance suite among them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configurations_of_the_guide_can_be_used(package: Path) -> None:
    for block in re.findall(r"```yaml\n(apiVersion: config.*?)```", GUIDE, re.DOTALL):
        assert [document["kind"] for _, document in load_yaml_documents(block)] == ["Configuration"]
        (package / "page.yaml").write_text(block)
        assert root.main(["config", "check", str(package / "page.yaml")]) == 0
