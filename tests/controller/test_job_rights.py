"""The rights that jobs of `kubeflow.org/v1` need: with exactly the shipped roles everything works, and none is idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.devcluster.faults import Refuse, StallWatch
from support.enforcement import Enforced, enforced, shipped_configuration, shipped_objects
from support.installations import create_namespace
from support.jobworld import KINDS, job_object, replicas
from support.stack import manager
from support.training import found, until

from trainmaster.controller.configuration import TrainingOperator
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.resources import job_resource
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
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
async def cluster(tmp_path: Path, impatient: None) -> AsyncIterator[Enforced]:
    async with enforced(tmp_path) as cluster:
        assert cluster.stack.cluster is not None
        await install_definitions(cluster.stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        await create_namespace(cluster.client, TEAM)
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
    pods: list[JsonObject] = (await cluster.client.list(PODS, TEAM, label_selector=selector))["items"]
    return pods


async def test_whose_names_are_taken_is_found_out_past_caches_that_lag(cluster: Enforced) -> None:
    """No watch brings what is there; it is read where it stands in the way."""
    assert cluster.stack.cluster is not None
    faults = cluster.stack.cluster.faults
    for resource in (*OWNED, *RESOURCES.values()):
        faults.add(Refuse(500), verb="watch", resource=resource.plural, user_agent="trainmaster/", times=1)
    stalled = {
        resource: faults.add(StallWatch(), verb="watch", resource=resource.plural, user_agent="trainmaster/")
        for resource in OWNED
    }

    async with manager(cluster.access, configuration=shipped_configuration()):
        await until(lambda: all(fault.count >= 2 for fault in stalled.values()))
        for resource in (AUTOSCALERS, ROLES, ROLE_BINDINGS):  # after a watch that carries nothing they would be listed
            faults.add(Refuse(500), verb="list", resource=resource.plural, user_agent="trainmaster/")
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
        for kind, name in (("JAXJob", "a"), ("JAXJob", "b"), ("PyTorchJob", "c"), ("MPIJob", "f")):
            await until(partial(is_blocked, cluster, kind, name))
        for resource in (PODS, SERVICES, ACCOUNTS):  # a Role is made when its pods are seen
            stalled[resource].remove()
        for name in "de":
            await until(partial(is_blocked, cluster, "MPIJob", name))


async def test_jobs_live_and_end_with_exactly_these_rights(cluster: Enforced) -> None:
    """Their pods are made, and made again; they succeed, are cleaned up, and are deleted when their time has passed."""
    gang = TrainingOperator(gang_scheduler_name="scheduler-plugins-scheduler")
    policy = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1}
    elastic = {"PyTorchJob": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "metrics": METRICS}}}
    names = {kind: kind.lower() for kind in KINDS}
    lost = dict[str, JsonObject]()

    async def status_of(kind: str) -> JsonObject:
        status: JsonObject = (await cluster.client.get(RESOURCES[kind], TEAM, names[kind])).get("status") or {}
        return status

    async def is_made_again(kind: str) -> bool:
        first = lost[kind]
        uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await pods_of(cluster, names[kind])}
        return bool(uids.get(first["name"], first["uid"]) != first["uid"])

    async def is_gone(kind: str) -> bool:
        return await found(cluster.client, RESOURCES[kind], names[kind], namespace=TEAM) is None

    async with manager(cluster.access, configuration=shipped_configuration(training_operator=gang)):
        for kind, name in names.items():
            await create_job(cluster, kind, name, policy=policy, **elastic.get(kind, {}))
        for kind, name in names.items():
            lost[kind] = (await until(partial(pods_of, cluster, name)))[0]["metadata"]
            await until(partial(status_of, kind))
            await cluster.client.delete(PODS, TEAM, lost[kind]["name"])
        for kind, name in names.items():
            await until(partial(is_made_again, kind))
            for pod in await pods_of(cluster, name):
                succeeded = {"status": {"phase": "Succeeded"}}
                await cluster.client.patch(PODS, TEAM, pod["metadata"]["name"], succeeded, subresource="status")
        for kind in names:
            await until(partial(is_gone, kind))
