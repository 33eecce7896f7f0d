"""The official `kubernetes` client: objects, watches, logs that are followed, and its leader election."""

import functools
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.commands import TIMEOUT

client = pytest.importorskip("kubernetes.client", reason="`kubernetes` is not installed; `make test` installs it")
dynamic = pytest.importorskip("kubernetes.dynamic")
utils = pytest.importorskip("kubernetes.utils")

TRAINJOBS = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "plural": "trainjobs"}


@pytest.fixture
def core(api_client: Any) -> Any:
    return client.CoreV1Api(api_client)


@pytest.fixture
def custom(api_client: Any) -> Any:
    return client.CustomObjectsApi(api_client)


def configmap(name: str, **data: str) -> Any:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"made": "here"}), data=data)


def trainjob(name: str) -> dict[str, Any]:
    """A TrainJob that only lies there: it is another controller's."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "none"}, "managedBy": "kueue.x-k8s.io/multikueue"},
    }


@contextmanager
def speaking(content_type: str) -> Iterator[Any]:
    """A client that sends this type: by itself it chooses one that the server may not take, or that is not meant."""
    with client.ApiClient() as opened:
        opened.set_default_header("Content-Type", content_type)
        yield opened


def refusal(error: Any) -> tuple[int, str]:
    """Status code and reason of an error, as clients read them."""
    return error.value.status, json.loads(error.value.body)["reason"]


def test_times_survive_the_models_of_the_client(api_client: Any, namespace: str) -> None:
    """The client reads times into datetime and writes them in another form; whole updates have to go through."""
    leases = client.CoordinationV1Api(api_client)
    acquired = datetime.now(UTC)
    spec = client.V1LeaseSpec(holder_identity="me", acquire_time=acquired, renew_time=acquired)
    lease = leases.create_namespaced_lease(namespace, client.V1Lease(metadata={"name": "l"}, spec=spec))
    assert lease.spec.renew_time == acquired
    # Another zone, and a fraction that the server writes in one way only.
    lease.spec.renew_time = renewed = (acquired + timedelta(seconds=3)).replace(microsecond=500000)
    lease = leases.replace_namespaced_lease("l", namespace, lease)
    assert (lease.spec.acquire_time, lease.spec.renew_time) == (acquired, renewed)


def test_patches_of_core_objects(core: Any, namespace: str) -> None:
    """A list is sent as a JSON patch, a map as a strategic merge patch, and whatever else on demand."""
    core.create_namespaced_config_map(namespace, configmap("p", a="1", b="2"))

    def patch(body: Any, api: Any = core, **options: Any) -> dict[str, str]:
        data: dict[str, str] = api.patch_namespaced_config_map("p", namespace, body, **options).data
        return data

    assert patch({"data": {"a": "3", "b": None}}) == {"a": "3"}
    assert patch([{"op": "add", "path": "/data/c", "value": "4"}]) == {"a": "3", "c": "4"}
    with speaking("application/merge-patch+json") as merging:
        assert patch({"data": {"a": None}}, client.CoreV1Api(merging)) == {"c": "4"}
    with speaking("application/apply-patch+yaml") as applying:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": {"c": "5"}}
        options: dict[str, Any] = {"api": client.CoreV1Api(applying), "field_manager": "tests"}
        with pytest.raises(client.ApiException) as conflict:
            patch(body, **options)
        assert refusal(conflict) == (409, "Conflict")
        assert patch(body, **options, force=True) == {"c": "5"}

    pod = {
        "containers": [{"name": "c", "image": "i", "command": ["sleep", "60"]}],
        "schedulingGates": [{"name": "x/y"}],
    }
    core.create_namespaced_pod(namespace, {"metadata": {"name": "p"}, "spec": pod})
    strategic = {"spec": {"containers": [{"name": "c", "image": "newer"}]}}
    (container,) = core.patch_namespaced_pod("p", namespace, strategic).spec.containers
    assert (container.image, container.command) == ("newer", ["sleep", "60"])


def test_custom_objects(custom: Any, namespace: str) -> None:
    where = {**TRAINJOBS, "namespace": namespace}
    created = custom.create_namespaced_custom_object(**where, body=trainjob("t"))
    assert created["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    where["name"] = "t"
    created["metadata"]["labels"] = {"a": "b"}
    assert custom.replace_namespaced_custom_object(**where, body=created)["metadata"]["labels"] == {"a": "b"}

    merged = custom.patch_namespaced_custom_object(**where, body={"metadata": {"labels": {"a": None, "c": "d"}}})
    assert merged["metadata"]["labels"] == {"c": "d"}
    with speaking("application/json-patch+json") as patching:
        operations = [{"op": "replace", "path": "/metadata/labels/c", "value": "e"}]
        changed = client.CustomObjectsApi(patching).patch_namespaced_custom_object(**where, body=operations)
        assert changed["metadata"]["labels"] == {"c": "e"}
    with speaking("application/strategic-merge-patch+json") as strategic:
        with pytest.raises(client.ApiException) as unsupported:
            client.CustomObjectsApi(strategic).patch_namespaced_custom_object(**where, body={})
        assert refusal(unsupported) == (415, "UnsupportedMediaType")
    with pytest.raises(client.ApiException) as invalid:
        custom.patch_namespaced_custom_object(**where, body={"spec": {"trainer": {"numNodes": -1}}})
    assert refusal(invalid) == (422, "Invalid")

    condition = {
        "type": "Complete",
        "status": "False",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"status": {"conditions": [condition]}, "metadata": {"labels": {"c": "f"}}}
    custom.patch_namespaced_custom_object_status(**where, body=status)
    got = custom.get_namespaced_custom_object(**where)
    assert got["metadata"]["labels"] == {"c": "e"}
    assert condition in got["status"]["conditions"]
    custom.delete_namespaced_custom_object(**where)
    del where["name"]
    assert custom.list_namespaced_custom_object(**where)["items"] == []
    assert custom.list_cluster_custom_object(**TRAINJOBS, limit=1)["kind"] == "TrainJobList"


def test_documents_with_several_kinds(api_client: Any, core: Any, namespace: str) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "suspend": True,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["true"]}]}
            },
        },
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "value"}}
    made = utils.create_from_dict(
        api_client, {"apiVersion": "v1", "kind": "List", "items": [secret, job]}, namespace=namespace
    )
    assert [each.metadata.name for each in made] == ["s", "j"]
    assert core.read_namespaced_secret("s", namespace).data == {"key": "dmFsdWU="}
    with pytest.raises(utils.FailToCreateError):
        utils.create_from_dict(api_client, secret, namespace=namespace)


def test_the_dynamic_client(api_client: Any, namespace: str) -> None:
    """It finds kinds by discovery alone."""
    resources = dynamic.DynamicClient(api_client).resources
    configmaps = resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"a": "1"}}
    configmaps.create(body=body, namespace=namespace)
    merge = {"content_type": "application/merge-patch+json"}
    configmaps.patch(name="d", namespace=namespace, body={"data": {"b": "2"}}, **merge)
    applied = configmaps.server_side_apply(
        name="d", namespace=namespace, body={**body, "data": {"c": "3"}}, field_manager="tests"
    )
    assert applied.data.to_dict() == {"a": "1", "b": "2", "c": "3"}
    configmaps.delete(name="d", namespace=namespace)
    jobs = resources.get(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob")
    jobs.create(body=trainjob("d"), namespace=namespace)
    assert [job.metadata.name for job in jobs.get(namespace=namespace).items] == ["d"]


watch = pytest.importorskip("kubernetes.watch")
electionconfig = pytest.importorskip("kubernetes.leaderelection.electionconfig")
leaderelection = pytest.importorskip("kubernetes.leaderelection.leaderelection")
configmaplock = pytest.importorskip("kubernetes.leaderelection.resourcelock.configmaplock")

LEASE = 8


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
