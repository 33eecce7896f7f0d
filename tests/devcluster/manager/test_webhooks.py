"""Which webhooks of its manager a cluster registers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.stack import api_server

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import VALIDATING_WEBHOOKS
from trainmaster.devcluster.manager.configuration import ManagerPorts, merge_configuration
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks

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
