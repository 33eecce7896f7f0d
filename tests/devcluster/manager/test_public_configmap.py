"""The public ConfigMap of the control plane, which clients look for before anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.devcluster.apiserver.registry.generic import PatchType
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES
from trainmaster.devcluster.manager.public_configmap import TRAINER_VERSION, publish_configmap
from trainmaster.devcluster.testing.envtest import start_environment

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
