"""The recorded cases: Trainmaster does what the Go controller did, except where `differences.yaml` says why not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.golden import RESOURCES, Case, Player, agree, assert_same, load_case, load_yaml
from support.stack import api_server, manager

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Invalid
from trainmaster.devcluster.apiserver.jsonpatch import json_patch

HERE = Path(__file__).parent
CASES = sorted((HERE / "cases").glob("*.yaml"))
DIFFERENCES: dict[str, Any] = load_yaml((HERE / "differences.yaml").read_text())
DIFFERENT = {entry["case"]: entry for entry in DIFFERENCES["cases"]}

AT_ONCE = 8
"""How many cases are played at once."""

pytestmark = pytest.mark.golden


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[Path, asyncio.Task[None]]]:
    """The cases that were asked for, several at once: most of each is waiting for deadlines and for nothing to come."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    cases = [load_case(path) for path in CASES if f"{test_case.__name__}[{path.stem}]" in chosen]
    several, alone = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
    names = {name for case in cases for name in cluster_wide(case)}

    async def play(client: KubeClient, case: Case) -> None:
        inputs = json.dumps([case.given, case.steps])
        shares = any(json.dumps(name) in inputs for name in names)
        async with alone if shares else nullcontext(), several:
            await check(client, case)

    async with api_server(tmp_path_factory.mktemp("golden")) as stack, manager(stack.access):
        tasks = {case.path: asyncio.create_task(play(stack.client, case)) for case in cases}
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def cluster_wide(case: Case) -> set[str]:
    """The names of the objects of a case that its namespace does not keep from other cases."""
    targets = [target for step in case.steps for action in step.get("do") or () for target in action.values()]
    objects = [*case.given, *(target for target in targets if isinstance(target, dict) and "metadata" in target)]
    return {obj["metadata"]["name"] for obj in objects if not RESOURCES[obj["kind"]].namespaced}


async def check(client: KubeClient, case: Case) -> None:
    different = DIFFERENT.get(case.path.stem, {})
    expected = dict(case.expected)
    for step, operations in different.get("steps", {}).items():
        expected[step] = json_patch(expected[step], operations)
    played = Player(client).play(case, f"golden-{case.path.stem[:3]}", expected)
    if "refused" in different:
        with pytest.raises(Invalid) as caught:
            async for _ in played:
                pass
        assert caught.value.message == different["refused"]
        return
    async for step in played:
        if not agree(step.expected, step.seen):
            assert_same(step.seen, step.expected, f"step {step.name}")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
async def test_case(playing: dict[Path, asyncio.Task[None]], path: Path) -> None:
    await playing[path]


def test_every_difference_belongs_to_a_case_and_has_its_reason() -> None:
    assert set(DIFFERENT) <= {path.stem for path in CASES}
    given = {reason for entry in DIFFERENT.values() for reason in entry["reasons"]}
    assert given == set(DIFFERENCES["reasons"])
