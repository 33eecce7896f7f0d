"""Which cluster a job runs on: what becomes of an embedded one that is interrupted while it starts, and its manager."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import cast

import pytest
import yaml
from support.commands import eventually, processes_of, started, trainmaster
from support.training import trainjob

from trainmaster.controller.cli import cluster
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotConnected
from trainmaster.devcluster.state import StateDirectory

pytestmark = [pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")]

JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: j}
spec: {runtimeRef: {name: none}}
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "code", "log"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "cluster is started"), (signal.SIGHUP, 129, "manager started")],
)
async def test_a_run_that_is_interrupted_while_its_cluster_starts_leaves_none(
    tmp_path: Path, number: signal.Signals, code: int, log: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    state = StateDirectory(tmp_path / ".trainmaster")
    async with started("run", "job.yaml", cwd=tmp_path) as run:
        await eventually(lambda: state.log.exists() and log in state.log.read_text())
        run.process.send_signal(number)
        ended = await run.finish()
    assert ended.code == code, ended.err
    assert "interrupted while the embedded cluster was starting" in ended.err
    assert "Traceback" not in ended.err
    await eventually(lambda: state.holder() is None and not processes_of(str(state.path)))


@pytest.mark.nightly
async def test_runs_that_begin_at_once_share_the_cluster_that_one_of_them_starts(tmp_path: Path) -> None:
    """As two terminals do, or the cells of a notebook and a terminal, in a directory where nothing was run before."""
    names = ("one", "two", "three", "later")
    for name in names:
        trainer = {"command": ["echo", f"this is {name}"], "resourcesPerNode": {"requests": {"cpu": "10m"}}}
        job = trainjob(name, on="torch-distributed", trainer=trainer)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(job))
    state = StateDirectory(tmp_path / ".trainmaster")
    try:
        ended = await asyncio.gather(*(trainmaster("run", f"{name}.yaml", cwd=tmp_path) for name in names[:3]))
        assert any("starting an embedded one" in run.err for run in ended)
        later = await trainmaster("run", "later.yaml", cwd=tmp_path)
        assert "starting" not in later.err
        for name, run in zip(names, (*ended, later), strict=True):
            assert run.code == 0, run.err
            assert f"this is {name}" in run.out
            assert "already running" not in run.err
        assert state.log.read_text().count("cluster is started") == 1
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)


class Answers:
    """A client that gets one answer after the other; the last one again and again."""

    def __init__(self, *answers: tuple[int, dict[str, str]] | KubeError) -> None:
        self._answers = list(answers)

    async def raw(self, *_: str) -> tuple[int, None, bytes]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return answer[0], None, json.dumps(answer[1]).encode()


async def test_a_manager_is_watched_through_an_outage_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_POLL_EVERY", 0)
    client = Answers(
        (200, {"phase": "ready"}),
        NotConnected("away"),
        (503, {}),
        (200, {"phase": "crashing", "message": "no such option", "log": "manager.log"}),
        (200, {"phase": "starting"}),
        (200, {"phase": "ready"}),
    )
    told: list[str] = []
    watching = asyncio.create_task(cluster.watch_manager(cast("KubeClient", client), report=told.append))
    await eventually(lambda: len(told) == 2)
    watching.cancel()
    assert told[0].endswith("nothing becomes of TrainJobs until it does: no such option (see manager.log)")
    assert told[1] == "the manager of this embedded cluster runs again"


async def test_where_nothing_is_known_of_a_manager_none_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_POLL_EVERY", 0)
    told: list[str] = []
    await cluster.watch_manager(cast("KubeClient", Answers((404, {}))), report=told.append)
    assert told == []


def test_a_directory_has_the_cluster_of_the_nearest_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("TRAINMASTER_HOME", raising=False)
    below = tmp_path / "project" / "scripts"
    below.mkdir(parents=True)
    for directory in (tmp_path, tmp_path / "project"):
        home = directory / ".trainmaster"
        home.mkdir()
        for name in ("kubeconfig", "cluster.json"):
            (home / name).touch()
    monkeypatch.chdir(below)
    assert cluster.state_directory(None) == tmp_path / "project" / ".trainmaster"
    # What others left above, in a directory that everybody may write to, is not ours.
    monkeypatch.setattr("os.getuid", lambda: -1)
    assert cluster.state_directory(None) is None
    # That of the directory itself, or one that is named, comes first.
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / ".trainmaster"))
    assert cluster.state_directory(None) == tmp_path / ".trainmaster"
