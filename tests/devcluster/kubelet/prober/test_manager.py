"""Hooks, probes, events and devices of pods that really run, in both modes of networking."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import cast

import pytest
from support.commands import TIMEOUT, eventually
from support.node import Node, sh, terminated

from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.devcluster.events import EventBroadcaster
from trainmaster.devcluster.kubelet.container_config import ContainerConfig
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.devcluster.kubelet.pod_lifecycle import PodLifecycle
from trainmaster.devcluster.kubelet.prober import ProbeManager
from trainmaster.devcluster.kubelet.supervisor_client import SupervisorClient
from trainmaster.devcluster.settings import KubeletSettings
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.02; done"


def executes(script: str, **probe: int) -> JsonObject:
    return {"exec": {"command": ["/bin/sh", "-c", script]}, **probe}


def shared(script: str, **container: object) -> tuple[JsonObject, JsonObject]:
    """A container with a volume at /shared, and the pod's list of volumes."""
    mounted = sh(script, volumeMounts=[{"name": "v", "mountPath": "/shared"}], **container)
    return mounted, {"volumes": [{"name": "v", "emptyDir": {}}]}


def is_ready(pod: JsonObject) -> bool:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return bool(statuses[0].get("ready"))


def has_restarted(pod: JsonObject) -> bool:
    return any(status["restartCount"] == 1 for status in pod["status"].get("containerStatuses") or ())


async def test_a_container_is_ready_when_its_probe_says_so(node: Node, kubelet: Kubelet) -> None:
    container, volumes = shared(
        f"while ! test -e /shared/go; do sleep 0.02; done; touch /shared/ready; {FOREVER}",
        readinessProbe=executes("test -e /shared/ready || { echo not yet; false; }", periodSeconds=1),
    )
    await node.create(container, **volumes)
    pod = await node.phase("Running")
    assert not is_ready(pod)
    assert pod["status"]["containerStatuses"][0]["started"] is True
    assert await node.event_message("Unhealthy") == "Readiness probe failed: not yet"
    (node.directory / "pods" / pod["metadata"]["uid"] / "volumes/v/go").touch()
    pod = await node.reached(is_ready)
    assert {c["type"]: c["status"] for c in pod["status"]["conditions"]}["Ready"] == "True"


async def test_a_failing_liveness_probe_restarts_the_container(node: Node, kubelet: Kubelet) -> None:
    container, volumes = shared(
        f"echo >> /shared/runs; {FOREVER}",
        livenessProbe=executes("test $(wc -l < /shared/runs) -ge 2", periodSeconds=1, failureThreshold=1),
    )
    await node.create(container, restartPolicy="OnFailure", **volumes)
    # The trap makes it end with 0 on SIGTERM: under OnFailure it would not come back.
    assert terminated(await node.phase("Succeeded"))["exitCode"] == 0
    assert await node.event_message("Killing") == "Container c failed liveness probe, will be restarted"

    await node.create(container, name="always", restartPolicy="Always", **volumes)
    await node.reached(has_restarted, name="always")
    await eventually(lambda: is_ready(node.api.get(PODS, "default", "always")))


async def test_a_container_that_does_not_start_up_is_ended(node: Node, kubelet: Kubelet) -> None:
    probe = executes("exit 1", periodSeconds=1, failureThreshold=1)
    await node.create(
        sh("trap '' TERM; while :; do sleep 0.02; done", startupProbe={**probe, "terminationGracePeriodSeconds": 1})
    )
    assert (await node.phase("Running"))["status"]["containerStatuses"][0]["started"] is False
    assert terminated(await node.phase("Failed"))["exitCode"] == 137
    assert await node.event_message("Unhealthy") == "Startup probe failed: exit code 1"


SERVE = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("", int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
async def test_servers_are_probed_at_the_port_that_they_were_given(node: Node, kubelet: Kubelet, kind: str) -> None:
    for name in ("one", "two"):  # on the same port: each has a local one
        container = {
            "name": "c",
            "image": "any",
            "command": [sys.executable, "-c", SERVE, "--port", "8080"],
            "ports": [{"containerPort": 8080, "name": "web"}],
            "readinessProbe": {kind: {"port": "web"}, "periodSeconds": 1},
        }
        await node.create(container, name=name)
    for name in ("one", "two"):
        await node.reached(is_ready, name=name)


async def test_post_start_comes_before_running_and_pre_stop_before_the_end(node: Node, kubelet: Kubelet) -> None:
    hooks = {
        "postStart": executes("echo begun > /shared/hook"),
        "preStop": executes("cat /shared/hook > /shared/last; sleep 0.1; echo done >> /shared/last"),
    }
    container, volumes = shared("trap 'cat /shared/last; exit 0' TERM; while :; do sleep 0.02; done", lifecycle=hooks)
    await node.create(container, **volumes)
    pod = await node.phase("Running")
    directory = node.directory / "pods" / pod["metadata"]["uid"] / "volumes/v"
    assert (directory / "hook").read_text() == "begun\n"
    log = directory.parents[1] / "logs/c/0.log"
    held = {**pod, "metadata": {**pod["metadata"], "finalizers": ["example.com/hold"]}}
    held["metadata"].pop("resourceVersion")
    await node.api.update(PODS, held, namespace="default")
    await node.api.delete(PODS, "default", "p")
    await node.phase("Succeeded")
    assert [line.split(" ")[-1] for line in log.read_text().splitlines()][-2:] == ["begun", "done"]


async def test_a_failing_post_start_hook_ends_the_container(node: Node, kubelet: Kubelet) -> None:
    lifecycle = {"postStart": executes("echo broken; exit 1")}
    await node.create(sh("trap '' TERM; sleep 60", lifecycle=lifecycle), terminationGracePeriodSeconds=1)
    assert terminated(await node.phase("Failed"))["exitCode"] == 137
    assert (await node.event_message("FailedPostStartHook")).startswith("PostStartHook failed: broken")


async def test_a_pre_stop_hook_that_hangs_ends_with_the_grace_period(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("sleep 60", lifecycle={"preStop": executes("sleep 60")}))
    await node.phase("Running")
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=1))
    await node.gone()


async def test_a_container_that_is_being_stopped_is_not_probed_any_more(node: Node, kubelet: Kubelet) -> None:
    """A server that shuts down stops to answer; that must not cut its grace period short."""
    container, volumes = shared(
        "trap 'touch /shared/told' TERM; while :; do sleep 0.02; done",
        livenessProbe=executes("test ! -e /shared/told", periodSeconds=1, failureThreshold=1),
    )
    await node.create(container, **volumes)
    await node.phase("Running")
    await node.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=3))
    await node.gone()
    assert [text for _, reason, text in node.events() if reason in {"Unhealthy", "Killing"}] == ["Stopping container c"]


async def test_events_tell_what_happens(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("exit 1"), restartPolicy="OnFailure")
    assert await node.event_message("Started") == "Started container c"
    uid = node.api.get(PODS, "default", "p")["metadata"]["uid"]
    assert await node.event_message("BackOff") == f"Back-off restarting failed container c in pod p_default({uid})"
    await node.create(sh("sleep 60"), name="ends")
    await node.phase("Running", name="ends")
    await node.api.delete(PODS, "default", "ends")
    assert await node.event_message("Killing", name="ends") == "Stopping container c"


class Terminations:
    """Stands in for the supervisor and notes what is terminated."""

    def __init__(self) -> None:
        self.terminated: list[str] = []

    def terminate(self, identity: str) -> None:
        self.terminated.append(identity)


def alone(container: JsonObject, terminations: Terminations) -> ProbeManager:
    """The probe manager of a pod with one container, without a kubelet."""
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [container]}}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return ProbeManager(
        pod,
        PodLifecycle(pod, now=now, settings=KubeletSettings()),
        supervisor=cast("SupervisorClient", terminations),
        events=EventBroadcaster(Api(Store(), builtin_registry()), "kubelet"),
        address="127.0.0.1",
        clock=lambda: now,
        wake=lambda: None,
    )


def test_a_container_that_is_still_starting_is_terminated_at_once() -> None:
    """There is a process although the report of it is still under way; a hook has nothing to run in yet."""
    terminations = Terminations()
    alone(sh("sleep 60", lifecycle={"preStop": executes("sleep 60")}), terminations).terminate("c", "u/c/0")
    assert terminations.terminated == ["u/c/0"]


async def test_a_container_that_starts_while_it_is_being_stopped_is_not_probed() -> None:
    probe_manager = alone(sh("sleep 60", livenessProbe=executes("true", initialDelaySeconds=60)), Terminations())
    async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:  # which would wait for a probe
        probe_manager.start(group)
        probe_manager.terminate("c", "u/c/0")
        probe_manager.started("c", cast("ContainerConfig", None), pid=1, at=datetime(2026, 11, 20, tzinfo=UTC))
        probe_manager.sync()
