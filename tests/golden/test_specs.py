"""The specs of the original's integration suites hold, or say by which declared differences they do not.

They are played as the original plays them: an API server with the definitions of the original (and again with ours) and
webhooks, one manager, and neither a controller of JobSets nor pods.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.admission import Requests
from support.golden import load_yaml
from support.specs import SpecPlayer, load_specs

from trainmaster.runtime.jsontree import JsonObject

SPECS = load_specs()
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.golden


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
    """By specs and by recorded cases alike: on a page of defects, or on that of differences."""
    declared: set[str] = set()
    for page in ("upstream-defects", "training-operator-defects", "differences"):
        ids = re.findall(r"^\| ([A-Z][A-Z0-9-]*) \|", (ROOT / f"docs/{page}.md").read_text(), re.MULTILINE)
        assert len(ids) == len(set(ids))
        assert not declared & set(ids)
        declared |= set(ids)
    named = {name for spec in SPECS for difference in spec.get("differs", ()) for name in difference["by"]}
    for recorded in ("differences", "admission-differences", "v1-differences"):
        named |= load_yaml((ROOT / f"tests/golden/{recorded}.yaml").read_text())["reasons"].keys()
    assert named <= declared
