"""The stepper drives controllers step by step in virtual time: no tasks, no waiting, the same result every time.

`Stepper` owns a clock that only moves by `advance`, an API, and the controllers under test. It also stands
in for the kubelet: tests say what becomes of a pod.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, Propagation
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import EVENTS, NAMESPACES, PODS, GroupResource
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.controllers.control_loop import Controller
from trainmaster.runtime.jsontree import JsonObject

_START = datetime(2026, 1, 1, tzinfo=UTC)
_ROUNDS = 200  # far more than any chain of controllers needs to come to rest


class Stepper:
    """A cluster at rest between any two lines of a test."""

    def __init__(self, *, store: Store | None = None) -> None:
        self.now = _START
        self.store = store or Store()
        self.api = Api(self.store, builtin_registry(), clock=lambda: self.now)
        self._controllers: list[Controller] = []

    def start(self, *controllers: Controller) -> None:
        """Add controllers; they see what exists and, from now on, every change."""
        for controller in controllers:
            self._controllers.append(controller)
            for loop in controller.loops:
                loop.start()

    def stop(self) -> None:
        """Stop all controllers, as a crash of the process between two writes would."""
        for controller in self._controllers:
            for loop in controller.loops:
                loop.stop()
        self._controllers.clear()

    async def settle(self) -> int:
        """Run until nothing is due at the present moment; tells how many reconciles that took."""
        total = 0
        for _ in range(_ROUNDS):
            reconciled = sum([await loop.run_ready() for each in self._controllers for loop in each.loops])
            if not reconciled:
                return total
            total += reconciled
        raise AssertionError(f"the controllers do not come to rest: still busy after {_ROUNDS} rounds")

    async def advance(self, seconds: float) -> None:
        """Let time pass, with every timer on the way going off at its moment."""
        end = self.now + timedelta(seconds=seconds)
        while True:
            await self.settle()
            due = [at for each in self._controllers for loop in each.loops if (at := loop.next_due) is not None]
            if not due or min(due) > end:
                break
            self.now = min(due)
        self.now = end
        await self.settle()

    async def namespace(self, name: str) -> None:
        """Create a namespace."""
        await self.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def objects(self, resource: GroupResource, namespace: str | None = None) -> list[JsonObject]:
        """Return the objects of a resource, by name."""
        return [record.object for record in self.store.list(resource, namespace)]

    def exists(self, resource: GroupResource, name: str, *, namespace: str | None = "default") -> bool:
        """Tell whether there is such an object."""
        try:
            self.api.get(resource, namespace, name)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return True

    def reasons(self, name: str) -> list[str]:
        """Return the reasons of the events about an object, each once."""
        return [event["reason"] for event in self.objects(EVENTS) if event["involvedObject"]["name"] == name]

    async def set_pod(
        self,
        pod: JsonObject,
        phase: str,
        *,
        exit_code: int | None = None,
        restarts: int = 0,
        ready: bool = True,
        conditions: Iterable[JsonObject] = (),
    ) -> None:
        """Put a pod into a phase, as its kubelet would; a Running one is ready unless its containers wait."""
        metadata = pod["metadata"]
        state: JsonObject = {"running": {"startedAt": timestamp(self.now)}}
        if phase in {"Succeeded", "Failed"}:
            code = (0 if phase == "Succeeded" else 1) if exit_code is None else exit_code
            state = {"terminated": {"exitCode": code, "finishedAt": timestamp(self.now)}}
        ready = ready and phase == "Running"
        condition: JsonObject = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": timestamp(self.now),
        }
        status = {
            "phase": phase,
            "conditions": [condition, *conditions],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "restartCount": restarts,
                    "state": state,
                    "ready": ready,
                    "image": container.get("image", ""),
                    "imageID": "",
                }
                for container in pod["spec"]["containers"]
            ],
        }
        current = self.api.get(PODS, metadata["namespace"], metadata["name"])
        await self.api.update(
            PODS, {**current, "status": status}, namespace=metadata["namespace"], subresource="status"
        )
        await self.settle()

    async def end_pod(self, pod: JsonObject) -> None:
        """Confirm that nothing of a deleted pod runs any more, as its kubelet would."""
        metadata = pod["metadata"]
        options = DeleteOptions(grace_seconds=0, uid=metadata["uid"])
        await self.api.delete(PODS, metadata["namespace"], metadata["name"], options=options)
        await self.settle()

    async def set_pods(self, phase: str, *, namespace: str = "default") -> None:
        """Put every pod that has not ended into a phase."""
        for pod in self.objects(PODS, namespace):
            if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed", phase}:
                await self.set_pod(pod, phase)

    async def delete(
        self,
        resource: GroupResource,
        name: str,
        *,
        namespace: str | None = "default",
        propagation: Propagation | None = None,
    ) -> None:
        """Delete an object in the way that a client asks for."""
        await self.api.delete(resource, namespace, name, options=DeleteOptions(propagation=propagation))
        await self.settle()
