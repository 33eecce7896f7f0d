"""Nodes that are lost, in virtual time: whose pods are removed, when, and how."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from support.failing_pods import pod, show_counts
from support.informers import Script, bookmark, event
from support.stack import api_server, manager
from support.training import apply_runtime, found, runtime, trainjob, until
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.container_failures import disruption_of
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, NotFound, ServerError
from trainmaster.controller.kube.rest.resources import NODES, PODS, Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.outcomes import until_due
from trainmaster.controller.resilience.lost_nodes import LostNodes
from trainmaster.controller.resources import JOBSETS, TRAINJOBS, plugin_index
from trainmaster.plugins.resilience import Resilience
from trainmaster.runtime.api.constants import RESILIENCE_ANNOTATION
from trainmaster.runtime.api.resilience import ResiliencePolicy
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.resilience import PODS_BY_NODE, BuiltPolicy

SINCE = "2026-01-01T00:00:00Z"


def node(status: str, *, taints: tuple[str, ...] = ()) -> JsonObject:
    """A node that changed to this readiness at the beginning."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "uid": "n", "resourceVersion": "2"},
        "spec": {"taints": [{"key": f"node.kubernetes.io/{key}", "effect": "NoExecute"} for key in taints]},
        "status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": SINCE}]},
    }


class Cluster(Script):
    """A server with a node and a pod there of a job that gives nodes up after 30 s."""

    def __init__(self, node: JsonObject | None) -> None:
        self.clock = VirtualClock()
        super().__init__(self.clock)
        self.node = node
        self.removals: list[tuple[str, Any]] = []
        """What was asked for: phases, reasons of conditions, and grace periods."""

        self.failures = 0
        self.pods, self.jobsets = Store(), Store()
        [watch] = Resilience().watch_extension()
        self.pods.add_indexer(plugin_index(PODS_BY_NODE), watch.indexes[PODS_BY_NODE])
        built = BuiltPolicy(ResiliencePolicy.model_validate({"nodes": {"lostAfter": "30s"}}))
        metadata = {"name": "demo", "namespace": "team", "annotations": {RESILIENCE_ANNOTATION: built.encode()}}
        self.jobset = {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "metadata": metadata}
        self.jobsets.put(self.jobset)
        self.pod = pod()
        self.pod["spec"]["nodeName"] = "n"
        stores = {("v1", "Pod"): (PODS, self.pods), (JOBSETS.api_version, "JobSet"): (JOBSETS, self.jobsets)}
        self.queue = WorkQueue(clock=self.clock)
        self.lost_nodes = LostNodes(
            cast("KubeClient", self), self.queue, StoreListers(stores, workloads=[]), clock=self.clock
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run a manager, whose caches are filled."""
        self.show()
        controller = Controller("lost_nodes", until_due(self.lost_nodes.reconcile), self.queue, clock=self.clock)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in (self.lost_nodes.run(), controller.run())]
            self.lost_nodes.want()
            await settle()
            frames = [] if self.node is None else [event("ADDED", copy_tree(self.node))]
            end = bookmark(2, end=True)
            end["object"]["kind"] = "Node"
            await self.send(*frames, end)
            yield
            for each in running:
                each.cancel()

    def show(self) -> None:
        """Have the cache of pods see the pod."""
        self.lost_nodes.on_pod_event(self.pods.put(copy_tree(self.pod)))

    async def show_node(self, version: int, status: str) -> None:
        """Have the watch tell of another readiness."""
        self.node = node(status)
        self.node["metadata"]["resourceVersion"] = str(version)
        await self.send(event("MODIFIED", copy_tree(self.node)))

    async def get(self, resource: Resource, _namespace: None, name: str) -> JsonObject:
        assert (resource, name) == (NODES, "n")
        if self.node is None:
            raise NotFound(status=404)
        return self.node

    def show_other_job(self, *, lost_after: str) -> None:
        """Have the caches see another job, one of whose pods is on the same node."""
        other, jobset = copy_tree(self.pod), copy_tree(self.jobset)
        built = BuiltPolicy(ResiliencePolicy.model_validate({"nodes": {"lostAfter": lost_after}}))
        jobset["metadata"] |= {"name": "other", "annotations": {RESILIENCE_ANNOTATION: built.encode()}}
        other["metadata"] |= {"name": "other", "uid": "other"}
        other["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "other"
        self.jobsets.put(jobset)
        self.pods.put(other)

    async def patch(self, resource: Resource, namespace: str, name: str, patch: JsonObject, **_: Any) -> None:
        if name == "other":
            raise Forbidden(status=403, message="a policy of its namespace forbids that")
        assert (resource, patch["metadata"]) == (PODS, {"uid": self.pod["metadata"]["uid"]})
        status = patch["status"]
        self.removals.append(("status", (status.get("phase"), disruption_of(patch))))
        self.pod["status"] |= status
        self.show()

    async def delete(self, *_: Any, uid: str, grace_seconds: int | None) -> None:
        assert uid == self.pod["metadata"]["uid"]
        if self.failures:
            self.failures -= 1
            raise ServerError(status=500)
        self.removals.append(("delete", grace_seconds))
        deleted = {"deletionGracePeriodSeconds": 30, "deletionTimestamp": "2026-01-01T00:01:30Z"}
        self.pod["metadata"] |= deleted if grace_seconds is None else deleted | {"deletionGracePeriodSeconds": 0}
        self.show()


def told(text: str, at: str) -> tuple[str, str]:
    return f"DeletionByTrainmaster: Trainmaster: node n {text}", at


SILENT = told(f"is not ready since {SINCE}", "2026-01-01T00:00:30Z")


async def test_pods_of_a_silent_node_are_removed_when_the_policy_gives_it_up() -> None:
    cluster = Cluster(node("Unknown"))
    async with cluster.running():
        await cluster.clock.advance(29)
        assert cluster.removals == []
        await cluster.clock.advance(2)
        assert cluster.removals == [("status", ("Failed", SILENT)), ("delete", 0)]
        await cluster.clock.advance(600)
        assert len(cluster.removals) == 2, "a finalizer keeps it, which others remove"


async def test_pods_of_a_node_that_answers_have_their_grace_period() -> None:
    cluster = Cluster(node("False"))
    async with cluster.running():
        await cluster.clock.advance(31)
        assert cluster.removals == [("status", (None, SILENT)), ("delete", None)]
        await cluster.clock.advance(58)
        assert len(cluster.removals) == 2
        await cluster.clock.advance(2)
        assert cluster.removals[2:] == [("status", ("Failed", None)), ("delete", 0)]


@pytest.mark.parametrize(
    ("lost", "text"),
    [(None, "is gone"), (node("Unknown", taints=("unreachable", "out-of-service")), "is out of service")],
)
async def test_what_is_certain_is_not_waited_for(lost: JsonObject | None, text: str) -> None:
    cluster = Cluster(lost)
    async with cluster.running():
        await cluster.clock.advance(1)
        assert cluster.removals == [("status", ("Failed", told(text, "2026-01-01T00:00:00Z"))), ("delete", 0)]


async def test_a_node_that_is_back_keeps_its_pods_also_if_the_cache_is_late() -> None:
    cluster = Cluster(node("Unknown"))
    async with cluster.running():
        await cluster.clock.advance(20)
        cluster.node = node("True")
        await cluster.clock.advance(100)
        assert cluster.removals == []
        await cluster.show_node(3, "True")
        await cluster.clock.advance(600)
        assert cluster.removals == []
        await cluster.show_node(4, "Unknown")
        await cluster.clock.advance(1)
        assert len(cluster.removals) == 2


async def test_a_removal_that_fails_half_way_is_finished() -> None:
    cluster = Cluster(node("Unknown"))
    cluster.pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:10Z", "deletionGracePeriodSeconds": 30}
    cluster.failures = 1
    async with cluster.running():
        await cluster.clock.advance(60)
    assert cluster.removals == [("status", ("Failed", SILENT)), ("delete", 0)]


@pytest.mark.parametrize("lost_after", ["soon", "9" * 400 + "h", "1s"], ids=len)
async def test_pods_of_other_jobs_that_cannot_be_removed_hold_none_up(lost_after: str) -> None:
    """Who may write a JobSet may spoil its annotation, and an admission policy may refuse what is done to pods."""
    cluster = Cluster(node("Unknown"))
    cluster.show_other_job(lost_after=lost_after)
    async with cluster.running():
        await cluster.clock.advance(31)
        assert cluster.removals == [("status", ("Failed", SILENT)), ("delete", 0)]


@pytest.mark.parametrize(
    ("readiness", "phase", "policy"),
    [("Unknown", "Succeeded", True), ("Unknown", "Running", False), ("True", "Running", True)],
)
async def test_other_pods_stay(readiness: str, phase: str, policy: bool) -> None:
    """Also those of a node that is ready, whatever taint it has: they are evicted with their grace period."""
    cluster = Cluster(node(readiness, taints=("out-of-service",)))
    cluster.pod["status"]["phase"] = phase
    if not policy:
        cluster.jobsets.delete("team/demo")
    async with cluster.running():
        await cluster.clock.advance(600)
        assert cluster.removals == []


@pytest.mark.parametrize(("may_watch", "warnings"), [(True, 0), (False, 1)])
async def test_nodes_are_watched_for_such_a_policy_only_and_never_by_a_manager_of_some_namespaces(
    may_watch: bool, warnings: int
) -> None:
    cluster = Cluster(None)
    nodes = LostNodes(
        cast("KubeClient", cluster), cluster.queue, StoreListers({}), clock=cluster.clock, may_watch=may_watch
    )
    task = asyncio.create_task(nodes.run())
    await settle()
    assert cluster.opened == []
    with capture_logs() as logs:
        for _ in range(2):
            nodes.want()
            await settle()
    assert [each["log_level"] for each in logs] == ["warning"] * warnings
    assert len(cluster.opened) == may_watch
    task.cancel()


async def test_a_manager_removes_the_pods_of_a_job_from_a_lost_node(tmp_path: Path) -> None:
    """On an API server, with the rights that it declares; nobody removes the finalizer of the pod here."""
    async with api_server(tmp_path) as stack:
        client = stack.client
        await apply_runtime(client, runtime())
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        await client.patch(NODES, None, "n", {"status": node("Unknown")["status"]}, subresource="status")
        await client.create(TRAINJOBS, trainjob("demo", resiliencePolicy={"nodes": {"lostAfter": "5m"}}))
        async with manager(stack.access):
            jobset = await until(lambda: found(client, JOBSETS, "demo"))
            await show_counts(client, "default", "demo", active=1)
            made = pod(jobset_uid=jobset["metadata"]["uid"])
            template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            labels = made["metadata"]["labels"] | template["metadata"]["labels"]
            spec = {"nodeName": "n", "containers": [{"name": "node", "image": "none"}]}
            kept = {"name": "p", "namespace": "default", "labels": labels, "finalizers": ["example.com/tracking"]}
            await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})

            async def removed() -> JsonObject | None:
                found = await client.get(PODS, "default", "p")
                return found if "deletionTimestamp" in found["metadata"] else None

            left = await until(removed)
        assert left["metadata"]["deletionGracePeriodSeconds"] == 0
        assert left["status"]["phase"] == "Failed"
        assert (disruption_of(left) or ("", ""))[0] == SILENT[0]
