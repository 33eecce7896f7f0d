"""Which cluster a job runs on: what becomes of an embedded one that is interrupted while it starts."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from support.commands import eventually, processes_of, started

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
    assert "interrupted while the embedded cluster was starting; it is stopped again" in ended.err
    assert "Traceback" not in ended.err
    async with asyncio.timeout(30):
        await eventually(lambda: state.holder() is None and not processes_of(str(state.path)))
