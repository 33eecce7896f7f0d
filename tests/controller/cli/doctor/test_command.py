"""`trainmaster doctor` as a process: what it prints, and its exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from support.commands import Ran, trainmaster
from support.kubeconfigs import write_kubeconfig
from support.stack import api_server
from support.web import listening

from trainmaster.controller.cli import main
from trainmaster.controller.cli.doctor import command
from trainmaster.controller.cli.rbac import AS_DEPLOYED
from trainmaster.controller.configuration import load_configuration


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    monkeypatch.chdir(tmp_path)


@pytest.mark.nightly
@pytest.mark.usefixtures("_quiet")
async def test_it_prints_a_line_for_each_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with api_server(tmp_path) as stack:
        kubeconfig = str(next(tmp_path.rglob("kubeconfig")))
        done = await trainmaster("doctor", "--kubeconfig", kubeconfig, cwd=tmp_path)
        assert done.code == 0, done.err
        heading, first, *_, last = done.out.splitlines()
        assert heading == "May the cluster take an installation in the namespace kubeflow?"
        assert first.startswith("ok       kubernetes         Kubernetes v1.")
        assert last.startswith(f"{stack.access.server}: ")
        assert " warn, 0 fail, 0 unknown" in last
        assert done.err == ""
        assert await asyncio.to_thread(main, ["doctor", "--kubeconfig", kubeconfig, "-o", "json"]) == 0
        _, begins, text = capsys.readouterr().out.rpartition('{\n  "server"')  # behind what is logged in this process
        report = json.loads(begins + text)
        assert report["findings"][0].keys() == {"question", "check", "status", "message", "what_next"}
        assert sum(report["summary"].values()) == len(report["findings"])


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
def test_what_stands_in_its_way_is_told_in_a_line(
    tmp_path: Path, arguments: tuple[str, str], error: str, ran: Ran
) -> None:
    """No cluster there, or none of that name: no traceback, and another exit code than for findings."""
    write_kubeconfig(tmp_path / "nowhere", "http://127.0.0.1:9")
    printed = ran("doctor", "--kubeconfig", "nowhere", *arguments, code=2)
    (line,) = printed.err.splitlines()
    assert line.startswith(error), line
    assert printed.out == ""


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (
            200,
            "<html>Sign in</html>",
            "the answer is an HTML page: <html>Sign in</html>; is the server a Kubernetes API ",
        ),
        (401, "{}", "the credentials are missing, wrong or expired; log in again, or renew those of kubeconfig "),
        (404, "nothing here", "trainmaster: 404: the answer is not a Status: nothing here (GET http://127.0.0.1:"),
    ],
)
@pytest.mark.usefixtures("_quiet")
async def test_a_server_that_is_no_cluster_is_told_in_a_line(
    tmp_path: Path, status: int, body: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with listening(app) as port:
        write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")
        assert await asyncio.to_thread(main, ["doctor", "--kubeconfig", "kubeconfig"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trainmaster: ")
    assert error in line


def test_without_a_file_it_is_the_configuration_of_the_manifests() -> None:
    deployed = load_configuration(Path(__file__).parents[4] / "deploy/base/controller_manager_config.yaml")
    assert AS_DEPLOYED.model_dump() == deployed.model_dump()
