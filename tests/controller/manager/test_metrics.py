"""Metrics of a manager, of TrainJobs as it serves them, and its controllers with their numbers of workers."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.commands import eventually
from support.failing_pods import show_counts
from support.informers import Script
from support.installations import allow_url, create_namespace
from support.objects import trainjob_object
from support.processes import account_token
from support.series import scrape, total
from support.stack import QUIET, api_server, manager
from support.training import apply_runtime, found, runtime, until
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Configuration, Metrics, MetricsAuth, Webhook
from trainmaster.controller.configuration import Controller as ControllerSection
from trainmaster.controller.diagnosis.diagnosis import WORKERS
from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager import controllers
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.resilience import monitor
from trainmaster.controller.resilience.lost_nodes import LostNodes
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True)
class Endpoint:
    """Metrics of a manager."""

    port: int
    authority: Authority

    async def read(self, *, token: str = "", scheme: str = "https") -> tuple[int, str]:
        """Read them as a client that trusts the authority only."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{scheme}://127.0.0.1:{self.port}/metrics"
        async with aiohttp.request("GET", url, headers=headers, ssl=context) as answer:
            return answer.status, await answer.text()

    async def is_served(self) -> bool:
        """Tell whether a TLS connection comes about."""
        try:
            return bool(await self.read())
        except aiohttp.ClientError:
            return False


def secured(directory: Path, port: int, *, auth: bool = False) -> Configuration:
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", auth=MetricsAuth(enabled=auth))
    return QUIET.model_copy(update={"metrics": metrics, "webhook": Webhook(enabled=False, cert_dir=str(directory))})


@pytest.mark.guarantee("M-6")
async def test_secure_serving_waits_for_a_certificate_and_says_so(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with (
            api_server(tmp_path) as stack,
            manager(stack.access, configuration=secured(tmp_path / "none", free_port())),
        ):
            pass
    (told,) = [entry for entry in logged if entry["event"] == "metrics are not served: there is no certificate"]
    assert str(tmp_path / "none") in told["error"]
    assert "metrics.secureServing" in told["hint"]


@pytest.mark.guarantee("M-6")
async def test_secure_serving_lets_in_whom_rbac_allows_the_path(tmp_path: Path) -> None:
    """By TLS alone, with the certificate of the webhooks."""
    endpoint = Endpoint(free_port(), Authority())
    endpoint.authority.mount(tmp_path / "certs")
    async with api_server(tmp_path, rbac=True) as stack:
        allowed, other = await account_token(stack.client, "prometheus"), await account_token(stack.client, "other")
        await allow_url(stack.client, "prometheus", "/metrics")
        with capture_logs() as logged:
            async with manager(stack.access, configuration=secured(tmp_path / "certs", endpoint.port, auth=True)):
                await eventually(endpoint.is_served)
                with pytest.raises(aiohttp.ClientError):
                    await endpoint.read(scheme="http")
                assert await endpoint.read() == (401, "Unauthorized\n")
                assert await endpoint.read(token=allowed[:-4] + "AAAA") == (401, "Unauthorized\n")
                user = "system:serviceaccount:default:other"
                assert await endpoint.read(token=other) == (403, f"Authorization denied for user {user}\n")
                status, text = await endpoint.read(token=allowed)
                assert (status, "workqueue_depth" in text) == (200, True)
    assert allowed[:20] not in str(logged)


SERVED, OTHER = "served", "other"


def training(name: str, namespace: str) -> JsonObject:
    job = trainjob_object(name, runtimeRef={"name": "processes"})
    return {**job, "metadata": {"name": name, "namespace": namespace}}


@pytest.mark.guarantee("K-15")
async def test_of_other_namespaces_nothing_is_counted_and_a_new_manager_counts_nothing_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What is deleted while no manager runs is gone for the next one."""
    async with api_server(tmp_path_factory.mktemp("metrics")) as stack:
        if stack.cluster is None:
            pytest.skip("the states of JobSets belong to others on a foreign cluster")
        await apply_runtime(stack.client, runtime())
        for namespace in (SERVED, OTHER):
            await create_namespace(stack.client, namespace)
            await stack.client.create(TRAINJOBS, training("runs", namespace))
        await stack.client.create(TRAINJOBS, training("waits", SERVED))
        port = free_port()
        metrics = Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False)
        configuration = QUIET.model_copy(update={"watch_namespaces": [SERVED], "metrics": metrics})
        async with manager(stack.access, configuration=configuration):
            await until(lambda: found(stack.client, JOBSETS, "runs", namespace=SERVED))
            await show_counts(stack.client, SERVED, "runs", active=1, ready=1)
            await until(lambda: states_are(port, Running=1, Waiting=1))
            report = {"trainerStatus": {"progressPercentage": 5, "lastUpdatedTime": "2126-01-01T00:00:00Z"}}
            reported = "trainmaster_trainjob_time_to_progress_seconds_count"
            before = total(await scrape(port), reported)
            for _ in range(2):
                await stack.client.patch(TRAINJOBS, SERVED, "runs", {"status": report}, subresource="status")
                report["trainerStatus"] = {"progressPercentage": 6, "lastUpdatedTime": "2126-01-01T00:01:00Z"}
            await until(lambda: has_counted(port, reported, before + 1))
            first = await scrape(port)
        counted = "trainmaster_trainjob_time_to_running_seconds_count"
        await stack.client.delete(TRAINJOBS, SERVED, "waits")
        async with manager(stack.access, configuration=configuration):
            await until(lambda: states_are(port, Running=1))
            second = await scrape(port)
            assert total(second, counted, runtime="processes") == total(first, counted, runtime="processes")
            assert total(second, reported) == before + 1
            assert total(second, "trainmaster_trainjob_nodes", state="Running") == 1


async def has_counted(port: int, name: str, value: float) -> bool:
    return total(await scrape(port), name) == value


async def states_are(port: int, **expected: int) -> bool:
    """Whether so many TrainJobs are in these states, and none in others."""
    samples = [each for each in await scrape(port) if each.name == "trainmaster_trainjobs" and each.value]
    return {each.labels["state"]: each.value for each in samples} == expected


@pytest.mark.defect("B11")
async def test_the_configuration_sets_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original reads it and runs one worker for each kind."""
    workers = {}

    class Counted(Controller):
        def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
            workers[name] = options["workers"]
            super().__init__(name, *arguments, **options)

    monkeypatch.setattr(controllers, "Controller", Counted)
    concurrency = {"TrainJob.trainer.kubeflow.org": 3, "ClusterTrainingRuntime.trainer.kubeflow.org": 2}
    clock, framework = VirtualClock(), Framework(load_plugins())
    caches = Caches(Script(clock), framework.watches(), clock=clock)
    client = cast("KubeClient", None)
    controllers.make_controllers(
        client=client,
        caches=caches,
        framework=framework,
        recorder=cast("EventRecorder", None),
        configuration=Configuration(controller=ControllerSection(group_kind_concurrency=concurrency)),
        clock=clock,
        observer=TrainJobObserver(TrainJobsMetrics(), clock=clock, trace_id=lambda _: ""),
        lost_nodes=LostNodes(client, WorkQueue(clock=clock), caches.listers(), clock=clock),
    )
    assert workers == {
        "lost_nodes": 1,
        "trainjob_controller": 3,
        "trainjob_diagnosis": WORKERS,
        "trainjob_monitor": monitor.WORKERS,
        "trainingruntime_controller": controllers.RUNTIME_WORKERS,
        "clustertrainingruntime_controller": 2,
    }
