"""Which lines are read of containers that failed, and of init containers for which their pods wait."""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.failing_pods import container_status, pod, terminated
from support.job_views import at, view

from trainmaster.controller.cli.explain import failed_logs
from trainmaster.controller.cli.explain.reader import Reader
from trainmaster.controller.kube.rest.client import KubeClient

OF_TORCHRUN = "E1123 09:22:45.690000 27321 torch/distributed/elastic/multiprocessing/api.py:1002] "


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The containers whose logs are asked for, as pod/container."""
    asked: list[str] = []

    async def last_lines(client: KubeClient, *, pod: str, container: str, **more: Any) -> list[str]:
        asked.append(f"{pod}/{container}")
        return [
            "KeyError: 'input_ids'",
            f"{OF_TORCHRUN}failed (exitcode: 1) local_rank: 0 (pid: 27540) of binary: /venv/bin/python",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        ]

    monkeypatch.setattr(failed_logs, "last_lines", last_lines)
    return asked


async def test_what_torchrun_adds_does_not_push_out_what_the_program_said(asked: list[str]) -> None:
    failed = pod(1, containers=[container_status(terminated(1, at=40))], phase="Failed")
    found = await failed_logs.read_failed_logs(Reader(cast("KubeClient", None), "team"), view(pods=[failed]))
    lines = found["logs"][failed["metadata"]["uid"], "node"]
    assert lines[0] == "KeyError: 'input_ids'"
    assert lines[1].startswith(OF_TORCHRUN)
    assert len(lines) == 2


async def test_of_init_containers_that_run_one_is_read(asked: list[str]) -> None:
    state = {"running": {"startedAt": at(5)}}
    status = [container_status(state, name="wait-for-data")]
    pods = [pod(rank, containers=[], phase="Pending", initContainerStatuses=status) for rank in range(3)]
    for each in pods:
        each["status"]["containerStatuses"] = []
    found = await failed_logs.read_failed_logs(Reader(cast("KubeClient", None), "team"), view(pods=pods))
    assert asked == [f"{pods[0]['metadata']['name']}/wait-for-data"]
    assert list(found["logs"]) == [(pods[0]["metadata"]["uid"], "wait-for-data")]
