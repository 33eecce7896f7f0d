"""`trainmaster config show`: what is in effect, and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trainmaster.controller.cli import main
from trainmaster.controller.configuration import Configuration, effective_configuration, load_configuration

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(capsys: pytest.CaptureFixture[str], *options: str, text: str | None = None) -> str:
    if text is not None:
        Path("config.yaml").write_text(HEAD + text)
        options = ("--config", "config.yaml", *options)
    assert main(["config", "show", *options]) == 0
    return capsys.readouterr().out


FILE = """\
webhook:
  port: 1234
clientConnection: {qps: 7}
featureGates: {AllAlpha: true}
plugins:
  disabled:
  - flux
  options:
    torch: {}
"""


def test_each_value_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, text=FILE).splitlines()
    for line in (
        "kind: Configuration  # config.yaml:2",
        "  port: 1234  # config.yaml:4",
        "  enabled: true  # default",
        "  qps: 7.0  # config.yaml:5",
        "  burst: 100  # default",
        "  TrainJobStatus: true  # config.yaml:6",
        "  disabled:  # config.yaml:8",
        "  - flux",
    ):
        assert line in lines, line
    assert "  TrainJobStatus: false  # --feature-gates=TrainJobStatus=false" in shown(
        capsys, "--feature-gates", "TrainJobStatus=false", text=FILE
    )
    # The name of a gate wins over that of its stage, whoever says which.
    assert "  TrainJobStatus: true  # config.yaml:3" in shown(
        capsys, "--feature-gates", "AllAlpha=false", text="featureGates: {TrainJobStatus: true}\n"
    )


def test_what_is_shown_is_a_file_that_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    printed = shown(capsys, text=FILE)
    Path("again.yaml").write_text(printed)
    first, again = effective_configuration(Path("config.yaml")), effective_configuration(Path("again.yaml"))
    assert again.features == first.features
    gates: dict[str, object] = {"feature_gates": {}}
    assert again.configuration.model_copy(update=gates) == first.configuration.model_copy(update=gates)
    Path("defaults.yaml").write_text(shown(capsys))
    assert load_configuration(Path("defaults.yaml")).model_copy(update=gates) == Configuration()
    # Without a file all are defaults.
    printed = shown(capsys)
    values = [line for line in printed.splitlines()[1:] if not line.strip().startswith("- ")]
    assert all("  # default" in line or line.endswith(":") for line in values)
    assert "  host: null  # default: all interfaces\n" in printed
    assert "  minVersion: null  # default: 1.2\n" in printed


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(shown(capsys, "-o", "json", text=FILE))
    assert report["configuration"]["webhook"]["port"] == 1234
    assert report["configuration"]["featureGates"] == {"TrainJobStatus": True}
    assert report["origins"]["webhook.port"] == {"source": "file", "place": "config.yaml:4"}
    assert report["origins"]["webhook.host"] == {"source": "default", "place": "all interfaces"}
    assert report["origins"]["featureGates.TrainJobStatus"] == {"source": "file", "place": "config.yaml:6"}


def test_a_config_map_is_shown_with_its_own_lines_and_warnings_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    # A config map is shown with its own lines.
    held = "".join(f"    {line}\n" for line in (HEAD + FILE).splitlines())
    Path("map.yaml").write_text(
        f"kind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  controller_manager_config.yaml: |\n{held}"
    )
    assert "  port: 1234  # map.yaml:8" in shown(capsys, "--config", "map.yaml").splitlines()
    # Warnings stand beside what is shown.
    Path("config.yaml").write_text(HEAD + "statusServer: {port: 7}\n")
    assert main(["config", "show", "--config", "config.yaml"]) == 0
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out)["statusServer"]["port"] == 7
    assert printed.err.startswith("config.yaml:3:16: warning: statusServer.port: no effect: ")


@pytest.mark.parametrize("text", ["webhook: {port: 0}\n", "webhook: {port: 8081}\n"])
def test_what_no_manager_would_take_is_not_shown(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.yaml").write_text(HEAD + text)
    assert main(["config", "show", "--config", "config.yaml"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ": error: " in printed.err
