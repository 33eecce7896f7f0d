"""The EndpointSlice controller against the API, with hand-set pod statuses."""

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import LABELS, make_ready, replicaset, service, template

from trainmaster.devcluster.apiserver.resources import ENDPOINT_SLICES, PODS, REPLICA_SETS, SERVICES
from trainmaster.devcluster.controllers.endpointslice import EndpointSliceController
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector
from trainmaster.devcluster.controllers.replicaset import ReplicaSetController
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def cluster(cluster: Stepper) -> Stepper:
    cluster.start(
        EndpointSliceController(cluster.api), ReplicaSetController(cluster.api), GarbageCollector(cluster.api)
    )
    return cluster


async def pods(cluster: Stepper, count: int, **container: object) -> list[JsonObject]:
    made = replicaset(replicas=count, template=template(**container))  # type: ignore[arg-type]
    await cluster.api.create(REPLICA_SETS, made, namespace="default")
    await cluster.settle()
    for number, pod in enumerate(cluster.objects(PODS)):
        await make_ready(cluster, pod, address=f"127.20.0.{number + 1}")
    return cluster.objects(PODS)


async def expose(cluster: Stepper, **spec: object) -> None:
    await cluster.api.create(SERVICES, service(**spec), namespace="default")
    await cluster.settle()


def conditions(cluster: Stepper) -> dict[str, tuple[bool, bool, bool]]:
    return {
        each["addresses"][0]: tuple(each["conditions"][name] for name in ("ready", "serving", "terminating"))
        for piece in cluster.objects(ENDPOINT_SLICES)
        for each in piece["endpoints"]
    }


async def test_a_service_leads_to_the_pods_that_its_selector_finds(cluster: Stepper) -> None:
    made = await pods(cluster, 2)
    await expose(cluster)
    (piece,) = cluster.objects(ENDPOINT_SLICES)
    assert piece["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert piece["metadata"]["ownerReferences"][0]["kind"] == "Service"
    assert piece["ports"] == [{"name": "", "port": 9443, "protocol": "TCP"}]
    assert piece["addressType"] == "IPv4"
    assert [each["targetRef"]["name"] for each in piece["endpoints"]] == [pod["metadata"]["name"] for pod in made]


async def test_readiness_and_termination_are_told_at_once(cluster: Stepper) -> None:
    first, second, _ = await pods(cluster, 3)
    await expose(cluster)
    await cluster.set_pod(first, "Pending")
    live = cluster.api.get(PODS, "default", first["metadata"]["name"])
    status = {**live["status"], "podIP": "127.20.0.1"}
    await cluster.api.update(PODS, {**live, "status": status}, namespace="default", subresource="status")
    live = cluster.api.get(PODS, "default", second["metadata"]["name"])
    kept = {**live["metadata"], "finalizers": ["example.com/slow"]}
    await cluster.api.update(PODS, {**live, "metadata": kept})
    await cluster.api.delete(PODS, "default", second["metadata"]["name"])
    await cluster.settle()
    assert conditions(cluster) == {
        "127.20.0.1": (False, False, False),
        "127.20.0.2": (False, True, True),
        "127.20.0.3": (True, True, False),
    }


async def test_a_service_may_publish_addresses_that_are_not_ready(cluster: Stepper) -> None:
    (pod,) = await pods(cluster, 1)
    await expose(cluster, clusterIP="None", publishNotReadyAddresses=True)
    await cluster.set_pod(pod, "Pending")
    live = cluster.api.get(PODS, "default", pod["metadata"]["name"])
    status = {**live["status"], "podIP": "127.20.0.1"}
    await cluster.api.update(PODS, {**live, "status": status}, namespace="default", subresource="status")
    await cluster.settle()
    assert conditions(cluster) == {"127.20.0.1": (True, False, False)}
    assert "service.kubernetes.io/headless" in cluster.objects(ENDPOINT_SLICES)[0]["metadata"]["labels"]


async def test_a_named_port_is_looked_up_in_each_pod(cluster: Stepper) -> None:
    await pods(cluster, 1, ports=[{"name": "webhook", "containerPort": 9443}])
    other = {"name": "main", "image": "i", "ports": [{"name": "webhook", "containerPort": 9999}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "z", "labels": LABELS},
        "spec": {"containers": [other]},
    }
    owner = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": True}]
    pod["metadata"]["ownerReferences"] = owner  # type: ignore[index]
    cluster.stop()
    cluster.start(EndpointSliceController(cluster.api))
    await cluster.api.create(PODS, pod, namespace="default")
    await make_ready(cluster, cluster.api.get(PODS, "default", "z"), address="127.20.0.9")
    await expose(cluster, ports=[{"port": 443, "targetPort": "webhook", "name": "https"}])
    found = {
        piece["ports"][0]["port"]: piece["endpoints"][0]["addresses"] for piece in cluster.objects(ENDPOINT_SLICES)
    }
    assert found == {9443: ["127.20.0.1"], 9999: ["127.20.0.9"]}


async def test_what_somebody_else_changes_is_put_right_and_foreign_slices_stay(cluster: Stepper) -> None:
    await pods(cluster, 1)
    await expose(cluster)
    (piece,) = cluster.objects(ENDPOINT_SLICES)
    foreign = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "foreign", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [],
    }
    await cluster.api.create(ENDPOINT_SLICES, foreign, namespace="default")
    await cluster.api.update(ENDPOINT_SLICES, {**piece, "endpoints": []})
    await cluster.settle()
    assert len(cluster.api.get(ENDPOINT_SLICES, "default", piece["metadata"]["name"])["endpoints"]) == 1
    assert cluster.exists(ENDPOINT_SLICES, "foreign")


async def test_endpoints_go_with_their_service(cluster: Stepper) -> None:
    await pods(cluster, 1)
    await expose(cluster)
    await cluster.delete(SERVICES, "web")
    await cluster.advance(1)
    assert cluster.objects(ENDPOINT_SLICES) == []


async def test_a_service_without_a_selector_is_left_to_whoever_made_it(cluster: Stepper) -> None:
    await expose(cluster, selector={})
    assert cluster.objects(ENDPOINT_SLICES) == []
