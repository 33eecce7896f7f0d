"""The replicas of the manager with their metrics, and the nodes with what is asked of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.top import NOW, ago, node, node_object, pod_on

from trainmaster.controller.cli.top.managers import (
    INTERVAL,
    REFUSED_FOR,
    ManagerMetrics,
    ManagerReader,
    managers_of,
    parse,
    read_pod,
    read_url,
)
from trainmaster.controller.cli.top.node_usage import PodRequests, node_usage, total, trimmed_pod
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.runtime.jsontree import JsonObject

TEXT = """\
# HELP workqueue_depth Keys
# TYPE workqueue_depth gauge
workqueue_depth{controller="trainjob_controller",name="trainjob_controller",priority="0"} 2.0
workqueue_depth{controller="trainjob_controller",name="trainjob_controller",priority="-100"} 40.0
# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller="trainjob_controller",result="error"} 3.0
controller_runtime_reconcile_total{controller="trainjob_controller",result="success"} 97.0
# TYPE controller_runtime_reconcile_errors_total counter
controller_runtime_reconcile_errors_total{controller="trainjob_controller"} 3.0
controller_runtime_reconcile_errors_created 5.0
process_cpu_seconds_total 1.0
"""
METRICS = ManagerMetrics(queue_depth=42, reconciles=100, reconcile_errors=3)


def status(reason: str, code: int, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message}
    return web.json_response(body, status=code)


class Proxies:
    """An API server that has proxies to pods and nothing else."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response] = {}
        """By scheme, name and port, as paths have them."""

        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(pod := request.match_info["pod"])
        return self.answers.get(pod) or web.Response(status=502, text="tls: first record does not look like TLS")


@pytest.fixture
async def proxies() -> AsyncIterator[tuple[Proxies, KubeClient]]:
    made = Proxies()
    app = web.Application()
    app.add_routes([web.get("/api/v1/namespaces/kubeflow-system/pods/{pod}/proxy/metrics", made.handle)])
    async with TestServer(app) as server:
        config = RestConfig(server=str(server.make_url("/")).rstrip("/"))
        async with KubeClient(config, user_agent="test", tries=1) as client:
            yield made, client


def pod(**port: Any) -> JsonObject:
    ports = [{"name": "health", "containerPort": 8081}, *([port] if port else [])]
    return {
        "metadata": {"name": "manager-1", "namespace": "kubeflow-system"},
        "spec": {"containers": [{"name": "manager", "ports": ports}]},
    }


async def test_the_port_that_is_named_so_is_asked_or_one_without_tls(proxies: tuple[Proxies, KubeClient]) -> None:
    server, client = proxies
    server.answers["https:manager-1:8444"] = web.Response(text=TEXT)
    assert await read_pod(client, pod(name="metrics", containerPort=8444)) == METRICS
    assert server.asked == ["https:manager-1:8444"]
    server.asked.clear()
    server.answers["http:manager-1:8080"] = web.Response(text=TEXT)
    assert await read_pod(client, pod()) == METRICS
    assert server.asked == ["https:manager-1:8443", "http:manager-1:8080"]


async def test_a_refusal_is_told_with_what_is_missing(proxies: tuple[Proxies, KubeClient]) -> None:
    server, client = proxies
    for answer, told in (
        (status("Forbidden", 403, "no"), "grant the verb get on pods/proxy in namespace kubeflow-system"),
        (web.Response(status=401, text="Unauthorized\n"), "the manager asks who reads them (metrics.auth)"),
        (web.Response(status=403, text="Authorization denied"), "the manager asks who reads them"),
    ):
        server.asked.clear()
        server.answers["https:manager-1:8443"] = answer
        assert told in str(await read_pod(client, pod()))
        assert server.asked == ["https:manager-1:8443"]


async def test_what_else_may_come_is_told(proxies: tuple[Proxies, KubeClient]) -> None:
    server, client = proxies
    server.answers["http:manager-1:8080"] = status("NotImplemented", 501, "no proxy")
    assert await read_pod(client, pod()) == "no proxy"
    server.answers["http:manager-1:8080"] = web.Response(text="<html>a login page</html>")
    assert await read_pod(client, pod()) == "it has no metrics of a controller"
    server.answers.clear()
    assert "does not look like TLS" in str(await read_pod(client, pod()))
    # A text that is cut is told.
    assert str(parse('workqueue_depth{controller="trainjob')).startswith("its metrics cannot be read")


async def test_who_refuses_is_not_asked_all_the_time(proxies: tuple[Proxies, KubeClient]) -> None:
    server, client = proxies
    now = 0.0
    reader = ManagerReader(client, monotonic=lambda: now)
    running = {**pod(), "status": {"phase": "Running"}}
    server.answers["https:manager-1:8443"] = web.Response(status=401)
    for _ in range(10):
        await reader.read([running])
        now += INTERVAL
    assert "metrics.auth" in str(reader.metrics["kubeflow-system", "manager-1"])
    assert len(server.asked) == 1
    server.answers["https:manager-1:8443"] = web.Response(text=TEXT)
    now += REFUSED_FOR
    await reader.read([running])
    assert reader.metrics == {("kubeflow-system", "manager-1"): METRICS}
    await reader.read([])
    assert reader.metrics == {}
    assert reader.embedded is None


async def test_the_manager_of_an_embedded_cluster_is_read_where_it_says_if_that_is_here() -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=TEXT)

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    async with TestServer(app) as server:
        assert await read_url(str(server.make_url("/metrics"))) == METRICS
        assert "answers 404" in str(await read_url(str(server.make_url("/elsewhere"))))
        url = str(server.make_url("/metrics"))
    assert "127.0.0.1" in str(await read_url(url))
    # A url of another machine is not asked. Who answers for a cluster must not send this machine anywhere.
    assert await read_url("http://10.0.0.1:8080/metrics") == "they are on another machine"


def replica(name: str, *, ready: bool = True, **status: Any) -> JsonObject:
    condition = {"type": "Ready", "status": "True" if ready else "False", "message": "containers with unready status"}
    return {
        "metadata": {"name": name, "namespace": "kubeflow-system"},
        "status": {"phase": "Running", "conditions": [condition], **status},
    }


def lease(holder: str, *, renewed: float = 2, namespace: str = "kubeflow-system") -> JsonObject:
    spec = {"holderIdentity": holder, "renewTime": ago(renewed), "leaseDurationSeconds": 15}
    return {"metadata": {"name": "trainer.kubeflow.org", "namespace": namespace}, "spec": spec}


def test_the_pod_that_holds_the_lease_leads_and_comes_first_and_an_embedded_one_has_no_pod() -> None:
    found = managers_of(
        [replica("manager-a"), replica("manager-b")],
        [lease("manager-b_0b5f")],
        now=NOW,
        metrics={("kubeflow-system", "manager-b"): METRICS, ("kubeflow-system", "manager-a"): "no permission"},
    )
    assert [(each.name, each.leads, each.is_ready) for each in found.replicas] == [
        ("manager-b", True, True),
        ("manager-a", False, True),
    ]
    assert (found.replicas[0].metrics, found.replicas[0].unreadable) == (METRICS, "")
    assert (found.replicas[1].metrics, found.replicas[1].unreadable) == (None, "no permission")
    assert found.note == ""
    # The manager of an embedded cluster is one without a pod.
    ready = {"phase": "ready", "message": "", "ends": 0}
    (shown,) = managers_of([], [], now=NOW, embedded=ready, metrics={("", "embedded"): METRICS}).replicas
    assert (shown.name, shown.is_ready, shown.leads, shown.metrics) == ("embedded", True, True, METRICS)
    crashing = {"phase": "crashing", "message": "no such file", "ends": 3}
    (shown,) = managers_of([], [], now=NOW, embedded=crashing, metrics={}).replicas
    assert (shown.is_ready, shown.problem, shown.restarts) == (False, "crashing: no such file", 3)


def test_who_leads_is_told_by_the_lease() -> None:
    # A name that begins as that of another pod is not it.
    found = managers_of([replica("manager"), replica("manager-2")], [lease("manager-2_0b5f")], now=NOW, metrics={})
    assert [each.name for each in found.replicas if each.leads] == ["manager-2"]
    # A lease that nobody renews is nobodys.
    found = managers_of([replica("manager-a")], [lease("manager-a_0b5f", renewed=60)], now=NOW, metrics={})
    assert not found.replicas[0].leads
    assert found.note.startswith("none leads")
    # Who may not read leases does not say that none leads.
    assert managers_of([replica("manager-a")], None, now=NOW, metrics={}).note == ""
    # A manager that is no pod here is told of.
    elsewhere = managers_of([], [lease("laptop_1", namespace="kubeflow")], now=NOW, metrics={})
    assert elsewhere.note == "no pod of a manager is known; laptop_1 in kubeflow leads"
    both = managers_of([replica("manager-a")], [lease("laptop_1")], now=NOW, metrics={})
    assert both.note == "laptop_1 in kubeflow-system leads"
    assert managers_of([], [], now=NOW, metrics={}).note.startswith("none is installed")


def test_why_a_replica_is_not_ready() -> None:
    container = {"name": "manager", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    crashing = replica("a", ready=False, containerStatuses=[container])
    found = managers_of([crashing, replica("b", ready=False)], [], now=NOW, metrics={})
    assert [(each.problem, each.restarts) for each in found.replicas] == [
        ("CrashLoopBackOff", 7),
        ("containers with unready status", 0),
    ]
    # A pod that ends is no replica any more.
    ending = replica("a")
    ending["metadata"]["deletionTimestamp"] = ago(1)
    assert managers_of([ending], [], now=NOW, metrics={}).replicas == []


def test_requests_are_those_of_the_pods_that_are_on_a_node_now() -> None:
    requests = PodRequests()
    requests.put(pod_on("a", "one", cpu="500m", memory="1Gi"))
    requests.put(pod_on("a", "two", cpu="1"))
    requests.put(pod_on("b", "three", cpu="4"))
    assert str(requests.on("a")["cpu"]) == "1500m"
    requests.put(pod_on("a", "two", cpu="2"))  # resized
    assert str(requests.on("a")["cpu"]) == "2500m"
    requests.remove(pod_on("a", "one"))
    assert {name: str(amount) for name, amount in requests.on("a").items()} == {"cpu": "2"}
    requests.remove(pod_on("a", "one"))
    assert str(requests.on("b")["cpu"]) == "4"
    assert requests.on("c") == {}
    # A pod that waits for a node or asks for nonsense asks nothing of a node.
    requests = PodRequests()
    requests.put(pod_on("", "waits", cpu="4"))
    requests.put(pod_on("a", "odd", cpu="many"))
    assert requests.on("a") == {}


def test_what_is_kept_of_a_pod_is_enough_for_its_requests() -> None:
    pod = pod_on("a", "one", cpu="1")
    pod["spec"] |= {
        "initContainers": [
            {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}, "env": [{}]}
        ],
        "overhead": {"cpu": "500m"},
        "volumes": [{"name": "data"}],
    }
    pod["metadata"]["annotations"] = {"long": "text"}
    trimmed = trimmed_pod(pod)
    requests = PodRequests()
    requests.put(trimmed)
    assert str(requests.on("a")["cpu"]) == "3500m"
    assert "volumes" not in trimmed["spec"]
    assert "annotations" not in trimmed["metadata"]
    assert "env" not in trimmed["spec"]["initContainers"][0]
    # Devices are accelerators and what every node has is not.
    obj = node_object("a", cpu="8", memory="32Gi", pods="110", nvidia_com__gpu="4", google_com__tpu="0")
    obj["status"]["allocatable"] |= {"hugepages-2Mi": "1Gi", "ephemeral-storage": "100Gi", "odd": "?"}
    assert node_usage(obj, PodRequests()).accelerators == ["nvidia.com/gpu"]


def test_the_status_of_a_node_says_whether_it_takes_pods() -> None:
    pressed = node_object("a")
    pressed["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})
    for obj, status in (
        (node_object("a"), "Ready"),
        (node_object("a", ready="False"), "NotReady"),
        (node_object("a", ready="Unknown"), "Unknown"),
        (node_object("a", unschedulable=True), "SchedulingDisabled"),
        ({"metadata": {"name": "a"}}, "Unknown"),
        (pressed, "DiskPressure"),
    ):
        usage = node_usage(obj, PodRequests())
        assert (usage.status, usage.is_ready) == (status, status == "Ready")


def test_the_scarcest_resource_says_how_full_a_node_is_if_it_takes_pods() -> None:
    usage = node(
        "a", has={"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}, asked={"cpu": "2", "nvidia.com/gpu": "3"}
    )
    assert usage.fullness == 0.75
    assert usage.share("memory") == 0
    assert node("a", has={}).fullness == 0
    # Nodes that take no pods do not count as room.
    together = total(
        [node("a", asked={"cpu": "4"}), node("b", asked={"cpu": "1"}), node("c", status="NotReady", asked={"cpu": "8"})]
    )
    assert together.status == "2/3"
    assert (str(together.allocatable["cpu"]), str(together.requested["cpu"])) == ("16", "5")
