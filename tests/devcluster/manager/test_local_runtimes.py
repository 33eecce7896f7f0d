"""What runtimes need that images would have: found out at once, and told to who uses such a runtime."""

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT
from support.distributions import EXAMPLES
from support.stack import api_server

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, EVENTS, TRAINJOBS
from trainmaster.devcluster.cli import cluster_status
from trainmaster.devcluster.manager.built_in_runtimes import built_in_runtimes
from trainmaster.devcluster.manager.local_runtimes import (
    REASON,
    LocalRuntimesController,
    missing_by_runtime,
    missing_for,
)
from trainmaster.devcluster.settings import KUBELET
from trainmaster.devcluster.state import ClusterRecord, StateDirectory
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A function that says which programs and packages this machine has."""

    def has(*, programs: tuple[str, ...] = (), packages: tuple[str, ...] = ()) -> None:
        directory = tmp_path / "bin"
        directory.mkdir(exist_ok=True)
        for name in programs:
            (directory / name).write_text("#!/bin/sh\n")
            (directory / name).chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(directory / "python"))
        monkeypatch.setenv("PATH", str(tmp_path / "none"))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name in packages else None)

    return has


def by_name(name: str) -> JsonObject:
    return next(each for each in built_in_runtimes() if each["metadata"]["name"] == name)


def test_what_is_missing_is_named_with_the_command_that_installs_it(machine: Machine) -> None:
    machine()
    pip = f"{sys.executable} -m pip install"
    assert missing_for(by_name("torch-distributed")) == f"needs torchrun: {pip} torch"
    assert missing_for(by_name("jax-distributed")) == f"needs jax: {pip} jax"
    assert missing_for(by_name("xgboost-distributed")) == f"needs xgboost: {pip} xgboost"
    assert missing_for(by_name("torchtune-llama3.2-1b")) == f"needs tune: {pip} torchtune torchao huggingface_hub"
    for name in ("deepspeed-distributed", "mlx-distributed"):
        assert missing_for(by_name(name)) == (
            "needs /home/mpiuser/.sshd_config, for sshd, which its image has: take a runtime as in examples/mpi "
            "(docs/guides/mpi.md)"
        )

    own = {"name": "own", "labels": {"trainer.kubeflow.org/framework": "jax"}}
    assert missing_for({"metadata": own, "spec": {}}), "a runtime of one's own needs what its framework does"
    assert missing_for({"metadata": {"name": "own", "labels": {"trainer.kubeflow.org/framework": "flux"}}}) is None
    assert missing_for({"metadata": {"name": "own"}, "spec": {"mlPolicy": {"mpi": {}}}}) is None
    assert missing_for(load_yaml((EXAMPLES / "numpy-digits" / "runtime.yaml").read_text())) is None, "python starts it"


def test_what_is_there_is_found(machine: Machine) -> None:
    machine(programs=("torchrun", "tune"), packages=("jax", "xgboost"))
    for name in ("torch-distributed", "jax-distributed", "xgboost-distributed", "torchtune-qwen2.5-1.5b"):
        assert missing_for(by_name(name)) is None


def test_the_status_says_what_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDirectory(tmp_path)
    record = ClusterRecord(
        version="1", pid=1, port=1, server="https://127.0.0.1:1", kubeconfig="kubeconfig", parts=(KUBELET,)
    )
    missing: dict[str, str | None] = {"jax-distributed": "needs jax: pip", "torch-distributed": "needs torchrun: pip"}
    monkeypatch.setattr(cluster_status, "get", lambda *_: missing)
    cluster_status._runtimes(state, record)
    assert capsys.readouterr().out == (
        "runtimes:     none is complete here\n"
        "              torch-distributed runs all that needs no torchrun, as `trainmaster run PROGRAM` does\n"
        "  incomplete: jax-distributed\n"
        "              needs jax: pip\n"
        "  incomplete: torch-distributed\n"
        "              needs torchrun: pip\n"
    )
    missing["torch-distributed"] = None
    cluster_status._runtimes(state, record)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "runtimes:     torch-distributed",
        "  incomplete: jax-distributed",
    ]


async def told(api: Api, runtime: JsonObject, *jobs: JsonObject) -> dict[str, str]:
    """Create TrainJobs while the controller runs; returns the messages of their events, by job."""
    await api.create(CLUSTER_TRAINING_RUNTIMES, runtime)
    controller = asyncio.create_task(LocalRuntimesController(api).run())
    last = job_of("last-of-all", runtime["metadata"]["name"], None)
    for job in (*jobs, last):
        await api.create(TRAINJOBS, job, namespace="default")
    messages: dict[str, str] = {}
    async with asyncio.timeout(TIMEOUT):
        while "last-of-all" not in messages:
            await asyncio.sleep(0.01)
            events = [record.object for record in api.list(EVENTS, "default")[0]]
            messages = {each["involvedObject"]["name"]: each["message"] for each in events if each["reason"] == REASON}
    controller.cancel()
    await asyncio.gather(controller, return_exceptions=True)
    return messages


def job_of(name: str, runtime: str, trainer: Any) -> JsonObject:
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": runtime}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": reference, **({} if trainer is None else {"trainer": trainer})},
    }


async def test_whoever_needs_it_is_told_by_an_event(tmp_path: Path, machine: Machine) -> None:
    machine()
    commands = {
        "sdk": ["bash", "-c", "torchrun train.py"],
        "starts-otherwise": ["python", "train.py"],
        "installs-it": ["bash", "-c", "pip install torch && torchrun train.py"],
    }
    jobs = [job_of(name, "torch-distributed", {"command": command}) for name, command in commands.items()]
    missing = job_of("no-runtime", "missing", None)
    async with api_server(tmp_path / "cluster") as stack:
        if stack.cluster is None:
            pytest.skip("runs a controller in the process of the server")
        api = stack.cluster.api
        messages = await told(api, by_name("torch-distributed"), *jobs, missing)
        text = (
            'runtime "torch-distributed" runs on this machine without its image, and needs torchrun: '
            f"{sys.executable} -m pip install torch"
        )
        assert messages == {"sdk": text, "last-of-all": text}
        assert missing_by_runtime(api) == {
            "torch-distributed": f"needs torchrun: {sys.executable} -m pip install torch"
        }


async def test_a_job_that_an_earlier_cluster_knew_is_not_told_again(tmp_path: Path, machine: Machine) -> None:
    machine()
    async with api_server(tmp_path / "cluster") as stack:
        if stack.cluster is None:
            pytest.skip("runs a controller in the process of the server")
        api = stack.cluster.api
        known = await api.create(TRAINJOBS, job_of("known", "jax-distributed", None))
        condition = {
            "type": "Suspended",
            "status": "False",
            "reason": "Resumed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await api.update(TRAINJOBS, {**known, "status": {"conditions": [condition]}}, subresource="status")
        assert set(await told(api, by_name("jax-distributed"))) == {"last-of-all"}
