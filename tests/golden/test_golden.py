"""The recorded cases: Trainmaster does what the Go controller did, except where `differences.yaml` says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.golden import Player, agree, load_case, load_yaml
from support.stack import Stack, api_server, manager

from trainmaster.controller.kube.rest.errors import Invalid
from trainmaster.devcluster.apiserver.jsonpatch import json_patch

HERE = Path(__file__).parent
CASES = sorted((HERE / "cases").glob("*.yaml"))
DIFFERENCES: dict[str, Any] = load_yaml((HERE / "differences.yaml").read_text())
DIFFERENT = {entry["case"]: entry for entry in DIFFERENCES["cases"]}

pytestmark = [pytest.mark.golden, pytest.mark.slow(seconds=108)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with api_server(tmp_path_factory.mktemp("golden")) as stack, manager(stack.access):
        yield stack


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
async def test_case(stack: Stack, path: Path) -> None:
    case = load_case(path)
    different = DIFFERENT.get(path.stem, {})
    expected = dict(case.expected)
    for step, operations in different.get("steps", {}).items():
        expected[step] = json_patch(expected[step], operations)
    player = Player(stack.client)
    namespace = f"golden-{path.stem[:3]}"
    if "refused" in different:
        with pytest.raises(Invalid) as caught:
            async for _ in player.play(case, namespace, expected):
                pass
        assert caught.value.message == different["refused"]
        return
    async for step in player.play(case, namespace, expected):
        if not agree(step.expected, step.seen):
            # Compared as text, because pytest's difference of lines is the one that people can read.
            assert yaml.safe_dump(step.seen) == yaml.safe_dump(step.expected), f"step {step.name}"


def test_every_difference_belongs_to_a_case_and_has_its_reason() -> None:
    assert set(DIFFERENT) <= {path.stem for path in CASES}
    given = {reason for entry in DIFFERENT.values() for reason in entry["reasons"]}
    assert given == set(DIFFERENCES["reasons"])
