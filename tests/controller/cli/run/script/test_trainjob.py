"""The TrainJob of a program, and which runtime it gets, on an API server with some."""

from pathlib import Path
from typing import Any

import pytest
from support.devcluster.faultycluster import FaultyCluster
from support.team import Team

from trainmaster.controller.cli.files.offline import check_schema
from trainmaster.controller.cli.run.script.files import collect_files
from trainmaster.controller.cli.run.script.imports import Imports
from trainmaster.controller.cli.run.script.options import Options, ProgramError
from trainmaster.controller.cli.run.script.prepare import find_runtime
from trainmaster.controller.cli.run.script.program import Program
from trainmaster.controller.cli.run.script.trainjob import Runtime, copied, job_name, mounted
from trainmaster.controller.job_fields import JobFields
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.runtime.jsontree import JsonObject

PROGRAM = Program(title="train.py", name="train", entry=("train.py",), directory=Path("/home/me/it"), imports=Imports())


def trainer(*, torchrun: bool = True, **options: Any) -> JsonObject:
    runtime = Runtime(kind="ClusterTrainingRuntime", name="torch-distributed", torchrun=torchrun)
    [job] = mounted(PROGRAM, Options(**{"env": {}, **options}), "a-job", runtime)
    checked = check_schema(job)
    assert checked is not None
    assert not checked[1]
    assert JobFields(job).is_made_by_run
    found: JsonObject = job["spec"]["trainer"]
    return found


def test_processes_are_those_that_torchrun_would_start() -> None:
    cases: tuple[tuple[dict[str, Any], int | None, list[str]], ...] = (
        ({}, 1, ["torchrun"]),
        ({"cpus": "4"}, 1, ["torchrun"]),
        ({"gpus": 2}, 2, ["torchrun"]),
        ({"nproc": 3}, 3, ["torchrun"]),
        ({"nproc": 3, "gpus": 2}, 3, ["torchrun"]),
        ({"nproc": "auto", "gpus": 2}, 2, ["torchrun"]),
        ({"nproc": "auto", "cpus": "4"}, 4, ["torchrun"]),
        ({"nproc": "auto", "cpus": "500m"}, 1, ["torchrun"]),
        ({"nproc": "auto"}, None, ["torchrun", "--nproc-per-node=auto"]),
        ({"nproc": "auto", "torchrun": False}, None, ["python"]),
    )
    for options, processes, launcher in cases:
        found = trainer(**options)
        assert (found.get("numProcPerNode"), found["args"]) == (processes, [*launcher, "train.py"])


def test_processes_share_the_cpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    cases: tuple[tuple[dict[str, Any], str | None], ...] = (
        ({}, None),
        ({"nodes": 2}, "4"),
        ({"nodes": 2, "nproc": 2}, "2"),
        ({"nodes": 2, "nproc": 2, "torchrun": False}, "4"),
        ({"nodes": 20}, "1"),
        ({"nodes": 2, "nproc": 3, "cpus": "6500m"}, "2"),
        ({"nodes": 2, "nproc": "auto"}, None),
        ({"nodes": 2, "env": {"OMP_NUM_THREADS": "7"}}, "7"),
    )
    for options, threads in cases:
        given = {each["name"]: each["value"] for each in trainer(**options)["env"]}
        assert given.get("OMP_NUM_THREADS") == threads


def test_nodes_ask_for_what_was_named_and_nothing_that_was_said_is_expanded() -> None:
    assert "resourcesPerNode" not in trainer(nodes=2)
    assert trainer(cpus="500m", memory="1Gi", gpus=1)["resourcesPerNode"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"nvidia.com/gpu": 1},
    }
    found = trainer(arguments=("$(HOME)", "$$", "a b"))
    assert found["args"][-3:] == ["$$(HOME)", "$$$$", "a b"]


def test_a_job_is_called_by_its_program() -> None:
    stems = {"train": "train", "Train_Model.v2": "train-model-v2", "01-first": "job-01-first", "___": "job", "ä": "job"}
    for name, stem in (stems | {"a" * 80: "a" * 30}).items():
        program = Program(title="", name=name, entry=("x.py",), directory=Path("/"), imports=Imports())
        names = {job_name(program) for _ in range(20)}
        assert len(names) > 1
        assert {each.rpartition("-")[0] for each in names} == {stem}


def test_a_program_outside_of_the_directory_takes_its_own_along(tmp_path: Path) -> None:
    for place in ("here/sub", "there"):
        (tmp_path / place).mkdir(parents=True)
    runtime = Runtime(kind="TrainingRuntime", name="mine", job="trainer", torchrun=False)
    for entry, expected in (("sub/train.py", "sub/train.py"), ("../there/train.py", "train.py")):
        program = Program(title=entry, name="train", entry=(entry,), directory=tmp_path / "here", imports=Imports())
        files = collect_files(tmp_path, needed=(), made={"train.py": "pass\n"})
        config_map, job = copied(program, Options(env={}, image="mine:1", nodes=2), "a-job", runtime, files)
        assert "OMP_NUM_THREADS" not in str(job)  # the machine is another one
        assert job["spec"]["trainer"]["args"] == ["python", expected]
        assert job["spec"]["trainer"]["image"] == "mine:1"
        [patch] = job["spec"]["runtimePatches"]
        [replicated] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        assert replicated["name"] == "trainer"
        volumes = replicated["template"]["spec"]["template"]["spec"]["volumes"]
        assert volumes[0]["configMap"]["name"] == config_map["metadata"]["name"]
        checked = check_schema(job)
        assert checked is not None
        assert not checked[1]


@pytest.fixture
def client(quiet: tuple[Team, FaultyCluster]) -> KubeClient:
    return quiet[0].client


def runtime(name: str, policy: JsonObject, *, job: str = "node") -> JsonObject:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = {"containers": [{"name": "node", "image": "i"}]}
    jobs = [
        {"name": "before", "template": {"spec": {"template": {"spec": pod}}}},
        {"name": job, "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}},
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


async def find(client: KubeClient | None, *modules: str, **options: Any) -> tuple[Runtime, list[str]]:
    imports = Imports(installed=dict.fromkeys(modules, True))
    program = Program(title="train.py", name="train", entry=("train.py",), directory=Path("/"), imports=imports)
    told: list[str] = []
    found = await find_runtime(program, Options(env={}, **options), client, namespace="default", report=told.append)
    return found, told


async def test_what_is_imported_decides() -> None:
    for modules, name, torchrun in (
        (("torch", "numpy"), "torch-distributed", True),
        (("lightning",), "torch-distributed", True),
        (("jax",), "jax-distributed", False),
        (("flax", "optax"), "jax-distributed", False),
        (("xgboost", "sklearn"), "xgboost-distributed", False),
        (("numpy",), "torch-distributed", False),
        (("jax", "torch"), "torch-distributed", True),
    ):
        found, [told] = await find(None, *modules, nodes=2)
        assert found == Runtime(kind="ClusterTrainingRuntime", name=name, torchrun=torchrun)
        launcher = "torchrun" if torchrun else "python"
        assert told.startswith(f"train.py: {launcher} on 2 nodes, runtime {name} (it imports ")


@pytest.mark.parametrize("said", ["resiliencePolicy", "failurePolicy", None])
@pytest.mark.parametrize("retries", [None, 0, 3])
async def test_a_runtime_that_says_what_follows_a_failure_is_overridden_only_if_asked(
    client: KubeClient, tmp_path: Path, said: str | None, retries: int | None
) -> None:
    obj = runtime("resilient", {})
    if said is not None:
        holder = obj["spec"] if said == "resiliencePolicy" else obj["spec"]["template"]["spec"]
        holder[said] = {"maxRestarts": 2}
    await client.create(CLUSTER_TRAINING_RUNTIMES, obj)
    found, _ = await find(client, runtime="resilient")
    program = Program(title="train.py", name="train", entry=("train.py",), directory=tmp_path, imports=Imports())
    files = collect_files(tmp_path, needed=(), made={"train.py": "pass\n"})
    *_, job = copied(program, Options(env={}, retries=retries), "a-job", found, files)
    annotation = {"trainmaster.dev/resilience-policy": f'{{"maxRestarts":{retries or 0}}}'}
    expected = None if said is not None and retries is None else annotation
    assert job["metadata"].get("annotations") == expected


async def test_a_runtime_of_ones_own_is_taken_as_it_is_unless_it_has_a_launcher(client: KubeClient) -> None:
    await client.create(CLUSTER_TRAINING_RUNTIMES, runtime("shared", {"torch": {}}, job="trains"))
    mine = runtime("mine", {}) | {"kind": "TrainingRuntime"}
    await client.create(TRAINING_RUNTIMES, mine, namespace="default")
    found, [told] = await find(client, "torch", runtime="shared")
    assert found == Runtime(kind="ClusterTrainingRuntime", name="shared", job="trains", torchrun=True)
    assert told == "train.py: torchrun on 1 node, runtime shared"
    # Without the policy nobody tells torchrun of the other nodes.
    found, _ = await find(client, "torch", runtime="mine")
    assert found == Runtime(kind="TrainingRuntime", name="mine", torchrun=False)
    # A runtime with a launcher is refused.
    await client.create(CLUSTER_TRAINING_RUNTIMES, runtime("deep", {"mpi": {"numProcPerNode": 1}}))
    with pytest.raises(ProgramError, match="the runtime deep starts its nodes by mpi"):
        await find(client, "torch", runtime="deep")
    # One that is nowhere is left to the cluster.
    found, _ = await find(client, "torch", runtime="missing")
    assert found == Runtime(kind="ClusterTrainingRuntime", name="missing", torchrun=True)
