"""What every namespace comes with."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, SERVICE_ACCOUNTS
from trainmaster.devcluster.controllers.serviceaccount.controller import ServiceAccountController
from trainmaster.devcluster.testing.stepper import Stepper


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    cluster.start(ServiceAccountController(cluster.api, root_ca="PEM"))
    await cluster.namespace("team")
    await cluster.settle()
    return cluster


async def test_every_namespace_has_an_account_and_the_root_certificate(cluster: Stepper) -> None:
    assert cluster.exists(SERVICE_ACCOUNTS, "default", namespace="team")
    assert cluster.api.get(CONFIGMAPS, "team", "kube-root-ca.crt")["data"] == {"ca.crt": "PEM"}


async def test_they_come_back_when_deleted_or_changed(cluster: Stepper) -> None:
    await cluster.delete(SERVICE_ACCOUNTS, "default", namespace="team")
    published = cluster.api.get(CONFIGMAPS, "team", "kube-root-ca.crt")
    await cluster.api.update(CONFIGMAPS, {**published, "data": {"ca.crt": "forged"}})
    await cluster.settle()
    assert cluster.exists(SERVICE_ACCOUNTS, "default", namespace="team")
    assert cluster.api.get(CONFIGMAPS, "team", "kube-root-ca.crt")["data"] == {"ca.crt": "PEM"}
