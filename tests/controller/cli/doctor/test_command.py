"""`trainmaster doctor` as a process: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import trainmaster
from support.kubeconfigs import write_kubeconfig
from support.stack import api_server

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


async def test_it_prints_a_line_for_each_finding(tmp_path: Path) -> None:
    async with api_server(tmp_path) as stack:
        kubeconfig = str(next(tmp_path.rglob("kubeconfig")))
        done = await trainmaster("doctor", "--kubeconfig", kubeconfig, cwd=tmp_path)
        assert done.code == 0, done.err
        first, *_, last = done.out.splitlines()
        assert first.startswith("ok       kubernetes         Kubernetes v1.")
        assert last.startswith(f"{stack.access.server}: ")
        assert " warn, 0 fail, 0 unknown" in last
        assert done.err == ""
        done = await trainmaster("doctor", "--kubeconfig", kubeconfig, "-o", "json", cwd=tmp_path)
        report = json.loads(done.out)
        assert report["findings"][0].keys() == {"check", "status", "message", "what_next"}
        assert sum(report["summary"].values()) == len(report["findings"])


async def test_a_failure_is_the_exit_code(tmp_path: Path) -> None:
    async with api_server(tmp_path, definitions=False):
        done = await trainmaster("doctor", "--kubeconfig", str(next(tmp_path.rglob("kubeconfig"))), cwd=tmp_path)
    assert done.code == 1
    assert "\nfail     jobset             JobSet is not installed" in done.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--namespace", "No"), "trainmaster: --namespace 'No' cannot be a name: "),
        (("--config", "missing"), "trainmaster: failed to read config file: missing: No such file or directory"),
        (("--kubeconfig", "missing"), "trainmaster: "),
        (("--kubeconfig", "nowhere"), "trainmaster: GET http://127.0.0.1:9/version: "),
    ],
)
async def test_what_stands_in_its_way_is_told_in_a_line(tmp_path: Path, arguments: tuple[str, str], error: str) -> None:
    """No cluster there, or none of that name: no traceback, and another exit code than for findings."""
    write_kubeconfig(tmp_path / "nowhere", "http://127.0.0.1:9")
    done = await trainmaster("doctor", "--kubeconfig", "nowhere", *arguments, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith(error), line
