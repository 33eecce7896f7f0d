"""PyTorch on four nodes, one of which is killed again and again: training goes on from checkpoints, to its end.

TRAINMASTER_KILL_SECONDS says for how long that is done.
"""

import asyncio
import os
import random
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from support.authorities import Authority
from support.commands import eventually
from support.training import ended, python, reporting_cluster, trainjob

from trainmaster import report
from trainmaster.controller.kube.clock import parse_time
from trainmaster.controller.resources import TRAINJOBS

SECONDS = float(os.environ.get("TRAINMASTER_KILL_SECONDS") or 75)
NODES = 4
START = 120.0
"""Seconds for which an attempt may take until its first checkpoint."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed; `make run` installs it"),
    pytest.mark.timeout(SECONDS + 3 * START),
]

SCRIPT = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist
sys.path.insert(0, {place!r})
import copied

place, rank = pathlib.Path({place!r}), int(os.environ["PET_NODE_RANK"])

def write(name, text):
    (place / "new").mkdir(exist_ok=True)
    (place / "new" / name).write_text(text)
    os.replace(place / "new" / name, place / name)

attempt = len(list(place.glob(f"pid-*-{{rank}}")))
write(f"pid-{{attempt}}-{{rank}}", str(os.getpid()))
torch.set_num_threads(1)
address = "tcp://{{PET_MASTER_ADDR}}:{{PET_MASTER_PORT}}".format(**os.environ)
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=int(os.environ["PET_NNODES"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, wanted, is_over = 0, torch.arange(1.0, 5.0), torch.zeros(1)
if (place / "checkpoint").exists():
    kept = torch.load(place / "checkpoint")
    step = kept["step"]
    model.load_state_dict(kept["model"])
if rank == 0:
    write(f"begun-{{attempt}}", str(step))
while not is_over:
    for _ in range(25):
        inputs = torch.randn(8, 4)
        loss = ((model(inputs).squeeze(1) - inputs @ wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(0.1)
    if rank == 0:
        (place / "saving").touch()
        torch.save({{"step": step, "model": model.state_dict()}}, place / "checkpoint.new")
        os.replace(place / "checkpoint.new", place / "checkpoint")
        saved = time.time()
        copied.progress(metrics={{"loss": loss.item()}}, checkpoint=True)
        copied.flush()
        write(f"saved-{{attempt}}", f"{{saved}} {{step}}")
        (place / "saving").unlink()
        is_over[0] = (place / "calm").exists()
    dist.broadcast(is_over, 0)
if rank == 0:
    write("loss", str(loss.item()))
dist.destroy_process_group()
"""


class Kill(NamedTuple):
    at: int
    saved: int
    """When the last checkpoint before was written, as the script says."""

    step: int
    """That of the checkpoint."""

    following: int
    """With which the next attempt began."""


async def kill(place: Path, attempt: int, chance: random.Random) -> int:
    """Kill a node of an attempt at some moment after its first checkpoint; returns when, in seconds since 1970."""
    await eventually((place / f"saved-{attempt}").exists, timeout=START)
    await asyncio.sleep(chance.uniform(0, 6))
    victim = chance.randrange(NODES)
    # The API has whole seconds: what happens early in one is seen in the same one.
    await eventually(lambda: not (place / "saving").exists() and time.time() % 1 < 0.4)
    os.kill(int((place / f"pid-{attempt}-{victim}").read_text()), signal.SIGKILL)
    return int(time.time())


def told(place: Path, attempt: int, at: int) -> Kill:
    saved, step = (place / f"saved-{attempt}").read_text().split()
    return Kill(at, int(float(saved)), int(step), int((place / f"begun-{attempt + 1}").read_text()))


async def test_training_reaches_its_end_though_a_node_is_killed_again_and_again(tmp_path: Path) -> None:
    Authority().mount(tmp_path / "certificates")
    (tmp_path / "copied.py").write_text(Path(report.__file__).read_text())
    chance, times = random.Random(35), list[int]()
    async with reporting_cluster(tmp_path, tmp_path / "certificates") as client:
        trainer = {"numNodes": NODES, "command": python(SCRIPT.format(place=str(tmp_path)))}
        await client.create(TRAINJOBS, trainjob("survives", trainer=trainer, resiliencePolicy={"maxRestarts": 99}))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            times.append(await kill(tmp_path, len(times), chance))
        (tmp_path / "calm").touch()
        end = await ended(client, "survives", timeout=START)
        assert end["type"] == "Complete", end
        status = (await client.get(TRAINJOBS, "default", "survives"))["status"]
    kills = [told(tmp_path, attempt, at) for attempt, at in enumerate(times)]
    ledger, goodput = status["resilience"], status["resilience"]["goodput"]
    assert [(each["reason"], each["charged"]) for each in ledger["attempts"]] == [("Failed", True)] * len(kills)
    assert status["restarts"] == ledger["chargedRestarts"] == len(kills) > 1
    late = [
        parse_time(each["endedAt"]).timestamp() - kill.at for each, kill in zip(ledger["attempts"], kills, strict=True)
    ]
    assert set(late) <= {0, 1}
    assert abs(goodput["lostSeconds"] - sum(max(each.at - each.saved, 0) for each in kills)) <= 1
    assert not goodput["estimated"]
    assert all(each.following == each.step for each in kills)
    assert float((tmp_path / "loss").read_text()) < 0.01
