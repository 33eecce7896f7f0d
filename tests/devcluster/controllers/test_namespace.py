"""Namespaces: what each comes with, and what holds one that ends."""

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES, SERVICE_ACCOUNTS
from trainmaster.devcluster.controllers.namespace import NamespaceController
from trainmaster.devcluster.controllers.serviceaccount import ServiceAccountController


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    cluster.start(NamespaceController(cluster.api), ServiceAccountController(cluster.api, root_ca="PEM"))
    await cluster.namespace("team")
    await cluster.settle()
    return cluster


async def test_what_holds_a_namespace_is_told(cluster: Stepper) -> None:
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["acme.io/hold"]}}
    await cluster.api.create(CONFIGMAPS, held, namespace="team")
    await cluster.delete(NAMESPACES, "team", namespace=None)
    namespace = cluster.api.get(NAMESPACES, None, "team")
    messages = {each["type"]: each["message"] for each in namespace["status"]["conditions"]}
    assert "configmaps has 1 resource instances" in messages["NamespaceContentRemaining"]
    assert "acme.io/hold in 1 resource instances" in messages["NamespaceFinalizersRemaining"]
    obj = cluster.api.get(CONFIGMAPS, "team", "held")
    await cluster.api.update(CONFIGMAPS, {**obj, "metadata": {**obj["metadata"], "finalizers": []}})
    await cluster.settle()
    assert not cluster.exists(NAMESPACES, "team", namespace=None)


async def test_a_restarted_controller_finishes_a_termination(cluster: Stepper) -> None:
    cluster.stop()
    await cluster.api.delete(NAMESPACES, None, "team")
    assert cluster.exists(NAMESPACES, "team", namespace=None)
    cluster.start(NamespaceController(cluster.api))
    await cluster.settle()
    assert not cluster.exists(NAMESPACES, "team", namespace=None)


async def test_they_come_back_when_deleted_or_changed(cluster: Stepper) -> None:
    await cluster.delete(SERVICE_ACCOUNTS, "default", namespace="team")
    published = cluster.api.get(CONFIGMAPS, "team", "kube-root-ca.crt")
    await cluster.api.update(CONFIGMAPS, {**published, "data": {"ca.crt": "forged"}})
    await cluster.settle()
    assert cluster.exists(SERVICE_ACCOUNTS, "default", namespace="team")
    assert cluster.api.get(CONFIGMAPS, "team", "kube-root-ca.crt")["data"] == {"ca.crt": "PEM"}
