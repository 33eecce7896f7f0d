"""The jobs of `kubeflow.org/v1` in the manager: off while nobody has their definitions, and found when they come."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from support.devcluster.faults import Delay, Refuse
from support.job_kinds import job_object
from support.jobworld import pytorchjob, replicas
from support.series import series
from support.stack import QUIET, Stack, api_server, manager
from support.training import found, until
from support.virtualtime import VirtualClock

from trainmaster.controller.certificates.webhook_names import JOB_VALIDATOR
from trainmaster.controller.configuration import TrainingOperator
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.manager import training_operator
from trainmaster.controller.resources import job_resource
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    install_definitions,
)
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

_KINDS = {kind.kind: kind for kind in load_job_kinds()}
PYTORCHJOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
PODGROUPS = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", namespaced=True)
VOLCANO = QUIET.model_copy(update={"training_operator": TrainingOperator(gang_scheduler_name="volcano")})


pytestmark = pytest.mark.usefixtures("impatient")


async def create_job(stack: Stack) -> None:
    job = pytorchjob(worker=replicas(1))
    await stack.client.create(PYTORCHJOBS, {**job, "metadata": {"name": "demo", "namespace": "default"}})


async def pod_names(stack: Stack) -> list[str]:
    return [each["metadata"]["name"] for each in (await stack.client.list(PODS, "default"))["items"]]


async def job_status(stack: Stack) -> Any:
    return (await stack.client.get(PYTORCHJOBS, "default", "demo")).get("status") or {}


async def test_jobs_are_counted_by_state_while_the_manager_leads(stack: Stack) -> None:
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)

    async def states() -> dict[str, float]:
        shown = [each for each in series("trainmaster_v1_jobs") if each.value]
        return {each.labels["state"]: each.value for each in shown if each.labels["framework"] == "pytorch"}

    async def is_running() -> bool:
        return await states() == {"Running": 1}

    async def is_gone() -> bool:
        return await states() == {}

    async with manager(stack.access, configuration=QUIET):
        await create_job(stack)
        (pod,) = await until(lambda: pod_names(stack))
        await stack.client.patch(PODS, "default", pod, {"status": {"phase": "Running"}}, subresource="status")
        await until(is_running)
    assert await is_gone()
    async with manager(stack.access, configuration=QUIET):
        await until(is_running)
        await stack.client.delete(PYTORCHJOBS, "default", "demo")
        await until(is_gone)


async def test_without_definitions_nothing_is_read_and_those_that_come_are_served_if_allowed(stack: Stack) -> None:
    """A role of before a kind came holds up no other: TrainJobs would not be admitted any more."""
    assert stack.cluster is not None
    add = stack.cluster.faults.add
    refused = add(Refuse(403), resource="rolebindings", user_agent="trainmaster/")
    seen = [add(Delay(0.0), resource=each, user_agent="trainmaster/") for each in ("services", "pytorchjobs")]
    async with (
        manager(stack.access, configuration=QUIET) as running,
        TestClient(TestServer(running.healthz.application())) as probes,
    ):
        assert [each.count for each in seen] == [0, 0]
        await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
        await create_job(stack)
        assert await until(lambda: pod_names(stack)) == ["demo-worker-0"]

        async def is_ready() -> bool:
            return refused.count > 0 and (await probes.get("/readyz")).status == 200

        await until(is_ready)


async def test_switched_off_it_does_not_even_ask(stack: Stack) -> None:
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
    off = QUIET.model_copy(update={"training_operator": TrainingOperator(enabled=False)})
    jobs = stack.cluster.faults.add(Delay(0.0), resource="pytorchjobs", user_agent="trainmaster/")
    async with manager(stack.access, configuration=off):
        await create_job(stack)
        assert jobs.count == 0
        assert await job_status(stack) == {}


@pytest.mark.defect("V1-B26")
async def test_a_gang_scheduler_may_be_installed_later(tmp_path: Path) -> None:
    async with api_server(tmp_path, definitions=False) as stack:
        assert stack.cluster is not None
        needed = (*TRAINER_DEFINITIONS, *JOBSET_DEFINITIONS, *TRAINING_OPERATOR_DEFINITIONS)
        await install_definitions(stack.cluster.api, needed)
        async with manager(stack.access, configuration=VOLCANO):
            await create_job(stack)
            await until(lambda: job_status(stack))
            (blocked,) = [each for each in (await job_status(stack))["conditions"] if each["type"] == "Blocked"]
            assert "the cluster does not serve PodGroup (scheduling.volcano.sh/v1beta1)" in blocked["message"]
            await install_definitions(stack.cluster.api, GANG_DEFINITIONS)
            await until(lambda: found(stack.client, PODGROUPS, "demo"))
            await stack.client.patch(PODGROUPS, "default", "demo", {"status": {"phase": "Inqueue"}})
            await until(lambda: pod_names(stack))


async def test_the_jobs_of_another_operator_are_left_alone_until_it_is_gone(stack: Stack) -> None:
    """The Go operator has no lease; who admits jobs serves them."""
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
    service = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate-kubeflow-org-v1-tfjob"}
    webhook = {
        "name": "validator.tfjob.training-operator.kubeflow.org",
        "clientConfig": {"service": service},
        "rules": [
            {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["tfjobs"]}
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    await stack.client.create(
        CONFIGURATIONS,
        {
            "apiVersion": CONFIGURATIONS.api_version,
            "kind": CONFIGURATIONS.kind,
            "metadata": {"name": JOB_VALIDATOR.name},
            "webhooks": [webhook],
        },
    )
    looked = stack.cluster.faults.add(Delay(0.0), resource=CONFIGURATIONS.plural, user_agent="trainmaster/")
    async with manager(stack.access, configuration=QUIET):
        await create_job(stack)
        await until(lambda: looked.count >= 3)
        assert await pod_names(stack) == []
        await stack.client.delete(CONFIGURATIONS, None, JOB_VALIDATOR.name)
        await until(lambda: pod_names(stack))


async def test_while_it_is_not_known_whose_the_jobs_are_they_are_left_alone(stack: Stack) -> None:
    """One failed look would have two operators undo each other's writes; without the right to look nobody can tell."""
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
    rule = {"resource": CONFIGURATIONS.plural, "user_agent": "trainmaster/"}
    broken = stack.cluster.faults.add(Refuse(500), **rule)
    async with manager(stack.access, configuration=QUIET):
        await create_job(stack)
        await until(lambda: broken.count >= 3)
        assert await pod_names(stack) == []
        stack.cluster.faults.add(Refuse(403), **rule)
        broken.remove()
        await until(lambda: pod_names(stack))


class Watched:
    """A server that serves the kinds of some jobs; keeps by which labels each kind of object is read."""

    def __init__(self, *kinds: JobKind) -> None:
        self._kinds = kinds
        self.selectors: dict[str, set[str | None]] = defaultdict(set)
        self.concurrency_limit = SimpleNamespace(limit=1)

    async def raw(self, *_: Any, **__: Any) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, orjson.dumps({"resources": [{"name": kind.plural} for kind in self._kinds]})

    @asynccontextmanager
    async def watch(self, resource: Resource, *, label_selector: str | None, **_: Any) -> AsyncIterator[Any]:
        self.selectors[resource.plural].add(label_selector)
        raise NotFound(status=404, reason="NotFound")
        yield


async def test_each_kind_of_jobs_reads_what_it_declares_of_a_kind_that_another_one_reads_too() -> None:
    """One by a label and one without: whoever came first decided for both."""

    class AcmeJob(type(_KINDS["JAXJob"])):  # type: ignore[misc] # the class of an installed kind
        kind = "AcmeJob"
        plural = "acmejobs"
        framework = "acme"

        def watches(self) -> list[Watch]:
            return [Watch("v1", "ConfigMap", "configmaps", writes=True, label_selector="acme.example/job")]

    kinds, clock = (AcmeJob(), _KINDS["MPIJob"]), VirtualClock()
    server: Any = Watched(*kinds)
    configuration = QUIET.model_copy(update={"watch_namespaces": ["default"]})
    recorder: Any = None
    operator = training_operator.TrainingOperator(
        server, kinds, recorder=recorder, configuration=configuration, clock=clock
    )
    running = asyncio.create_task(operator.run())
    await clock.advance(1)
    running.cancel()
    assert server.selectors["configmaps"] == {"acme.example/job", None}


async def test_enabled_kinds_alone_are_served_and_their_pods_made_as_configured(stack: Stack) -> None:
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
    for kind, types in (
        ("JAXJob", {"Worker": 1}), ("TFJob", {"Worker": 2}), ("PyTorchJob", {"Master": 1, "Worker": 1})
    ):  # fmt: skip
        job = job_object(_KINDS[kind], types, name=kind.lower(), namespace="default")
        await stack.client.create(job_resource(_KINDS[kind]), job)
    section = {
        "gangSchedulerName": "packing",
        "clusterDomain": "corp.example",
        "options": {"pytorchjob": {"initContainerImage": "waiting:1"}},
    }
    pods = dict[str, JsonObject]()
    for scheme, number in (["JAXJob"], 1), ([], 5):
        operator = TrainingOperator.model_validate({**section, "enableScheme": scheme})

        async def are_there(number: int = number) -> bool:
            pods.update({pod["metadata"]["name"]: pod for pod in (await stack.client.list(PODS, "default"))["items"]})
            return len(pods) >= number

        async with manager(stack.access, configuration=QUIET.model_copy(update={"training_operator": operator})):
            await until(are_there)
            assert scheme == [] or set(pods) == {"jaxjob-worker-0"}
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"packing"}
    environment = {each["name"]: each["value"] for each in pods["tfjob-worker-0"]["spec"]["containers"][0]["env"]}
    cluster = orjson.loads(environment["TF_CONFIG"])["cluster"]
    assert cluster == {"worker": [f"tfjob-worker-{index}.default.svc.corp.example:2222" for index in range(2)]}
    (waiting,) = pods["pytorchjob-worker-0"]["spec"]["initContainers"]
    assert waiting["image"] == "waiting:1"
