"""An elastic TrainJob that trains with torchrun on a whole cluster while its size changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.commands import eventually
from support.embedded import embedded
from support.kubectl import Kubectl
from support.manifests import NEEDS_KUBECTL
from support.team import team
from support.training import python, until

from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

kubernetes = pytest.importorskip("kubernetes", reason="`kubernetes` is not installed; `make test` installs it")

pytestmark = [
    pytest.mark.torch,
    *NEEDS_KUBECTL,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed; `make run` installs it"),
    pytest.mark.timeout(600),
]

TRAINING = """
import json, os, pathlib, time, torch, torch.distributed as dist
place = pathlib.Path(os.environ["PLACE"])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, wanted, is_over = 0, torch.arange(1.0, 5.0), torch.zeros(1)
judged = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))

def loss(model, inputs):
    return ((model(inputs).squeeze(1) - inputs @ wanted) ** 2).mean()

def note(event):
    with (place / "notes").open("a") as notes:
        print(json.dumps([event, world, step, loss(model.module, judged).item()]), file=notes)

if (place / "checkpoint").exists():
    kept = torch.load(place / "checkpoint")
    step = kept["step"]
    model.load_state_dict(kept["model"])
if rank == 0:
    note("begins")
while not is_over:
    optimizer.zero_grad()
    loss(model, torch.randn(8, 4)).backward()
    optimizer.step()
    step += 1
    if rank == 0:
        torch.save({"step": step, "model": model.state_dict()}, place / "new")
        note("saves")
        os.replace(place / "new", place / "checkpoint")
        is_over[0] = (place / "end").exists()
    dist.broadcast(is_over, 0)
    time.sleep(0.05)
dist.destroy_process_group()
"""


class Notes:
    """What the training wrote down: what happened, with how many nodes, at which step and with which loss."""

    def __init__(self, place: Path) -> None:
        self._file = place / "notes"

    def read(self) -> list[list[Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    async def trains_on(self, nodes: int) -> int:
        """Wait until so many nodes train; returns the step."""

        def trained() -> bool:
            return [each[:2] for each in self.read()[-2:]] == [["saves", nodes]] * 2

        await eventually(trained)
        step: int = self.read()[-1][2]
        return step


@pytest.fixture(params=[False, True], ids=["replaced", "in-place"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """A cluster whose JobSets have a fixed size, as they have by default, and one whose JobSets have not."""
    options = ["--elastic-jobsets"] if request.param else []
    with embedded(tmp_path, *options) as home:
        yield home, request.param


async def test_two_nodes_grow_to_four_and_shrink_to_one(home: tuple[Path, bool], tmp_path: Path) -> None:
    """The first change is made by kubectl, the second one by the Python client."""
    directory, in_place = home
    place, kubeconfig = tmp_path / "place", directory / ".trainmaster/kubeconfig"
    place.mkdir()
    notes, kubectl = Notes(place), Kubectl(kubeconfig, tmp_path)
    async with team(kubeconfig, "elastic", tmp_path) as mine:

        async def ledger() -> JsonObject:
            status: JsonObject = (await mine.client.get(TRAINJOBS, mine.name, "grows"))["status"]["resilience"]
            return status

        async def resized(nodes: int, attempts: int) -> None:
            async def noted() -> bool:
                return bool((await ledger())["nodes"] == nodes)

            await until(noted)
            lost = [each["reason"] for each in (await ledger()).get("attempts", ())]
            assert lost == ([] if in_place else ["Resized"] * attempts)

        async def scale(nodes: int, *, code: int = 0) -> str:
            return await kubectl("scale", "trainjob/grows", f"--replicas={nodes}", "-n", mine.name, code=code)

        job = mine.manifest("grows", "")
        job["spec"]["trainer"] = {
            "numNodes": 2,
            "elasticPolicy": {"minNodes": 1, "maxNodes": 4, "maxRestarts": 20},
            "command": [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--rdzv-conf=last_call_timeout=1",
                "--no-python",
            ],
            "args": python(TRAINING),
            "env": [{"name": "PLACE", "value": str(place)}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        }
        await mine.client.create(TRAINJOBS, job)
        at_two = await notes.trains_on(2)
        assert await scale(4) == "trainjob.trainer.kubeflow.org/grows scaled\n"
        at_four = await notes.trains_on(4)
        await resized(4, attempts=1)
        assert "must be between 1 and 4, the limits of elasticPolicy" in await scale(5, code=1)
        with kubernetes.config.new_client_from_config(str(kubeconfig)) as opened:
            kubernetes.client.CustomObjectsApi(opened).patch_namespaced_custom_object(
                *("trainer.kubeflow.org", "v1alpha1", mine.name, "trainjobs", "grows"),
                {"spec": {"trainer": {"numNodes": 1}}},
            )
        await notes.trains_on(1)
        await resized(1, attempts=2)
        (place / "end").touch()
        await mine.condition("grows", "Complete")
        assert [each["nodes"] for each in (await ledger())["worldSizes"]] == [2, 4, 1]
    saved = [each[2:] for each in notes.read() if each[0] == "saves"]
    begun = [each[1:] for each in notes.read() if each[0] == "begins"]
    last = {nodes: step for nodes, step, _ in begun}
    assert (last[4] >= at_two, last[1] >= at_four) == (True, True)
    for _, step, loss in begun:
        assert step == 0 or [step, pytest.approx(loss)] in saved, "training goes on from the checkpoint"
    assert saved[-1][1] < saved[0][1]
