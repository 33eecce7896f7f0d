"""The health of the manager: when it counts as crashing, who is woken by a change, and who may ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.commands import TIMEOUT

from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.manager.health import (
    CRASHING,
    PATH,
    READY,
    STARTING,
    ManagerHealth,
    ManagerStatus,
    describe_exit,
)
from trainmaster.devcluster.manager.routes import RUNTIMES_PATH, manager_routes
from trainmaster.devcluster.testing.envtest import start_environment


def test_one_end_may_be_an_accident_and_two_are_a_crash() -> None:
    health = ManagerHealth("manager.log")
    health.waits("it does not answer yet")
    assert (health.status.phase, health.status.message) == (STARTING, "it does not answer yet")
    health.ready()
    health.ended(1, "oh", worked=False)
    assert (health.status.phase, health.status.summary) == (STARTING, "starting again (it ended with exit code 1)")
    health.ended(-9, "no", worked=False)
    assert (health.status.phase, health.status.message) == (CRASHING, "no")
    assert health.status.summary == "crashing (it ended 2 times, the last time by SIGKILL)"
    health.waits("it does not answer yet")
    assert (health.status.phase, health.status.message) == (CRASHING, "no"), "why it crashes stays visible"


def test_what_works_only_for_moments_crashes_and_what_worked_for_long_is_forgiven() -> None:
    health = ManagerHealth("manager.log")
    for worked, phase in ((False, STARTING), (False, CRASHING), (True, STARTING), (False, CRASHING)):
        health.ready()
        assert health.status.phase == READY
        health.ended(1, "oh", worked=worked)
        assert health.status.phase == phase


async def test_whoever_waits_for_a_state_gets_it() -> None:
    health = ManagerHealth("manager.log")
    waiting = [asyncio.create_task(health.until(lambda state: state.phase == READY)) for _ in range(2)]
    await asyncio.sleep(0)
    health.ended(1, "oh", worked=False)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    health.ready()
    async with asyncio.timeout(TIMEOUT):
        assert {state.phase for state in await asyncio.gather(*waiting)} == {READY}


@pytest.mark.parametrize(
    ("code", "words"),
    [(None, "with exit code None"), (0, "with exit code 0"), (-15, "by SIGTERM"), (-99, "by signal 99")],
)
def test_an_exit_is_described(code: int | None, words: str) -> None:
    assert describe_exit(code) == words


async def test_it_is_told_to_administrators_only_and_where_there_is_a_manager(tmp_path: Path) -> None:
    health = ManagerHealth("manager.log")
    health.ended(3, "oh", worked=False)
    (tmp_path / "with").mkdir()
    api = Api(Store(), builtin_registry())
    async with start_environment(tmp_path / "with", routes=manager_routes(health, api)) as served:
        async with served.session() as session, session.get(PATH) as answer:
            assert ManagerStatus.from_json(await answer.json()) == health.status
        somebody = {"Authorization": f"Bearer {served.token}", "Impersonate-User": "somebody"}
        for path in (PATH, RUNTIMES_PATH):
            async with served.session(headers=somebody) as session, session.get(path) as answer:
                assert answer.status == 403
    (tmp_path / "without").mkdir()
    async with (
        start_environment(tmp_path / "without") as served,
        served.session() as session,
        session.get(PATH) as answer,
    ):
        assert answer.status == 404


def test_the_status_that_an_earlier_version_serves_is_read() -> None:
    """Its cluster may still run when the command line is a newer one."""
    status = ManagerHealth("manager.log").status
    served = {key: value for key, value in status.to_json().items() if key != "metrics"}
    assert ManagerStatus.from_json(served) == status
