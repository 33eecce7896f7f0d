"""Plays recorded cases of V1 jobs on a simulated cluster: an API server, our manager, and time that jumps.

Nothing else runs in that cluster, as when the cases were recorded: neither a scheduler nor a kubelet nor the garbage
collector. The case plays users, kubelets and gang schedulers.
"""

import asyncio
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from support.jobs.normalising import JOB_KINDS, Normaliser, sorted_events
from support.jobs.recorded import Case, Stages, admitting_jobs, configuration_of
from support.sim.listening import LogEntry
from support.sim.loop import SimClock, VirtualLoop
from support.sim.world import World, panics, simulate

from trainmaster.controller.job_kinds import job_kinds
from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import EVENTS, NAMESPACES, PODS, GroupResource
from trainmaster.runtime.jsontree import JsonObject

NAMESPACE: Final = "golden-v1-cases"

QUIET: Final = 1.6
"""Seconds without any change after which a stage was over for the recorder."""

PATIENCE: Final = 20.0
"""Seconds after which a stage that is not over never will be."""

_RETRY: Final = 0.2
_TRIES: Final = 40

_OPTIONS = WriteOptions(field_manager="recorder")

_JOBS: Final = {kind: GroupResource("kubeflow.org", f"{kind.lower()}s") for kind in JOB_KINDS}
_SECTIONS: Final = {
    "pods": PODS,
    "services": GroupResource("", "services"),
    "configmaps": GroupResource("", "configmaps"),
    "serviceaccounts": GroupResource("", "serviceaccounts"),
    "roles": GroupResource("rbac.authorization.k8s.io", "roles"),
    "rolebindings": GroupResource("rbac.authorization.k8s.io", "rolebindings"),
    "hpas": GroupResource("autoscaling", "horizontalpodautoscalers"),
    "volcanopodgroups": GroupResource("scheduling.volcano.sh", "podgroups"),
    "schedpodgroups": GroupResource("scheduling.x-k8s.io", "podgroups"),
}
_KINDS: Final = _JOBS | {
    "Pod": PODS,
    "Service": _SECTIONS["services"],
    "ConfigMap": _SECTIONS["configmaps"],
    "ServiceAccount": _SECTIONS["serviceaccounts"],
    "Role": _SECTIONS["roles"],
    "RoleBinding": _SECTIONS["rolebindings"],
    "HorizontalPodAutoscaler": _SECTIONS["hpas"],
}


def play(case: Case, registry: Registry) -> Stages:
    """Play a case in a cluster of its own; returns what was seen at each stage.

    Raises:
        AssertionError: The manager does not come to rest, or met an error that nobody foresaw.
    """
    before = panics()

    async def main(loop: VirtualLoop, entries: list[LogEntry]) -> Stages:
        configuration = configuration_of(case.profile)
        world = World(loop, registry=registry, seed=1, configuration=configuration)
        await create_system_namespaces(world.server.api)
        async with admitting_jobs(world.server.api, job_kinds(configuration), SimClock(loop)):
            world.ensure(1)
            seen = await _Player(world, case).play()
        unforeseen = [entry for entry in entries if "exception" in entry]
        assert not unforeseen, unforeseen[0]
        assert not world.violations, world.violations
        return seen

    seen: Stages = simulate(main, seed=1)
    assert panics() == before, "a reconcile ended with an unforeseen exception"
    return seen


class _Player:
    def __init__(self, world: World, case: Case) -> None:
        self._world = world
        self._api = world.server.api
        self._case = case
        self._own = case.namespace == "NS"
        self._namespace = NAMESPACE if self._own else case.namespace
        self._normaliser = Normaliser(self._namespace if self._own else "\0")
        created = [*case.objects, *(action.get("create", {}) for step in case.steps for action in step.get("do", ()))]
        self._kinds = sorted({obj["kind"] for obj in created if obj.get("kind") in JOB_KINDS})

    async def play(self) -> Stages:
        """Play all steps."""
        if self._own:
            await self._api.create(NAMESPACES, {"metadata": {"name": self._namespace}}, namespace=None)
        await self._rest(QUIET)
        for obj in self._case.objects:
            await self._create(obj)
        seen: Stages = {}
        for step in self._case.steps:
            results = [result for action in step.get("do", ()) if (result := await self._result(action)) is not None]
            await asyncio.sleep(step.get("wait", 0))
            sections = step.get("sections")
            stage: JsonObject = {"results": results}
            if sections != []:
                await self._rest(max(QUIET, step.get("hold", 0)))
                stage |= self._snapshot(sections)
            seen[step["stage"]] = stage
        return seen

    async def _rest(self, quiet: float) -> None:
        """Wait until nothing has changed for a while."""
        loop = self._world.loop
        end, revision, since = loop.time() + PATIENCE, self._api.revision, loop.time()
        while loop.time() - since < quiet:
            await asyncio.sleep(0.1)
            if self._api.revision != revision:
                assert loop.time() < end, f"something is written for ever: {self._world.server.trace[-1]}"
                revision, since = self._api.revision, loop.time()

    # What is done

    async def _result(self, action: JsonObject) -> Any:
        """Do something; returns the API's answer to what was written, None for what only plays a part."""
        ((verb, given),) = action.items()
        for left in reversed(range(_TRIES)):
            try:
                await self._act(verb, given)
            except StatusError as error:
                if left and ((error.code, verb) == (409, "patch") or (error.code, verb) == (404, "pods")):
                    await asyncio.sleep(_RETRY)
                    continue
                message = self._normaliser.message(error.message)
                return {"code": error.code, "reason": error.reason, "message": message}
            break
        return "ok" if verb in ("create", "patch", "delete") else None

    async def _act(self, verb: str, given: Any) -> None:
        match verb:
            case "create":
                await self._create(given)
            case "patch":
                await self._patch(_KINDS[given["kind"]], given["name"], given["body"], given.get("sub", ""))
            case "pods":
                await self._report(given)
            case "podgroup":
                for resource in (_SECTIONS["volcanopodgroups"], _SECTIONS["schedpodgroups"]):
                    if self._matching(resource, given["name"]):
                        # Those of Volcano have no subresource for their status.
                        status = "status" if "status" in self._api.registry.get(resource).subresources else ""
                        await self._patch(resource, given["name"], {"status": {"phase": given["phase"]}}, status)
            case "bind":
                for pod in self._matching(PODS, given["match"]):
                    await self._patch(PODS, pod["metadata"]["name"], {"spec": {"nodeName": given["node"]}}, "binding")
            case "delete":
                resource = _KINDS[given["kind"]]
                for obj in self._matching(resource, given["name"]):
                    options = DeleteOptions(grace_seconds=0 if given.get("force") else None)
                    await self._api.delete(resource, self._namespace, obj["metadata"]["name"], options=options)
            case "sleep":
                await asyncio.sleep(given)
            case _:
                raise AssertionError(f"no such action: {verb}")

    async def _create(self, given: JsonObject) -> None:
        obj = _with_namespace(given, self._namespace)
        status, resource = obj.pop("status", None), _resource_of(obj)
        created = await self._api.create(resource, obj, namespace=self._namespace, options=_OPTIONS)
        if obj["kind"] in JOB_KINDS:
            self._normaliser.note_job(created)
        if status:
            await self._patch(resource, obj["metadata"]["name"], {"status": status}, "status")

    async def _patch(self, resource: GroupResource, name: str, body: JsonObject, subresource: str) -> None:
        await self._api.patch(
            resource, self._namespace, name, body, patch_type=PatchType.MERGE, subresource=subresource, options=_OPTIONS
        )

    async def _report(self, given: JsonObject) -> None:
        """Report the status of pods, as a kubelet would."""
        found = self._matching(PODS, given["match"])
        if len(found) < given.get("count", 1):
            raise StatusError(404, "NotFound", f"{len(found)} pods match {given['match']}")
        for pod in found:
            status = pod_status(pod, given, now=self._api.clock())
            await self._patch(PODS, pod["metadata"]["name"], {"status": status}, "status")

    # What is seen

    def _snapshot(self, wanted: list[str] | None) -> JsonObject:
        seen: JsonObject = {}
        if wanted is None or "jobs" in wanted:
            seen["jobs"] = {
                f"{kind}/{job['metadata']['name']}": self._normaliser.job(job, self._state(_JOBS[kind], job))
                for kind in self._kinds
                for job in self._list(_JOBS[kind])
            }
        for section, resource in _SECTIONS.items():
            if wanted is None or section in wanted:
                seen[section] = {
                    obj["metadata"]["name"]: self._normaliser.dependent(section, obj) for obj in self._list(resource)
                }
        if wanted is None or "events" in wanted:
            seen["events"] = self._normaliser.hide(sorted_events(self._list(EVENTS)))
        return seen

    def _state(self, resource: GroupResource, job: JsonObject) -> str:
        """Return what `kubectl get` shows."""
        (column,) = (each for each in self._api.registry.get(resource).columns if each.name == "State")
        return str(column.cell(job, self._api.clock()) or "")

    def _list(self, resource: GroupResource) -> list[JsonObject]:
        records, _ = self._api.list(resource, self._namespace)
        return [record.object for record in records]

    def _matching(self, resource: GroupResource, patterns: str | list[str]) -> list[JsonObject]:
        given = [patterns] if isinstance(patterns, str) else patterns
        return [
            obj
            for obj in self._list(resource)
            if any(fnmatchcase(obj["metadata"]["name"], pattern) for pattern in given)
        ]


def _resource_of(obj: JsonObject) -> GroupResource:
    if obj["kind"] == "PodGroup":
        return GroupResource(obj["apiVersion"].partition("/")[0], "podgroups")
    return _KINDS[obj["kind"]]


def _with_namespace(node: Any, namespace: str) -> Any:
    if isinstance(node, str):
        return node.replace("$NS", namespace)
    if isinstance(node, list):
        return [_with_namespace(each, namespace) for each in node]
    if isinstance(node, dict):
        return {key: _with_namespace(value, namespace) for key, value in node.items()}
    return node


def pod_status(pod: JsonObject, given: JsonObject, *, now: datetime) -> JsonObject:
    """Return the status of a pod as a kubelet reports it.

    Args:
        pod: The pod.
        given: `phase`, and where the case says so `exitCode`, `restartCount`, `reason`, `message`; `bare` for a pod
            that was evicted, or whose node was lost, which has no status of containers.
        now: The time.
    """
    phase, moment = given["phase"], now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = {key: given.get(key, "") for key in ("reason", "message")}
    if given.get("bare"):
        return {"phase": phase, **told}
    ended = {"startedAt": moment, "finishedAt": moment}
    state: JsonObject
    match phase:
        case "Running":
            state = {"running": {"startedAt": moment}}
        case "Pending":
            state = {"waiting": {**told, "reason": told["reason"] or "ContainerCreating"}}
        case _:
            code = given.get("exitCode", 0 if phase == "Succeeded" else 1)
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", **ended}}
    ready = phase == "Running"
    status: JsonObject = {
        "phase": phase,
        "startTime": moment,
        "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": moment}],
        "containerStatuses": [
            _container_status(each, state, ready=ready, restarts=given.get("restartCount", 0))
            for each in pod["spec"]["containers"]
        ],
    }
    if pod["spec"].get("initContainers") and phase != "Pending":
        done = {"terminated": {"exitCode": 0, "reason": "Completed", **ended}}
        status["initContainerStatuses"] = [
            _container_status(each, done, ready=True, restarts=0) for each in pod["spec"]["initContainers"]
        ]
    return status


def _container_status(container: JsonObject, state: JsonObject, *, ready: bool, restarts: int) -> JsonObject:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
    }
