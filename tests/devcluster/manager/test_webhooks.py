"""What a cluster registers and publishes of its manager, and tells of the end of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.stack import api_server

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import PatchType
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES, VALIDATING_WEBHOOKS
from trainmaster.devcluster.manager.configuration import ManagerPorts, merge_configuration
from trainmaster.devcluster.manager.last_error import last_error
from trainmaster.devcluster.manager.public_configmap import TRAINER_VERSION, publish_configmap
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks
from trainmaster.devcluster.testing.envtest import start_environment

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
async def test_webhooks_of_jobs_are_registered_where_they_are_answered(
    section: Any, kinds: list[str], tmp_path: Path
) -> None:
    """Nobody could create a job otherwise: about a kind that is not served the manager knows nothing."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({} if section is None else {"trainingOperator": section}))
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("registers webhooks of its own")
        webhooks = ManagerWebhooks(tmp_path / "certificates", stack.cluster.services)
        configuration = merge_configuration(file, webhooks, ManagerPorts.choose(tmp_path / "none"))
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
