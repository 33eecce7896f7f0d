"""The official `kubernetes` client: watches, logs that are followed, and its leader election."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.commands import TIMEOUT

client = pytest.importorskip("kubernetes.client", reason="`kubernetes` is not installed; `make test` installs it")
watch = pytest.importorskip("kubernetes.watch")
electionconfig = pytest.importorskip("kubernetes.leaderelection.electionconfig")
leaderelection = pytest.importorskip("kubernetes.leaderelection.leaderelection")
configmaplock = pytest.importorskip("kubernetes.leaderelection.resourcelock.configmaplock")

LEASE = 8


@pytest.fixture
def core(api_client: Any) -> Any:
    return client.CoreV1Api(api_client)


def pod(name: str, script: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "command": ["bash", "-c", script]}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def wait_for_phase(core: Any, namespace: str, name: str, *phases: str) -> Any:
    """Wait by a watch, as the examples of the client do."""
    selected = {"field_selector": f"metadata.name={name}", "timeout_seconds": int(TIMEOUT)}
    for event in watch.Watch().stream(core.list_namespaced_pod, namespace, **selected):
        if event["object"].status.phase in phases:
            return event["object"]
    raise AssertionError(f"{name} did not become {phases}")


def test_a_watch_goes_on_over_many_requests_until_it_is_stopped(core: Any, namespace: str) -> None:
    """Without a timeout of its own the client asks anew, from where it was, as often as the server ends a request."""
    custom = client.CustomObjectsApi(core.api_client)
    where = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "plural": "trainjobs", "namespace": namespace}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    spec = {"runtimeRef": {"name": "none"}, "managedBy": "kueue.x-k8s.io/multikueue"}
    watcher = watch.Watch()
    requests = itertools.count()

    @functools.wraps(custom.list_namespaced_custom_object)  # the client reads in the docstring what it gets
    def list_briefly(*args: Any, **options: Any) -> Any:
        # Stands for a server, or something on the way to it, that ends watches early.
        if next(requests) == 1:
            custom.create_namespaced_custom_object(**where, body={**job, "metadata": {"name": "late"}, "spec": spec})
        return custom.list_namespaced_custom_object(*args, **options, timeout_seconds=1)

    custom.create_namespaced_custom_object(**where, body={**job, "metadata": {"name": "early"}, "spec": spec})
    added = []
    for event in watcher.stream(list_briefly, **where):
        if event["type"] == "ADDED":
            added.append(event["object"]["metadata"]["name"])
        if "late" in added:
            watcher.stop()
    assert added == ["early", "late"]
    assert next(requests) == 2


def test_a_log_is_followed_to_its_end(core: Any, namespace: str, tmp_path: Any) -> None:
    go = tmp_path / "go"
    core.create_namespaced_pod(
        namespace, pod("follows", f"echo first; while ! test -e {go}; do sleep 0.05; done; echo; echo last")
    )
    wait_for_phase(core, namespace, "follows", "Running")
    lines = watch.Watch().stream(core.read_namespaced_pod_log, name="follows", namespace=namespace, follow=True)
    assert next(lines) == "first"
    raw = core.read_namespaced_pod_log("follows", namespace, follow=True, _preload_content=False)
    go.touch()
    assert list(lines) == ["", "last"]
    assert b"".join(raw.stream()) == b"first\n\nlast\n"
    raw.release_conn()


class Candidate:
    """One that takes part in an election, as in the example of the client, and can be cut off from the cluster."""

    def __init__(self, namespace: str, identity: str) -> None:
        self.cut = threading.Event()
        lock = configmaplock.ConfigMapLock("election", namespace, identity)
        update = lock.update
        lock.update = lambda *arguments: not self.cut.is_set() and update(*arguments)
        self.leads, self.stopped = threading.Event(), threading.Event()
        settings = electionconfig.Config(
            lock,
            lease_duration=LEASE,
            renew_deadline=LEASE - 2,
            retry_period=1,
            onstarted_leading=self.leads.set,
            onstopped_leading=self.stopped.set,
        )
        self.thread = threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True)
        self.thread.start()


def test_leader_election(core: Any, namespace: str) -> None:
    def record() -> dict[str, str]:
        annotations = core.read_namespaced_config_map("election", namespace).metadata.annotations
        found: dict[str, str] = json.loads(annotations["control-plane.alpha.kubernetes.io/leader"])
        return found

    def renewed() -> datetime:
        return datetime.fromisoformat(record()["renewTime"])

    first = Candidate(namespace, "first")
    assert first.leads.wait(TIMEOUT)
    second = Candidate(namespace, "second")
    begin = renewed()
    while renewed() - begin <= timedelta(seconds=LEASE):
        assert not first.stopped.wait(0.5)
    assert not second.leads.is_set(), "a lease that is renewed does not end"
    first.cut.set()
    assert first.stopped.wait(TIMEOUT)
    assert second.leads.wait(TIMEOUT)
    assert record()["holderIdentity"] == "second"
    second.cut.set()
    for candidate in (first, second):
        candidate.thread.join(TIMEOUT)
        assert not candidate.thread.is_alive()
