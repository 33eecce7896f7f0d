"""Pods of jobs with `nodes.lostAfter` are removed from nodes that are lost, so that the job can start anew elsewhere.

- Nodes are watched from when the first job has such a policy, and trimmed to what tells whether they are lost.
- A node is lost when its Node is gone; when it is not ready and has the taint `out-of-service`; or when it has not been
  ready for `lostAfter`. Before anything is removed the Node is read once more: a cache may be old.
- Pods get the condition DisruptionTarget, as those that the cluster takes away: so Job and JobSet restart the group
  without a charge, and what has been done is seen by who goes on after a crash.
- While the kubelet still reports (Ready=False) pods are deleted with their grace period. When that is over, or nothing
  is heard of the node, they are marked as failed and removed at once, as the pod garbage collector does: nobody else
  would. The processes of a node that is only cut off may run on meanwhile; whoever sets `lostAfter` accepts that.
- A node has pods of many owners. One that cannot be removed, or whose policy cannot be read, holds no other one up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from trainmaster.controller.conditions import find_condition, stored_status
from trainmaster.controller.container_failures import disruption_of
from trainmaster.controller.explain.pods import has_ended
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.clock import Clock, parse_time, time_text
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.kube.rest.resources import NODES, PODS
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, JOBSET_LABEL
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.resilience import PODS_BY_NODE, built_policy

log = structlog.get_logger(__name__)

NAME: Final = "lost_nodes"
REASON: Final = "DeletionByTrainmaster"
"""Of the condition DisruptionTarget."""

RETRY: Final = 15.0
"""Seconds until a removal is tried again that the API server refuses."""

_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_FIELD_MANAGER: Final = "trainer"
_STRATEGIC: Final = "application/strategic-merge-patch+json"


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes where pods are watched for it."""
    if not any(PODS_BY_NODE in watch.indexes for watch in watches):
        return
    reason = "remove the pods of a job from a node that is lost, where its policy has nodes.lostAfter"
    yield PolicyRule(resource=NODES, verbs=("get", "list", "watch"), needed_by=NAME, reason=reason, optional=True)
    yield PolicyRule(resource=PODS, verbs=("delete",), needed_by=NAME, reason=reason, optional=True)
    yield PolicyRule(
        resource=PODS, subresource="status", verbs=("patch",), needed_by=NAME, reason=reason, optional=True
    )


@dataclass(frozen=True, slots=True)
class Loss:
    """A node on which pods do not run any more, as far as anybody knows."""

    text: str
    since: datetime | None
    """Since when it is not ready; None: it is certain that nothing runs there."""

    is_silent: bool = True
    """Whether its kubelet does not even say that it is not ready."""


def loss_of(name: str, node: JsonObject | None) -> Loss | None:
    """Return why the pods of a node may be lost; None if it is ready."""
    if node is None:
        return Loss(f"node {name} is gone", None)
    ready = find_condition(stored_status(node)["conditions"], "Ready") or {}
    if ready.get("status") not in ("False", "Unknown") or not ready.get("lastTransitionTime"):
        return None
    if any(taint.get("key") == _OUT_OF_SERVICE for taint in (node.get("spec") or {}).get("taints") or ()):
        return Loss(f"node {name} is out of service", None)
    since = ready["lastTransitionTime"]
    return Loss(f"node {name} is not ready since {since}", parse_time(since), ready["status"] == "Unknown")


def seconds_left(loss: Loss, lost_after: float, now: datetime) -> float:
    """Return after how many seconds a node is given up; 0: now."""
    return 0.0 if loss.since is None else max(0.0, lost_after - (now - loss.since).total_seconds())


class LostNodes:
    """Watches nodes, and removes pods; its queue has names of nodes.

    Args:
        may_watch: Whether nodes may be watched: a manager of named namespaces has no right to anything beyond them.
    """

    def __init__(
        self, client: KubeClient, queue: WorkQueue, listers: Listers, *, clock: Clock, may_watch: bool = True
    ) -> None:
        self._client = client
        self.queue = queue
        self._listers = listers
        self._clock = clock
        self._may_watch = may_watch
        self._wanted = asyncio.Event()
        self._nodes: Informer | None = None
        """Once it is filled."""

    def want(self) -> None:
        """Have nodes watched from now on: there is a job with such a policy."""
        if not self._wanted.is_set():
            self._wanted.set()
            if not self._may_watch:
                log.warning(
                    "nodes.lostAfter of a resilience policy has no effect: this manager serves some namespaces only, "
                    "and may not watch nodes"
                )

    async def run(self) -> None:
        """Keep the nodes current until cancelled."""
        await self._wanted.wait()
        if not self._may_watch:
            return
        options = InformerOptions(optional=True, absent_if_denied=True, transform=_trimmed)
        nodes = Informer(self._client, NODES, options, clock=self._clock)
        nodes.add_event_handler(self._on_node_event)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(nodes.run(), name=f"informer-{nodes.name}")
            await nodes.wait_synced()
            self._nodes = nodes
            for pod in self._listers.list("v1", "Pod"):
                self._add_node_of(pod)

    def _on_node_event(self, change: Delta) -> None:
        if loss_of(change.key, change.new) is not None:
            self.queue.add(change.key)

    def on_pod_event(self, change: Delta) -> None:
        """Handle an event of a pod."""
        if self._nodes is not None and change.new is not None:
            self._add_node_of(change.new)

    def _add_node_of(self, pod: JsonObject) -> None:
        name = (pod.get("spec") or {}).get("nodeName")
        if name and self._nodes is not None and loss_of(name, self._nodes.store.get(name)) is not None:
            self.queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Remove what is due of the pods of a node; returns after how many seconds the next is due."""
        if self._nodes is None:
            return None  # its pods come again when the nodes are known
        loss, pods = loss_of(name, self._nodes.store.get(name)), list(self._pods(name))
        if loss is None or not pods:
            return None
        left = min(seconds_left(loss, lost_after, self._clock.now()) for _, lost_after in pods)
        if not left:
            loss = loss_of(name, await self._read(name))
            if loss is None:
                return None
            now = self._clock.now()
            dues = [seconds_left(loss, lost_after, now) or await self._remove(pod, loss) for pod, lost_after in pods]
            left = min(filter(None, dues), default=0.0)
        return left or None

    def _pods(self, node: str) -> Iterator[tuple[JsonObject, float]]:
        """Return the pods that occupy a node, each with the seconds after which its policy gives the node up."""
        for pod in self._listers.by_index("v1", "Pod", PODS_BY_NODE, node):
            metadata = pod["metadata"]
            is_going = "deletionTimestamp" in metadata
            if (has_ended(pod) and not is_going) or (is_going and not metadata.get("deletionGracePeriodSeconds")):
                continue
            jobset = (metadata.get("labels") or {}).get(JOBSET_LABEL) or ""
            found = self._listers.get(JOBSET_API_VERSION, JOBSET_KIND, metadata["namespace"], jobset)
            built = None if found is None else built_policy(found)
            if built is not None and built.policy.nodes is not None and built.policy.nodes.lost_after is not None:
                try:
                    lost_after = duration_seconds(built.policy.nodes.lost_after)
                except ValueError:
                    continue  # somebody has written that into the JobSet
                yield pod, lost_after

    async def _read(self, name: str) -> JsonObject | None:
        try:
            return await self._client.get(NODES, None, name)
        except NotFound:
            return None

    async def _remove(self, pod: JsonObject, loss: Loss) -> float:
        """Have a pod go; returns the seconds that it may still take."""
        metadata, now = pod["metadata"], self._clock.now()
        deadline = metadata.get("deletionTimestamp")
        at_once = loss.since is None or loss.is_silent
        if not at_once and deadline is not None and (left := (parse_time(deadline) - now).total_seconds()) > 0:
            return left
        at_once = at_once or deadline is not None
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        log.warning("a pod is removed from a lost node", namespace=namespace, pod=name, why=loss.text, at_once=at_once)
        try:
            if status := _status(pod, loss, fails=at_once, now=now):
                await self._client.patch(
                    PODS,
                    namespace,
                    name,
                    {"metadata": {"uid": uid}, "status": status},
                    content_type=_STRATEGIC,
                    subresource="status",
                    field_manager=_FIELD_MANAGER,
                )
            await self._client.delete(PODS, namespace, name, uid=uid, grace_seconds=0 if at_once else None)
        except NotFound:
            pass
        except ApiError as error:
            log.warning("a pod of a lost node cannot be removed", namespace=namespace, pod=name, error=str(error))
            return RETRY
        return 0.0


def _status(pod: JsonObject, loss: Loss, *, fails: bool, now: datetime) -> dict[str, Any]:
    """Return what the status of a pod lacks that is removed."""
    status: dict[str, Any] = {}
    if disruption_of(pod) is None:
        text = f"Trainmaster: {loss.text}"
        condition = {"type": "DisruptionTarget", "status": "True", "reason": REASON, "message": text}
        status["conditions"] = [{**condition, "lastTransitionTime": time_text(now)}]
    if fails and not has_ended(pod):
        status["phase"] = "Failed"
    return status


def _trimmed(node: JsonObject) -> JsonObject:
    """Keep of a Node what tells whether it is lost."""
    metadata = {name: node["metadata"].get(name) for name in ("name", "uid", "resourceVersion")}
    ready = find_condition(stored_status(node)["conditions"], "Ready")
    kept = {name: each for name, each in (ready or {}).items() if name in ("type", "status", "lastTransitionTime")}
    taints = [each for each in (node.get("spec") or {}).get("taints") or () if each.get("key") == _OUT_OF_SERVICE]
    return {**node, "metadata": metadata, "spec": {"taints": taints}, "status": {"conditions": [kept] if kept else []}}
