"""Clusters without JobSet: a plugin trains with plain Indexed Jobs, or with a kind that is installed later."""

import json
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from support.commands import client_of, trainmaster
from support.distributions import Distributions
from support.kubectl import Kubectl
from support.plugins import indexed_job
from support.rights import declare
from support.training import found, until

from trainmaster.controller.configuration import Health
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.resources import JOBSETS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.testing import builders
from trainmaster.testing.conformance import Right, used_rights
from trainmaster.testing.embedded import MANAGERS_NAMESPACE, QUIET, WHOLE, EmbeddedCluster

TRAINJOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
JOB = ("batch/v1", "Job")
WAIT = "import time; time.sleep(600)"
MEET = """
import os, socket, time
deadline = time.monotonic() + 60
while True:
    try:
        socket.gethostbyname(os.environ["PET_MASTER_ADDR"])
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.1)
"""


def conditions(cluster: EmbeddedCluster, name: str) -> dict[str, JsonObject]:
    job = cluster.get(*TRAINJOB, name, "team") or {}
    return {each["type"]: each for each in (job.get("status") or {}).get("conditions", []) if each["status"] == "True"}


def trainjob(name: str, script: str, **spec: Any) -> JsonObject:
    return builders.trainjob(name, trainer={"command": [sys.executable, "-c", script], "numNodes": 2}, **spec)


def torch_runtime(**fields: Any) -> JsonObject:
    container = {"name": "node", "image": "none", "command": ["true"]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    node = builders.replicated_job()
    node["template"]["spec"] = {"backoffLimit": 0, "template": {"spec": pod}}
    template = {"spec": {"replicatedJobs": [node]}, **fields}
    return builders.runtime(mlPolicy={"numNodes": 2, "torch": {}}, template=template)


def is_ready(url: str) -> bool:
    try:
        with urlopen(url) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def framework() -> Framework:
    """All plugins but that of JobSets, as by `plugins.disabled`, and one for plain Jobs."""
    return Framework([*load_plugins(disabled=["jobset"]), indexed_job(always=True)])


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, audit_log: Path, framework: Framework
) -> Iterator[EmbeddedCluster]:
    """A whole cluster that serves no JobSets, with a manager that has the rights which its plugins declare."""
    directory = tmp_path_factory.mktemp("cluster")
    health = f"127.0.0.1:{free_port()}"
    configuration = QUIET.model_copy(update={"health": Health(health_probe_bind_address=health)})
    with EmbeddedCluster(directory, parts=WHOLE, rbac=True, audit_log=audit_log, patience=90) as cluster:
        cluster.remove_definition("jobsets.jobset.x-k8s.io")
        cluster.apply(torch_runtime())
        with cluster.manager(framework, configuration=configuration, own_rights=True):
            cluster.wait_for(lambda: is_ready(f"http://{health}/readyz"), "the manager without JobSet")
            yield cluster


def test_trainjobs_live_as_plain_jobs_where_there_is_no_jobset(
    cluster: EmbeddedCluster, audit_log: Path, framework: Framework
) -> None:
    """They complete, fail, exceed their deadline, are suspended, resumed and deleted after their time to live."""
    cluster.apply(
        trainjob("completes", MEET),
        trainjob("fails", "raise SystemExit(3)"),
        trainjob("late", WAIT, activeDeadlineSeconds=3),
        trainjob("held", MEET, suspend=True),
        trainjob("short", MEET, ttlSecondsAfterFinished=0),
        trainjob("stopped", WAIT),
    )
    cluster.wait_for(lambda: "Complete" in conditions(cluster, "completes"), "the end of the job that completes")
    workload = cluster.get(*JOB, "completes-node-0", "team") or {}
    assert (workload["spec"]["completionMode"], workload["spec"]["completions"]) == ("Indexed", 2)
    assert cluster.get("v1", "Service", "completes", "team")
    cluster.wait_for(lambda: "Failed" in conditions(cluster, "fails"), "the end of the job that fails")
    assert conditions(cluster, "fails")["Failed"]["reason"] == "BackoffLimitExceeded"
    cluster.wait_for(lambda: "Failed" in conditions(cluster, "late"), "the deadline")
    assert conditions(cluster, "late")["Failed"]["reason"] == "DeadlineExceeded"
    cluster.wait_for(lambda: cluster.get(*JOB, "late-node-0", "team") is None, "the deletion of a late workload")
    cluster.wait_for(lambda: not cluster.list("v1", "Pod", "team") or not pods_of(cluster, "late-node-0"), "its pods")
    assert cluster.wait_for_object(*JOB, "held-node-0", "team")["spec"]["suspend"] is True
    assert not pods_of(cluster, "held-node-0")
    cluster.apply(trainjob("held", MEET, suspend=False))
    cluster.wait_for(lambda: "Complete" in conditions(cluster, "held"), "the end of the job that was held")
    cluster.wait_for(lambda: cluster.get(*TRAINJOB, "short", "team") is None, "the end of a time to live")
    cluster.wait_for(lambda: cluster.get(*JOB, "short-node-0", "team") is None, "what it owned")
    cluster.wait_for(lambda: pods_of(cluster, "stopped-node-0"), "pods")
    cluster.apply(trainjob("stopped", WAIT, suspend=True))
    cluster.wait_for(lambda: not pods_of(cluster, "stopped-node-0"), "the end of its pods")
    assert conditions(cluster, "stopped").keys() == {"Suspended"}
    rules = policy_rules(QUIET, features=(), watches=framework.watches(), namespace=MANAGERS_NAMESPACE)
    granted = {Right(rule.resource.group, rule.full_resource, verb) for rule in rules for verb in rule.verbs}
    used = set(used_rights(audit_log))
    assert used <= granted
    assert {Right("batch", "jobs", verb) for verb in ("create", "patch", "delete")} <= used
    assert not any(right.group == "jobset.x-k8s.io" for right in granted)


def pods_of(cluster: EmbeddedCluster, job: str) -> list[JsonObject]:
    """The pods of a Job that have not ended."""
    return [
        pod
        for pod in cluster.list("v1", "Pod", "team")
        if (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name") == job
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


QUEUES = '''
from trainmaster.runtime.sdk import Watch


class Queues:
    """Waits for a kind."""

    name = "acme-queues"
    policies = ("torch",)

    def watch_extension(self):
        return [Watch("acme.example/v1", "Queue", "queues", jobs=self.jobs)]

    def jobs(self, queue, listers):
        return []

    def enforce_ml_policy(self, info):
        info.labels["queue"] = "blue"
'''
OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
QUEUE_DEFINITION: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.acme.example"},
    "spec": {
        "group": "acme.example",
        "scope": "Namespaced",
        "names": {"kind": "Queue", "plural": "queues", "singular": "queue", "listKind": "QueueList"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": OPEN}],
    },
}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_a_cluster_comes_up_without_the_kind_of_a_plugin_so_that_it_can_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its TrainJobs are admitted with a warning, wait, and go on as soon as `kubectl apply` has installed it."""
    packages = tmp_path / "packages"
    packages.mkdir()
    Distributions(packages, monkeypatch).install("acme-queues", {"acme-queues": "Queues"}, module=QUEUES)
    watches = Framework(load_plugins()).watches()
    declare(policy_rules(QUIET, features=(), watches=watches, namespace=MANAGERS_NAMESPACE))
    assert "queues" in (await trainmaster("rbac", cwd=tmp_path, PYTHONPATH=str(packages))).out
    up = await trainmaster(
        "cluster", "up", "--detach", "--without", "gc,kubelet", cwd=tmp_path, PYTHONPATH=str(packages)
    )
    assert up.code == 0, up.err
    try:
        home = tmp_path / ".trainmaster"
        kubectl = Kubectl(home / "kubeconfig", tmp_path)
        apply = ("apply", "--server-side", "-f", "-")
        await kubectl(*apply, stdin=json.dumps(torch_runtime()))
        job = builders.trainjob("early", namespace="default")
        del job["metadata"]["uid"]
        warned = await kubectl(*apply, stdin=json.dumps(job))
        assert "cannot be built yet: the cluster does not serve Queue (acme.example/v1)" in warned
        await kubectl(*apply, stdin=json.dumps(QUEUE_DEFINITION))
        async with client_of(home / "kubeconfig") as client:
            built = await until(partial(found, client, JOBSETS, "early"))
        assert built["metadata"]["labels"]["queue"] == "blue"
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)
