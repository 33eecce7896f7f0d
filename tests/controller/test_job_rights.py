"""The rights for jobs of `kubeflow.org/v1`, and the comparison of what is requested in the tests with the roles."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.devcluster.faults import Fault, Refuse, StallWatch
from support.enforcement import Enforced, enforced, shipped_configuration, shipped_objects
from support.installations import create_namespace
from support.jobworld import KINDS, job_object, replicas
from support.manifests import ROOT
from support.rights import Recording
from support.stack import manager
from support.training import found, until

from trainmaster.controller.configuration import TrainingOperator
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.manager.parts import USER_AGENT
from trainmaster.controller.resources import job_resource
from trainmaster.devcluster.apiserver.filters.authorization import VARIABLE
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

    def add(fault: Refuse | StallWatch) -> dict[Resource, Fault]:
        rule = {"verb": "watch", "user_agent": "trainmaster/"}
        return {each: faults.add(fault, resource=each.plural, **rule) for each in OWNED}

    refused = add(Refuse(500))  # so that caches are filled by lists
    async with manager(cluster.access, configuration=shipped_configuration()):
        stalled = add(StallWatch())
        for fault in refused.values():
            fault.remove()
        await until(lambda: all(fault.count for fault in stalled.values()))
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


def recording(directory: Path, *requests: tuple[str, str, str], program: str = USER_AGENT) -> Recording:
    """What a run leaves behind in which these requests were made."""
    lines = [
        {"program": program, "verb": verb, "group": "", "resource": resource, "name": name, "test": "test_x (call)"}
        for verb, resource, name in requests
    ]
    (directory / "1.requests").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return Recording(directory)


def test_a_request_that_no_right_covers_is_told_with_its_test(tmp_path: Path) -> None:
    """`update` is granted for one Secret alone; what the command line requests is not the manager's business."""
    covered = [("list", "configmaps", ""), ("patch", "secrets", "kubeflow-trainer-webhook-cert")]
    made = recording(tmp_path, *covered, ("update", "secrets", "other"), ("delete", "limitranges", "a"))
    assert made.missing() == ["delete limitranges a (test_x)", "update secrets other (test_x)"]
    theirs = recording(tmp_path, ("delete", "limitranges", "a"), program="trainmaster-run/1")
    assert theirs.missing() == []


def test_a_process_that_is_killed_may_leave_half_a_line(tmp_path: Path) -> None:
    recording(tmp_path, ("list", "configmaps", ""))
    with (tmp_path / "1.requests").open("ab") as file:
        file.write(b'\n{"program":"trainm')
    assert [str(right) for right in Recording(tmp_path).used()] == ["list configmaps"]


def test_a_right_that_no_request_used_is_told(tmp_path: Path) -> None:
    made = recording(tmp_path, ("list", "configmaps", ""))
    assert [str(right) for right in made.used()] == ["list configmaps"]
    idle = {str(right) for right in made.unused()}
    assert {"watch configmaps", "create secrets"} <= idle
    assert "list configmaps" not in idle


SUITE = """
import json, os, pathlib, pytest

def test_that_has_a_manager_request_something() -> None:
    line = {"program": "PROGRAM", "verb": "list", "group": "", "resource": "configmaps", "name": "", "test": "a (call)"}
    (pathlib.Path(os.environ["VARIABLE"]) / "1.requests").write_text(json.dumps(line))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "code"), [([], 1), (["-m", "not nightly"], 0), (["-k", "manager"], 0), (["suite/test_a.py"], 0)]
)
def test_a_whole_run_fails_for_a_right_that_no_request_used(tmp_path: Path, arguments: list[str], code: int) -> None:
    """What somebody selects is not the whole, and neither is the gate."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite/test_a.py").write_text(SUITE.replace("PROGRAM", USER_AGENT).replace("VARIABLE", VARIABLE))
    (tmp_path / "conftest.py").write_text(
        "from support.rights import RightsPlugin\n\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(RightsPlugin(config))\n"
    )
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = suite\npythonpath = {ROOT / 'tests'}\nmarkers = nightly\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others take longer to import than all of this
    run = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == code, run.stdout
    assert ("granted, and used by no test" in run.stdout) == bool(code)
    assert "1 passed" in run.stdout
