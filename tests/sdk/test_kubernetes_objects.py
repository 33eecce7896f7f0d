"""The official `kubernetes` client: objects of all sorts, as its documentation reads and writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

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
