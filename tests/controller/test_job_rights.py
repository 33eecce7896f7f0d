"""The rights that jobs of `kubeflow.org/v1` need: with exactly the shipped roles everything works, and none is idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.enforcement import Enforced, enforced, shipped_configuration, shipped_objects
from support.jobworld import KINDS, job_object, replicas
from support.stack import manager
from support.training import until

from trainmaster.controller.configuration import TrainingOperator
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS, SERVICES, Resource
from trainmaster.controller.manager import training_operator
from trainmaster.controller.resources import job_resource
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.devcluster.testing.faults import Refuse, StallWatch
from trainmaster.runtime.jsontree import JsonObject

TEAM = "team"

RESOURCES = {kind: job_resource(each) for kind, each in KINDS.items()}
AUTOSCALERS = Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", namespaced=True)
ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", namespaced=True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", namespaced=True)
OWNED = (PODS, SERVICES, AUTOSCALERS, ACCOUNTS, ROLES, ROLE_BINDINGS)

LEADS = {"PyTorchJob": "Master", "XGBoostJob": "Master", "MPIJob": "Launcher"}
METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Enforced]:
    monkeypatch.setattr(training_operator, "DISCOVERY_INTERVAL", 0.1)
    async with enforced(tmp_path) as cluster:
        assert cluster.stack.cluster is not None
        await install_definitions(cluster.stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        await cluster.apply(shipped_objects())
        yield cluster


async def create_job(cluster: Enforced, kind: str, name: str, **more: Any) -> None:
    """Create a job whose leading type has one replica, with two workers where there are any besides."""
    container = KINDS[kind].container_name
    lead = LEADS.get(kind, "Worker")
    types = {lead: replicas(1, container=container)} | (
        {} if lead == "Worker" else {"Worker": replicas(1, container=container)}
    )
    job = job_object(kind, types, **more)
    await cluster.client.create(RESOURCES[kind], {**job, "metadata": {"name": name, "namespace": TEAM}})


async def foreign(cluster: Enforced, resource: Resource, name: str, **more: Any) -> None:
    """Create an object of somebody else."""
    metadata = {"name": name, "namespace": TEAM}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **more}
    await cluster.client.create(resource, obj)


async def is_blocked(cluster: Enforced, kind: str, name: str) -> bool:
    status = (await cluster.client.get(RESOURCES[kind], TEAM, name)).get("status") or {}
    return any(each["type"] == "Blocked" for each in status.get("conditions") or ())


async def pods_of(cluster: Enforced, name: str) -> list[JsonObject]:
    selector = f"training.kubeflow.org/job-name={name}"
    found: list[JsonObject] = (await cluster.client.list(PODS, TEAM, label_selector=selector))["items"]
    return found


async def test_whose_names_are_taken_is_found_out_past_caches_that_lag(cluster: Enforced) -> None:
    """No watch brings anything: what is there is listed once, and read where it stands in the way."""
    assert cluster.stack.cluster is not None
    faults = cluster.stack.cluster.faults
    for resource in (*OWNED, *RESOURCES.values()):
        faults.add(Refuse(500), verb="watch", resource=resource.plural, user_agent="trainmaster/", times=2)
    stalled = [
        faults.add(StallWatch(), verb="watch", resource=resource.plural, user_agent="trainmaster/")
        for resource in OWNED
    ]

    async def are_filled() -> bool:
        return all(fault.count >= 3 for fault in stalled)

    async with manager(cluster.access, configuration=shipped_configuration()):
        await until(are_filled)
        pod = {"spec": {"containers": [{"name": "theirs", "image": "image"}]}}
        scaled = {"scaleTargetRef": {"kind": "Theirs", "name": "theirs"}, "maxReplicas": 1}
        await foreign(cluster, PODS, "a-worker-0", **pod)
        await foreign(cluster, SERVICES, "b-worker-0", spec={"clusterIP": "None"})
        await foreign(cluster, AUTOSCALERS, "c", spec=scaled)
        await foreign(cluster, ROLES, "d-launcher")
        reference = {"apiGroup": ROLES.group, "kind": "Role", "name": "theirs"}
        await foreign(cluster, ROLE_BINDINGS, "e-launcher", roleRef=reference)
        await foreign(cluster, ACCOUNTS, "f-launcher")
        await foreign(cluster, ROLES, "f-launcher")
        await create_job(cluster, "JAXJob", "a")
        await create_job(cluster, "JAXJob", "b")
        await create_job(
            cluster, "PyTorchJob", "c", elasticPolicy={"minReplicas": 1, "maxReplicas": 2, "metrics": METRICS}
        )
        for name in "def":
            await create_job(cluster, "MPIJob", name)
        for kind, name in (("JAXJob", "a"), ("JAXJob", "b"), ("PyTorchJob", "c"), ("MPIJob", "d"), ("MPIJob", "e")):
            await until(partial(is_blocked, cluster, kind, name))
        await until(lambda: is_blocked(cluster, "MPIJob", "f"))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_lives_and_ends_with_exactly_these_rights(cluster: Enforced, kind: str) -> None:
    """Its pods are made, and made again; it succeeds, is cleaned up, and is deleted when its time has passed."""
    gang = TrainingOperator(gang_scheduler_name="scheduler-plugins-scheduler")
    policy = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1}
    elastic = (
        {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "metrics": METRICS}} if kind == "PyTorchJob" else {}
    )
    async with manager(cluster.access, configuration=shipped_configuration(training_operator=gang)):
        await create_job(cluster, kind, "demo", policy=policy, **elastic)
        first = (await until(lambda: pods_of(cluster, "demo")))[0]["metadata"]

        async def status() -> JsonObject:
            found: JsonObject = (await cluster.client.get(RESOURCES[kind], TEAM, "demo")).get("status") or {}
            return found

        await until(status)
        await cluster.client.delete(PODS, TEAM, first["name"])

        async def is_made_again() -> bool:
            found = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await pods_of(cluster, "demo")}
            return bool(found.get(first["name"], first["uid"]) != first["uid"])

        await until(is_made_again)
        for pod in await pods_of(cluster, "demo"):
            name, succeeded = pod["metadata"]["name"], {"status": {"phase": "Succeeded"}}
            await cluster.client.patch(PODS, TEAM, name, succeeded, subresource="status")

        async def is_gone() -> bool:
            try:
                await cluster.client.get(RESOURCES[kind], TEAM, "demo")
            except NotFound:
                return True
            return False

        await until(is_gone)
