"""The lifecycle of a pod with a clock, and what the rules of pods find wrong with one."""

from datetime import UTC, datetime, timedelta
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.pod_validation import validate_pod_spec
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod, default_pod_spec
from trainmaster.devcluster.kubelet.container import Termination
from trainmaster.devcluster.kubelet.pod_lifecycle import PodActions, PodLifecycle
from trainmaster.devcluster.kubelet.pod_status import pod_status
from trainmaster.devcluster.settings import KubeletSettings
from trainmaster.runtime.jsontree import JsonObject, copy_tree

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Machine:
    """A lifecycle with a clock, and shortcuts for facts."""

    def __init__(self, *, status: JsonObject | None = None, **spec: Any) -> None:
        spec.setdefault("containers", [{"name": "main", "image": "i"}])
        self.pod: JsonObject = {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": spec,
            "status": status or {},
        }
        self.now = START
        self.lifecycle = PodLifecycle(self.pod, now=START, settings=KubeletSettings())

    def actions(self, *, after: float = 0) -> PodActions:
        self.now += timedelta(seconds=after)
        return self.lifecycle.compute_actions(self.now)

    def start(self, *names: str) -> None:
        for name in names:
            self.lifecycle.running(name, at=self.now)

    def exit(self, name: str, code: int = 0) -> None:
        ended = Termination(exit_code=code, reason="Completed" if code == 0 else "Error", finished_at=self.now)
        self.lifecycle.exited(name, ended)

    def run_and_exit(self, name: str, code: int = 0) -> PodActions:
        self.start(name)
        self.exit(name, code)
        return self.actions()

    def status(self) -> JsonObject:
        self.pod["status"] = pod_status(self.pod, self.lifecycle, pod_ip="127.1.2.3", now=self.now)
        status: JsonObject = self.pod["status"]
        return status

    def condition(self, kind: str) -> JsonObject:
        found: JsonObject = next(entry for entry in self.status()["conditions"] if entry["type"] == kind)
        return found


TWO: Any = {"containers": [{"name": "a"}, {"name": "b"}]}


def begun(**spec: Any) -> Machine:
    """A pod whose first containers are to start."""
    machine = Machine(**spec)
    machine.actions()
    return machine


def running(**spec: Any) -> Machine:
    """A pod whose only container runs."""
    machine = begun(**spec)
    machine.start("main")
    return machine


def container(**fields: Any) -> JsonObject:
    """A container with an image."""
    return {"name": "c", "image": "img:1", **fields}


def pod_spec(**fields: Any) -> JsonObject:
    """The spec of a pod with one container, as the server completes it."""
    spec: JsonObject = copy_tree({"containers": [container()], **fields})
    default_pod(spec)
    return spec


def in_short(errors: list[FieldError]) -> list[str]:
    """Each error once, as its path below the spec and its type, in alphabetical order."""
    return sorted({f"{error.field.removeprefix('spec.')} {error.type}" for error in errors})


def wrong(**fields: Any) -> list[str]:
    """What is wrong with a pod that has these fields in its spec."""
    return in_short(validate_pod_spec(pod_spec(**fields), "spec", is_pod=True))


def wrong_in_template(**fields: Any) -> list[str]:
    """What is wrong with the template of pods that has these fields in its spec."""
    spec: JsonObject = copy_tree({"containers": [container()], **fields})
    default_pod_spec(spec)
    return in_short(validate_pod_spec(spec, "spec"))


def wrong_in_container(spec: JsonObject | None = None, /, **fields: Any) -> list[str]:
    """What is wrong with a pod whose only container has these fields; paths are below that container."""
    found = wrong(**(spec or {}), containers=[container(**fields)])
    return sorted(each.removeprefix("containers[0].") for each in found)
