"""`trainmaster doctor` as a process: what it prints, and its exit codes."""

import asyncio
from pathlib import Path

import pytest
from support.commands import Ran
from support.kubeconfigs import write_kubeconfig
from support.stack import api_server

from trainmaster.controller.cli import main
from trainmaster.controller.cli.doctor import command
from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.configuration import load_configuration


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_quiet")
async def test_a_failure_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with api_server(tmp_path, definitions=False):
        kubeconfig = str(next(tmp_path.rglob("kubeconfig")))
        assert await asyncio.to_thread(main, ["doctor", "--kubeconfig", kubeconfig]) == 1
    assert "\nfail     jobset             JobSet is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--namespace", "No"), "trainmaster: --namespace 'No' cannot be a name: "),
        (("--config", "missing"), "trainmaster: failed to read config file: missing: No such file or directory"),
        (("--kubeconfig", "missing"), "trainmaster: "),
        (("--kubeconfig", "nowhere"), "trainmaster: GET http://127.0.0.1:9/version: "),
    ],
)
@pytest.mark.usefixtures("_quiet")
def test_obstacles_are_told_in_a_line(tmp_path: Path, arguments: tuple[str, str], error: str, ran: Ran) -> None:
    """No cluster there, or none of that name: no traceback, and another exit code than for findings."""
    write_kubeconfig(tmp_path / "nowhere", "http://127.0.0.1:9")
    printed = ran("doctor", "--kubeconfig", "nowhere", *arguments, code=2)
    (line,) = printed.err.splitlines()
    assert line.startswith(error), line
    assert printed.out == ""


def test_without_a_file_it_is_the_configuration_of_the_manifests() -> None:
    deployed = load_configuration(Path(__file__).parents[4] / "deploy/base/controller_manager_config.yaml")
    assert AS_DEPLOYED.model_dump() == deployed.model_dump()
