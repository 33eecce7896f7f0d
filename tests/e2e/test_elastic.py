"""An elastic TrainJob on a whole cluster, whose nodes meet by the environment of torchrun while its size changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import eventually
from support.embedded import embedded
from support.team import team
from support.training import python, until

from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

NODE = """
import os, pathlib, socket, threading, time
place = pathlib.Path(os.environ["PLACE"])
host, port = os.environ["PET_RDZV_ENDPOINT"].split(":")
assert os.environ["PET_NNODES"] == "1:4" and "PET_NODE_RANK" not in os.environ
peers = set()
def keep(peer):
    peers.add(peer)
    try:
        peer.recv(1)
    except OSError:
        pass
    peers.discard(peer)
def serve(server):
    while True:
        threading.Thread(target=keep, args=(server.accept()[0],), daemon=True).start()
def write(name, text):
    (place / (name + ".new")).write_text(text)
    os.replace(place / (name + ".new"), place / name)
if os.environ["JOB_COMPLETION_INDEX"] == "0":
    server = socket.create_server((host, int(port)))
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    step = int((place / "checkpoint").read_text()) if (place / "checkpoint").exists() else 0
    while not (place / "end").exists():
        step += 1
        write("checkpoint", str(step))
        write("world", str(len(peers) + 1))
        time.sleep(0.05)
else:
    while not (place / "end").exists():
        try:
            socket.create_connection((host, int(port))).recv(1)
        except OSError:
            time.sleep(0.05)
"""


@pytest.fixture(params=[False, True], ids=["replaced", "in-place"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """A cluster whose JobSets have a fixed size, as they have by default, and one whose JobSets have not."""
    options = ["--elastic-jobsets"] if request.param else []
    with embedded(tmp_path, *options) as home:
        yield home, request.param


async def test_two_nodes_grow_to_four_and_shrink_to_one(home: tuple[Path, bool], tmp_path: Path) -> None:
    directory, in_place = home
    place = tmp_path / "place"
    place.mkdir()
    async with team(directory / ".trainmaster/kubeconfig", "elastic", tmp_path) as mine:

        async def ledger() -> JsonObject:
            status: JsonObject = (await mine.client.get(TRAINJOBS, mine.name, "grows"))["status"]["resilience"]
            return status

        async def world(nodes: int) -> None:
            file = place / "world"
            await eventually(lambda: file.exists() and file.read_text() == str(nodes))

        def checkpoint() -> int:
            return int((place / "checkpoint").read_text())

        job = mine.manifest("grows", "")
        job["spec"]["trainer"] = {
            "numNodes": 2,
            "elasticPolicy": {"minNodes": 1, "maxNodes": 4},
            "command": python(NODE),
            "env": [{"name": "PLACE", "value": str(place)}],
        }
        await mine.client.create(TRAINJOBS, job)
        await world(2)
        for attempts, nodes in enumerate((4, 1), start=1):
            before = checkpoint()
            await mine.client.patch(TRAINJOBS, mine.name, "grows", {"spec": {"trainer": {"numNodes": nodes}}})
            await world(nodes)
            assert checkpoint() >= before, "training goes on from the checkpoint"

            async def noted(nodes: int = nodes) -> bool:
                return bool((await ledger())["worldSizes"][-1]["nodes"] == nodes)

            await until(noted)
            lost = [each["reason"] for each in (await ledger()).get("attempts", ())]
            assert lost == ([] if in_place else ["Resized"] * attempts)
        (place / "end").touch()
        await mine.condition("grows", "Complete")
        assert [each["nodes"] for each in (await ledger())["worldSizes"]] == [2, 4, 1]
