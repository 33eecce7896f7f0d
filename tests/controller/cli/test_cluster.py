"""Which cluster a job runs on: what becomes of an embedded one that is interrupted while it starts."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
import yaml
from support.commands import eventually, processes_of, started, trainmaster

from trainmaster.devcluster.state import StateDirectory

pytestmark = [
    pytest.mark.slow(seconds=10),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]

JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: j}
spec: {runtimeRef: {name: none}}
"""


@pytest.mark.parametrize(
    ("number", "code", "log"),
    [
        (signal.SIGTERM, 143, ""),
        (signal.SIGINT, 130, "cluster is started"),
        (signal.SIGHUP, 129, "manager started"),
    ],
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
    async with asyncio.timeout(30):
        await eventually(lambda: state.holder() is None and not processes_of(str(state.path)))


async def test_runs_that_begin_at_once_share_the_cluster_that_one_of_them_starts(tmp_path: Path) -> None:
    """As two terminals do, or the cells of a notebook and a terminal, in a directory where nothing was run before."""
    names = ("one", "two", "three")
    for name in names:
        trainer = {"command": ["echo", f"this is {name}"], "resourcesPerNode": {"requests": {"cpu": "10m"}}}
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(job))
    state = StateDirectory(tmp_path / ".trainmaster")
    try:
        ended = await asyncio.gather(*(trainmaster("run", f"{name}.yaml", cwd=tmp_path) for name in names))
        for name, run in zip(names, ended, strict=True):
            assert run.code == 0, run.err
            assert f"this is {name}" in run.out
            assert "already running" not in run.err
        assert state.log.read_text().count("cluster is started") == 1
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)
