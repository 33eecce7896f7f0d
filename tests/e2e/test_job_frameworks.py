"""Jobs of kubeflow.org/v1 that train with the frameworks they are named for, on a whole embedded cluster.

Each example spreads its data over the processes so that all of them together find another weight than any of them would
alone. JAX and XGBoost are there in `make test-nightly`, PyTorch after `make run`, the others in `make test-frameworks`.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from support.running_jobs import all_ended, job, jobs, logs, succeeded
from support.training import python, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/v1"
NEEDED = {
    "jaxjob": "jax",
    "paddlejob": "paddle",
    "pytorchjob": "torch",
    "pytorchjob-elastic": "torch",
    "tfjob": "tensorflow",
    "xgboostjob": "xgboost",
}
INSTALLED_BY = {"torch": "make run", "paddle": "make test-frameworks", "tensorflow": "make test-frameworks"}
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)

pytestmark = pytest.mark.timeout(240)


def needs(module: str) -> list[pytest.MarkDecorator]:
    by = INSTALLED_BY.get(module, "make test-nightly")
    missing = pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed; `{by}` installs it")
    return [missing, *([pytest.mark.torch] if module == "torch" else [])]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=needs(NEEDED[path.stem]), id=path.stem)
        for path in sorted(EXAMPLES.glob("*.yaml"))
        if path.stem in NEEDED
    ],
)
async def test_the_processes_of_an_example_learn_together(client: KubeClient, path: Path) -> None:
    for obj in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        obj["metadata"]["namespace"] = "default"
        resource = CONFIG_MAPS if obj["kind"] == "ConfigMap" else jobs(obj["kind"])
        await client.create(resource, obj)
    name, kind = obj["metadata"]["name"], obj["kind"]
    (specs,) = (value for field, value in obj["spec"].items() if field.endswith("ReplicaSpecs"))
    processes = sum(each["replicas"] for each in specs.values())
    await succeeded(client, kind, name)
    await all_ended(client, name)
    printed = await logs(client, name)
    told = [re.findall(r"^process (\d+) of (\d+): weight ([\d.]+)$", each, re.MULTILINE) for each in printed.values()]
    together = (processes + 1) / 2
    wanted = [(str(rank), str(processes), f"{together:.3f}") for rank in range(processes)]
    assert sorted(each for (each,) in told) == wanted, printed
    await client.delete(jobs(kind), "default", name)


REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
ranks = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(ranks)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {ranks.item()}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("_", [pytest.param(None, marks=needs("torch"), id="torch")])
async def test_torchrun_starts_several_processes_in_each_pod(client: KubeClient, _: None) -> None:
    """It reads the PET_* variables, and numbers the processes itself."""
    command = ["env", "OMP_NUM_THREADS=1", "torchrun", "--no-python", *python(REDUCE)]
    replicas = {"Master": (1, command), "Worker": (1, command)}
    await client.create(jobs("PyTorchJob"), job("PyTorchJob", "torchrun", replicas, nprocPerNode="2"))
    await succeeded(client, "PyTorchJob", "torchrun")
    await all_ended(client, "torchrun")
    told = re.findall(r"rank (\d) of 4, sum (\d+)", "".join((await logs(client, "torchrun")).values()))
    assert sorted(told) == [(str(rank), "10") for rank in range(4)]


# Waits in a group of two until a third process has come; torchrun starts the processes again for the group of three.
GROW = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
ranks = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(ranks)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {ranks.item()}", flush=True)
while dist.get_world_size() < 3:
    time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("_", [pytest.param(None, marks=needs("torch"), id="torch")])
async def test_an_elastic_job_grows_while_it_runs(client: KubeClient, _: None) -> None:
    # Without the second variable torchrun, as of PyTorch 2.13, never tells a node that comes later where the store is.
    variables = ["OMP_NUM_THREADS=1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"]
    command = ["env", *variables, "torchrun", "--monitor-interval=0.2", "--no-python", *python(GROW)]
    policy = {
        "rdzvBackend": "c10d",
        "minReplicas": 2,
        "maxReplicas": 3,
        "maxRestarts": 5,
        "rdzvConf": [{"key": "last_call_timeout", "value": "1"}],
    }
    asked = job("PyTorchJob", "grows", {"Worker": (2, command)}, elasticPolicy=policy, nprocPerNode="1")
    await client.create(jobs("PyTorchJob"), asked)

    async def two() -> bool:
        return sum("of 2, sum 3" in each for each in (await logs(client, "grows")).values()) == 2

    await until(two)
    await client.patch(jobs("PyTorchJob"), "default", "grows", {"spec": {"replicas": 3}}, subresource="scale")
    await succeeded(client, "PyTorchJob", "grows")
    await all_ended(client, "grows")
    printed = await logs(client, "grows")
    ranks = [rank for each in printed.values() for rank in re.findall(r"rank (\d) of 3, sum 6", each)]
    assert sorted(ranks) == ["0", "1", "2"], printed
