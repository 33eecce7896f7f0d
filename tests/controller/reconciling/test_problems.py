"""How the owner of a TrainJob is told what stands in its way."""

from __future__ import annotations

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World, refused, world_with

from trainmaster.controller.reconciling.outcomes import Requeue
from trainmaster.controller.reconciling.problems import Problem


async def test_a_message_that_changes_on_every_try_is_not_written_on_every_try() -> None:
    """Each write of the status is an event that wakes the job up at once, past every backoff: a hot loop."""
    world = world_with()
    for port in range(41000, 41050):
        world.refusal = refused(f"failed calling webhook: read tcp 10.0.0.1:{port}->10.0.0.2:443: connection reset")
        assert isinstance(await world.reconcile(), Requeue)
    assert len(world.patches) == len(world.events) == 1
    await world.reconcile_after(60)
    assert len(world.patches) == len(world.events) == 2
    assert ":41049->" in world.conditions["Blocked"]["message"]


@pytest.mark.defect("B25")
async def test_a_percent_sign_is_told_as_it_is() -> None:
    world = world_with()
    world.refusal = refused("100%s of 5%d%%")
    await world.reconcile()
    (note,) = world.events
    assert note.endswith("100%s of 5%d%%")
    assert "100%s of 5%d%%" in world.conditions["Blocked"]["message"]


async def test_another_reason_is_told_at_once() -> None:
    world = World()
    world.put(trainjob_object())
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeNotFound"
    world.put(runtime_object())
    world.refusal = refused("no")
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "ApplyFailed"


@pytest.mark.parametrize("message", ["x" * 5000, "é" * 5000, "short"])
def test_a_note_fits_its_event(message: str) -> None:
    """The limit of the API is 1024 bytes, not characters."""
    note = Problem("ApplyFailed", message).note("TrainJob")
    assert len(note.encode()) <= 1024
    assert note.endswith(("short", " ..."))


@pytest.mark.guarantee("M-11")
def test_owners_read_no_credential_that_somebody_quotes() -> None:
    token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmVk"
    problem = Problem("PluginFailed", f"plugin theirs failed in build: RuntimeError: {token} is no good")
    assert "c2lnbmVk" not in f"{problem.condition()} {problem.note('TrainJob')}"
    assert problem.condition()["message"].endswith("RuntimeError: [redacted] is no good")
