"""The specs of the original's integration suites hold, or say by which declared differences they do not.

They are played as the original plays them: an API server with the definitions of the original (and again with ours) and
webhooks, one manager, and neither a controller of JobSets nor pods.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.admission import Requests, admitting
from support.golden import load_yaml
from support.original_crds import install_original_definitions
from support.specs import SpecPlayer, load_specs
from support.stack import api_server

from trainmaster.runtime.jsontree import JsonObject

SPECS = load_specs()
SCHEMAS = ("original", "ours")
ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.golden, pytest.mark.slow(seconds=60)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SCHEMAS)
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, Requests]]:
    """Which definitions the cluster has, and how it is asked."""
    directory = tmp_path_factory.mktemp("specs")
    async with api_server(directory) as stack:
        if request.param == "original":
            if stack.cluster is None:
                pytest.skip("the definitions of a foreign cluster stay as they are")
            await install_original_definitions(stack)
        async with admitting(stack, directory / "serving") as requests:
            yield request.param, requests


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["id"])
async def test_spec(served: tuple[str, Requests], spec: JsonObject) -> None:
    schemas, requests = served
    steps = spec["steps"]
    for difference in spec.get("differs", ()):
        if difference.get("definitions", schemas) == schemas:
            steps = difference["steps"]
    await SpecPlayer(requests, re.sub("[^a-z0-9]+", "-", spec["id"])).play(steps)


def test_every_spec_has_an_id_of_its_own() -> None:
    assert len({spec["id"] for spec in SPECS}) == len(SPECS) == 92


def test_every_difference_is_declared() -> None:
    """By specs and by recorded cases alike: on the page of defects, or on that of differences."""
    declared: set[str] = set()
    for page in ("upstream-defects", "differences"):
        ids = re.findall(r"^\| ([A-Z][A-Z0-9-]*) \|", (ROOT / f"docs/{page}.md").read_text(), re.MULTILINE)
        assert len(ids) == len(set(ids))
        assert not declared & set(ids)
        declared |= set(ids)
    named = {name for spec in SPECS for difference in spec.get("differs", ()) for name in difference["by"]}
    for recorded in ("differences", "admission-differences"):
        named |= load_yaml((ROOT / f"tests/golden/{recorded}.yaml").read_text())["reasons"].keys()
    assert named <= declared
