"""The plugin keeps to the interface, and nodes start what DeepSpeed's launcher needs."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml
from acme_deepspeed import MOST_PROCESSES, NODE_RANK, DeepSpeed, DeepSpeedPolicy

from trainmaster.runtime.sdk import Info, JsonObject, Rejected, TrainJob
from trainmaster.runtime.testing import PluginConformance, info, replicated_job, runtime, trainjob

HERE = Path(__file__).parents[1]


def file(name: str) -> JsonObject:
    loaded: JsonObject = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    return loaded


class TestConformance(PluginConformance):
    """What every plugin has to keep to."""

    plugin = DeepSpeed
    runtime = file("runtime.yaml")
    jobs = (file("trainjob.yaml"), {"trainer": {"numNodes": 3, "command": ["python3", "train.py"]}})


def enforced(job: JsonObject, *, slices: int = 1, **config: int) -> Info:
    """The Info of a TrainJob when the plugin has run."""
    steps = [replicated_job(replicas=slices)]
    merged = info(job, runtime(template={"spec": {"replicatedJobs": steps}}))
    policy = DeepSpeedPolicy.model_validate(config)
    DeepSpeed().enforce_ml_policy(merged, TrainJob.model_validate(job), policy)
    return merged


def deepspeed(*command: str, **trainer: object) -> JsonObject:
    return trainjob(trainer={"command": ["deepspeed", *command], "numNodes": 2, **trainer})


def world(merged: Info) -> object:
    (given,) = (each for each in merged.trainer_command or [] if each.startswith("--world_info="))
    return json.loads(base64.urlsafe_b64decode(given.removeprefix("--world_info=")))


def test_each_node_starts_its_processes_and_knows_of_all_others() -> None:
    merged = enforced(deepspeed("train.py", "--epochs=2"), processesPerNode=2)
    command = merged.trainer_command or []
    assert command[:4] == ["python3", "-u", "-m", "deepspeed.launcher.launch"]
    assert command[5:] == [
        f"--node_rank=$({NODE_RANK})",
        "--master_addr=demo-node-0-0.demo",
        "--master_port=29500",
        "train.py",
        "--epochs=2",
    ]
    assert world(merged) == {"0": [0, 1], "1": [0, 1]}
    container = merged.trainer_container or {}
    assert [each["name"] for each in container["env"]] == ["MASTER_ADDR", "MASTER_PORT", NODE_RANK]
    assert container["ports"] == [{"containerPort": 29500}]


def test_the_trainjob_says_how_many_processes_before_the_runtime_does() -> None:
    merged = enforced(deepspeed("train.py", numNodes=1, numProcPerNode=3), processesPerNode=2)
    assert world(merged) == {"0": [0, 1, 2]}


def test_a_command_of_its_own_is_left_alone() -> None:
    merged = enforced(trainjob(trainer={"command": ["python3", "train.py"], "numNodes": 2}))
    assert merged.trainer_command is None
    assert "MASTER_ADDR" in str(merged.trainer_container)


def test_what_the_launcher_cannot_do_is_rejected() -> None:
    with pytest.raises(Rejected, match=f"are more than {MOST_PROCESSES} processes"):
        enforced(deepspeed("train.py", numNodes=MOST_PROCESSES), processesPerNode=2)
    with pytest.raises(Rejected, match="knows one slice"):
        enforced(deepspeed("train.py"), slices=2)


def test_options_that_read_hostfiles_are_refused_by_their_field() -> None:
    job = deepspeed("--hostfile=hosts", "train.py", env=[{"name": "MASTER_PORT", "value": "1"}])
    reserved, option = DeepSpeed().validate(info(job), TrainJob.model_validate(job))
    assert reserved.path == "spec.trainer.env"
    assert str(option) == (
        'spec.trainer.command[1]: Invalid value: "--hostfile=hosts": is an option of the runner that reads hostfiles; '
        "use numNodes and numProcPerNode of the trainer"
    )
