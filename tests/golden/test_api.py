"""The recorded verdicts: the API server says of each request what kube-apiserver said.

What differs, and how deep, is listed with its reason in `api-differences.yaml`. Whatever is listed and does not differ
so fails as well: the list only shrinks.
"""

from collections.abc import AsyncIterator
from typing import get_args

import pytest
import pytest_asyncio
import yaml
from support.golden import assert_same
from support.verdicts.answers import Level, difference
from support.verdicts.cases import case, case_names, listed
from support.verdicts.player import Player, bare_server

NAMES = case_names()
LISTED = {name: group for group in listed() for name in group.cases}

pytestmark = pytest.mark.golden


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def player(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Player]:
    async with bare_server(tmp_path_factory.mktemp("api")) as running, running.cluster_objects(map(case, NAMES)):
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", NAMES)
async def test_answer(player: Player, name: str) -> None:
    expected = case(name)["expect"]
    seen = await player.play(case(name))
    level = difference(expected, seen)
    if name not in LISTED:
        assert_same(seen, expected)
        return
    assert level is not None, "this case agrees now: take it off api-differences.yaml"
    assert level == LISTED[name].level, yaml.safe_dump({"expected": expected, "seen": seen})


def test_every_listed_difference_is_of_a_case_and_has_a_reason() -> None:
    names = [name for group in listed() for name in group.cases]
    assert set(names) <= set(NAMES)
    assert len(names) == len(set(names))
    assert all(group.reason and group.level in get_args(Level) for group in listed())
