"""Definitions that are absent, come later, and go while the manager runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.jobworld import KINDS
from support.stack import QUIET, Stack, api_server
from support.training import apply_runtime, conditions, found, runtime, trainjob, until
from support.web import probed

from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS, job_resource
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    install_definitions,
)
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.info import Info
from trainmaster.runtime.listers import Listers, Watch

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
POD_GROUPS = "podgroups.scheduling.x-k8s.io"


@pytest.fixture
async def stack(tmp_path: Path, impatient: None) -> AsyncIterator[Stack]:
    """A cluster that serves the kinds of Trainer and no others."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        await install_definitions(stack.cluster.api, TRAINER_DEFINITIONS)
        yield stack


QUEUE = Resource("acme.io", "v1", "Queue", "queues", namespaced=True)
QUEUE_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.acme.io"},
    "spec": {
        "group": "acme.io",
        "scope": "Namespaced",
        "names": {"kind": "Queue", "plural": "queues", "singular": "queue", "listKind": "QueueList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Queued:
    """Labels the JobSets of torch by the only queue that there is."""

    name = "acme-queues"
    policies = ("torch",)

    def watch_extension(self) -> list[Watch]:
        return [Watch(QUEUE.api_version, QUEUE.kind, QUEUE.plural)]

    def validate(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[FieldError]:
        if not list(listers.list(QUEUE.api_version, QUEUE.kind)):
            yield FieldError("spec", "there is no queue")

    def enforce_ml_policy(self, info: Info) -> None:
        (queue,) = info.listers.list(QUEUE.api_version, QUEUE.kind)
        info.labels["queue"] = queue["metadata"]["name"]


async def has_jobset(stack: Stack, name: str) -> None:
    await until(lambda: found(stack.client, JOBSETS, name))


async def blocked(stack: Stack, name: str, reason: str = "") -> str:
    """Wait until a TrainJob is blocked, for a reason; returns the message."""

    async def message() -> str | None:
        told = (await conditions(stack.client, name)).get("Blocked")
        return told["message"] if told and reason in ("", told["reason"]) else None

    return str(await until(message))


async def test_where_only_jobs_of_v1_are_defined_the_manager_serves_them(tmp_path: Path, impatient: None) -> None:
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        async with probed(stack.access, job_kinds=job_kinds(QUIET)) as probes:
            await probes.until("readyz", status=500)
            await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
            await probes.until("readyz", status=200)
            container = {"name": "pytorch", "image": "i"}
            replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
            metadata = {"name": "early", "namespace": "default"}
            job = {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {"Master": replica}}}
            await stack.client.create(job_resource(KINDS["PyTorchJob"]), {"apiVersion": "kubeflow.org/v1", **job})
            await until(lambda: found(stack.client, PODS, "early-master-0"))
            assert "trainjobs.trainer.kubeflow.org for TrainJobs" in (await probes.ask("readyz?verbose"))[1]
            await install_definitions(stack.cluster.api, (*TRAINER_DEFINITIONS, *JOBSET_DEFINITIONS))
            await apply_runtime(stack.client, runtime())
            await stack.client.create(TRAINJOBS, trainjob("late"))
            await has_jobset(stack, "late")


@pytest.mark.defect("U17")
async def test_without_jobset_it_says_so_and_goes_on_when_that_comes(stack: Stack) -> None:
    """The original exits. TrainJobs are told, readiness tells, and nothing has to be restarted."""
    assert stack.cluster is not None
    await apply_runtime(stack.client, runtime())
    await stack.client.create(TRAINJOBS, trainjob("early"))
    with capture_logs() as logs:
        async with probed(stack.access) as probes:
            assert await blocked(stack, "early", "KindNotServed") == (
                "the cluster does not serve JobSet (jobset.x-k8s.io/v1alpha2), which the plugin jobset needs, or the "
                "manager may not read it; tell your administrator to install its definition "
                "(jobsets.jobset.x-k8s.io), to grant the right, or to disable the plugin"
            )
            status, ready = await probes.ask("readyz?verbose")
            assert (status, "jobsets.jobset.x-k8s.io" in ready) == (500, True)
            await install_definitions(stack.cluster.api, JOBSET_DEFINITIONS)
            await has_jobset(stack, "early")
            await probes.until("readyz", status=200)
    lines = [each for each in logs if "podgroup" in str(each).lower() and each["log_level"] != "debug"]
    assert lines == [], "nobody uses these"
    assert len([each for each in logs if each["log_level"] in {"warning", "error"}]) < 10


@pytest.mark.defect("U17")
async def test_a_kind_that_comes_later_or_goes_holds_up_the_trainjobs_of_its_plugin_alone(stack: Stack) -> None:
    """The manager is ready, and says in its readiness and in its log whose TrainJobs wait for what."""
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, (*JOBSET_DEFINITIONS, *GANG_DEFINITIONS))
    plain, gang = runtime("plain"), runtime("gang")
    plain["spec"]["mlPolicy"] = {"numNodes": 1}
    gang["spec"] |= {"mlPolicy": {"numNodes": 1}, "podGroupPolicy": {"coscheduling": {}}}
    for each in (plain, gang, runtime("torch")):
        await apply_runtime(stack.client, each)
    with capture_logs() as logs:
        async with probed(stack.access, framework=Framework([*load_plugins(), Queued()])) as probes:
            for name, on in (("other", "plain"), ("first", "gang")):
                await stack.client.create(TRAINJOBS, trainjob(name, on=on))
                await has_jobset(stack, name)
            status, ready = await probes.ask("readyz?verbose")
            assert status == 200
            assert "[+]informer-sync ok: waiting for queues.acme.io for the TrainJobs of acme-queues" in ready
            await stack.client.create(TRAINJOBS, trainjob("queued", on="torch"))
            told = await blocked(stack, "queued", "KindNotServed")
            assert "does not serve Queue (acme.io/v1), which the plugin acme-queues needs" in told
            await stack.client.create(DEFINITIONS, QUEUE_DEFINITION)
            await blocked(stack, "queued", "PluginFailed")
            queue = {"apiVersion": "acme.io/v1", "kind": "Queue", "metadata": {"name": "blue", "namespace": "default"}}
            await stack.client.create(QUEUE, queue)
            await has_jobset(stack, "queued")
            jobset = await stack.client.get(JOBSETS, "default", "queued")
            assert jobset["metadata"]["labels"]["queue"] == "blue"
            assert "waiting for queues" not in (await probes.ask("readyz?verbose"))[1]
            (line,) = [each for each in logs if "a kind that plugins need cannot be read" in each["event"]]
            assert (line["log_level"], line["kind"], line["plugins"]) == ("warning", "Queue", ["acme-queues"])

            await stack.client.delete(DEFINITIONS, None, POD_GROUPS)

            async def is_gone() -> bool:
                names = [each["metadata"]["name"] for each in (await stack.client.list(DEFINITIONS))["items"]]
                return POD_GROUPS not in names

            await until(is_gone)
            await stack.client.create(TRAINJOBS, trainjob("second", on="gang"))
            told = await blocked(stack, "second")
            assert f"install the CustomResourceDefinition {POD_GROUPS}" in told
            await install_definitions(stack.cluster.api, GANG_DEFINITIONS)
            await has_jobset(stack, "second")
