"""The lifecycle of a pod with a clock, for tests of it and of the status that it gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from trainmaster.devcluster.kubelet.container import Termination
from trainmaster.devcluster.kubelet.pod_lifecycle import PodActions, PodLifecycle
from trainmaster.devcluster.kubelet.pod_status import pod_status
from trainmaster.devcluster.settings import KubeletSettings
from trainmaster.runtime.jsontree import JsonObject

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


def two(**spec: Any) -> Machine:
    return Machine(containers=[{"name": "a"}, {"name": "b"}], **spec)


def running(**spec: Any) -> Machine:
    """A pod whose only container runs."""
    machine = Machine(**spec)
    machine.actions()
    machine.start("main")
    return machine
