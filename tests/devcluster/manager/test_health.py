"""The health of the manager, what a cluster registers and publishes of it, and tells of its end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import TIMEOUT
from support.devcluster.envtest import start_environment
from support.stack import api_server

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES, VALIDATING_WEBHOOKS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.manager.configuration import ManagerPorts, merge_configuration
from trainmaster.devcluster.manager.health import (
    CRASHING,
    PATH,
    READY,
    RUNTIMES_PATH,
    STARTING,
    ManagerHealth,
    ManagerStatus,
    describe_exit,
)
from trainmaster.devcluster.manager.process import last_error
from trainmaster.devcluster.manager.public_configmap import TRAINER_VERSION, publish_configmap
from trainmaster.devcluster.manager.routes import manager_routes
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks


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


EVERY_KIND = ["jaxjob", "paddlejob", "pytorchjob", "tfjob", "xgboostjob"]


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        (None, EVERY_KIND),
        ({"enabled": True, "enableScheme": []}, EVERY_KIND),
        ({"enableScheme": ["TFJob", "mpijob"]}, ["tfjob"]),
        ({"enableScheme": ["mpijob"]}, []),
        ({"enabled": False}, []),
        ("garbage", EVERY_KIND),
    ],
)
async def test_webhooks_of_jobs_are_registered_where_served(section: Any, kinds: list[str], tmp_path: Path) -> None:
    """Nobody could create a job otherwise: about a kind that is not served the manager knows nothing."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({} if section is None else {"trainingOperator": section}))
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("registers webhooks of its own")
        webhooks = ManagerWebhooks(tmp_path / "certificates", stack.cluster.services)
        configuration = merge_configuration(
            file, webhooks, ManagerPorts.choose(tmp_path / "none"), history=tmp_path / "h"
        )
        assert configuration is not None
        await webhooks.register(stack.cluster.api, jobs=configuration.served_jobs)
        assert len(stack.cluster.api.get(VALIDATING_WEBHOOKS, None, "validator.trainer.kubeflow.org")["webhooks"]) == 3
        try:
            found = stack.cluster.api.get(VALIDATING_WEBHOOKS, None, "validator.training-operator.kubeflow.org")
        except StatusError:  # there is none
            found = {"webhooks": []}
        assert [webhook["name"].split(".")[1] for webhook in found["webhooks"]] == kinds


PUBLIC = "/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public"
BY_A_POD = {"Impersonate-User": "system:serviceaccount:default:default"}


async def test_everybody_may_read_it_and_nothing_else(tmp_path: Path) -> None:
    async with start_environment(tmp_path, rbac=True) as served, served.session() as session:
        await publish_configmap(served.api)
        async with session.get(PUBLIC, headers=BY_A_POD) as response:
            assert response.status == 200
            assert (await response.json())["data"] == {"kubeflow_trainer_version": TRAINER_VERSION}
        async with session.delete(PUBLIC, headers=BY_A_POD) as response:
            assert response.status == 403
        async with session.get(PUBLIC.rpartition("/")[0], headers=BY_A_POD) as response:
            assert response.status == 403


async def test_a_cluster_that_starts_again_brings_it_up_to_date(tmp_path: Path) -> None:
    async with start_environment(tmp_path) as served:
        await publish_configmap(served.api)
        where = (CONFIGMAPS, "kubeflow-system", "kubeflow-trainer-public")
        edit = {"data": {"kubeflow_trainer_version": "old", "more": "1"}}
        await served.api.patch(*where, edit, patch_type=PatchType.MERGE)
        await publish_configmap(served.api)
        found = served.api.get(*where)
        assert found["data"] == {"kubeflow_trainer_version": TRAINER_VERSION, "more": "1"}


async def test_a_namespace_that_is_being_deleted_does_not_keep_a_cluster_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start_environment(tmp_path) as served:
        await served.api.delete(NAMESPACES, None, "kubeflow-system")
        await publish_configmap(served.api)
        assert "being terminated" in capsys.readouterr().out


HEAD = "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it said nothing; see its log"),
        (f"{HEAD} [info     ] all is well [trainmaster.x]\nText.\n{HEAD} [warning  ] oh [a.b] error='x'\n", "Text."),
        (f"{HEAD} [info     ] all is well [trainmaster.x]\n", "it said nothing; see its log"),
        ("\n\n", "it said nothing; see its log"),
        (
            "Traceback (most recent call last):\n  File\nModuleNotFoundError: no acme\n\n",
            "ModuleNotFoundError: no acme",
        ),
        (
            f"{HEAD} [error    ] it cannot run         [trainmaster.x] error='no such file'\n",
            "it cannot run: no such file",
        ),
        (
            f'{HEAD} [error    ] it failed [trainmaster.x] code=3 error="it\'s\\n  over\\n" more=1\n',
            "it failed: it's; over",
        ),
        (f"{HEAD} [critical ] no more  [trainmaster.x]\n{HEAD} [info     ] stopped [trainmaster.x]\n", "no more"),
        (f"{HEAD} [error    ] failed [a.b] error=Odd\nTraceback:\nValueError: 3\n", "failed: Odd"),
    ],
)
def test_the_last_error_is_found(tmp_path: Path, text: str, error: str) -> None:
    log = tmp_path / "manager.log"
    log.write_text(text)
    assert last_error(log, 0) == error


def test_what_an_earlier_manager_said_is_not_meant(tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    assert last_error(log, 0) == "it said nothing; see its log", "there is none yet"
    log.write_text("old\n")
    begin = log.stat().st_size
    assert last_error(log, begin) == "it said nothing; see its log"
    with log.open("a") as file:
        file.write("new\n")
    assert last_error(log, begin) == "new"
    # The log has been rotated since.
    log.write_text("n\n")
    assert last_error(log, begin) == "n"
    log.write_text("x" * 1_000_000 + "\nthe end\n")
    assert last_error(log, 0) == "the end"
