"""The recorded cases: Trainmaster does what the Go controller did, except where `differences.yaml` says why not."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.admission import Requests
from support.golden import GOLDEN, Case, Player, agree, assert_same, load_case, load_yaml, recorded_cases
from support.sim.loop import Process, SimClock, VirtualLoop
from support.sim.server import SimTransport
from support.sim.world import World, simulate, trainer_registry
from support.specs import SpecPlayer, load_specs

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import Invalid
from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.jsonpatch import json_patch
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.runtime.jsontree import JsonObject

CASES = recorded_cases("cases")
DIFFERENCES: dict[str, Any] = load_yaml((GOLDEN / "differences.yaml").read_text())
DIFFERENT = {entry["case"]: entry for entry in DIFFERENCES["cases"]}

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """On a simulated cluster of its own: the deadlines of jobs pass in virtual time."""
    case, registry = load_case(name), trainer_registry(gangs=True)
    simulate(lambda loop, _: check(loop, registry, case), seed=1)


async def check(loop: VirtualLoop, registry: Registry, case: Case) -> None:
    world = World(loop, registry=registry, seed=1, bare=True)
    await create_system_namespaces(world.server.api)
    world.ensure(1)
    clock = SimClock(loop)
    transport = SimTransport(world.server, Process("recorder"))
    different = DIFFERENT.get(case.name, {})
    expected = dict(case.expected)
    for step, operations in different.get("steps", {}).items():
        expected[step] = json_patch(expected[step], operations)
    access = RestConfig(server="https://simulated")
    async with KubeClient(access, user_agent="recorder", transport=transport, clock=clock) as client:
        played = Player(client, clock).play(case, f"golden-{case.name[:3]}", expected)
        if "refused" in different:
            with pytest.raises(Invalid) as caught:
                async for _ in played:
                    pass
            assert caught.value.message == different["refused"]
            return
        async for step in played:
            if not agree(step.expected, step.seen):
                assert_same(step.seen, step.expected, f"step {step.name}")
    assert not world.violations, world.violations


def test_every_difference_belongs_to_a_case_and_has_its_reason() -> None:
    assert DIFFERENT.keys() <= CASES.keys()
    given = {reason for entry in DIFFERENT.values() for reason in entry["reasons"]}
    assert given == set(DIFFERENCES["reasons"])


SPECS = load_specs()
ROOT = Path(__file__).resolve().parents[2]


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
