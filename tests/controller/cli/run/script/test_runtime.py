"""Which runtime a program gets, on an API server with some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.team import Team

from trainmaster.controller.cli.run.script.errors import ProgramError
from trainmaster.controller.cli.run.script.imports import Imports
from trainmaster.controller.cli.run.script.options import Options
from trainmaster.controller.cli.run.script.program import Program
from trainmaster.controller.cli.run.script.runtime import find_runtime
from trainmaster.controller.cli.run.script.trainjob import Runtime
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from trainmaster.devcluster.cluster import Cluster
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def client(quiet: tuple[Team, Cluster]) -> KubeClient:
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
