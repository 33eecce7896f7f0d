"""What is a job's own, and who owns which fields of an object, as far as the managedFields can be read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobworld import JobWorld, pytorchjob, replicas

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.drift import OWNED_FIELDS, owned_fields, owned_fields_of, strip_managed_fields
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_value, owner_values
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import is_controlled_by


def stranger(kind: str, name: str, *, status: JsonObject | None = None, **metadata: Any) -> JsonObject:
    """An object of another namespace with the labels of one of the job's, that names its UID as the controller's."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "demo", "uid": "uid-1", "controller": True}
    labels = {
        "training.kubeflow.org/job-name": "demo",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": name.split("-")[1],
        "training.kubeflow.org/replica-index": "0",
    }
    identity = {
        "name": name,
        "namespace": "other",
        "uid": f"other-{name}",
        "labels": labels,
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": {**identity, **metadata}, "status": status or {}}


def ended(phase: str, exit_code: int) -> JsonObject:
    terminated = {"exitCode": exit_code, "finishedAt": "2030-01-01T00:00:00Z"}
    return {"phase": phase, "containerStatuses": [{"name": "pytorch", "state": {"terminated": terminated}}]}


@pytest.mark.guarantee("E-5")
@pytest.mark.parametrize(
    "pod",
    [
        stranger("Pod", "demo-master-0", status=ended("Succeeded", 0)),
        stranger("Pod", "demo-worker-0", status=ended("Failed", 1)),
    ],
)
async def test_a_pod_of_another_namespace_changes_nothing_of_a_job_whose_uid_it_names(pod: JsonObject) -> None:
    world = JobWorld(pytorchjob(master=replicas(1), worker=replicas(2), policy={"cleanPodPolicy": "All"}))
    await world.settle()
    world.run()
    await world.settle()
    before = list(world.requests)
    world.stores.pods.put(pod)
    await world.settle()
    assert (world.state, world.requests) == ("Running", before)


@pytest.mark.guarantee("E-5")
async def test_pods_and_services_of_another_namespace_are_not_in_the_way_of_those_of_a_job() -> None:
    world = JobWorld(pytorchjob(master=replicas(1), worker=replicas(1)))
    world.stores.pods.put(stranger("Pod", "demo-master-0", deletionTimestamp="2026-01-01T00:00:00Z"))
    world.stores.services.put(stranger("Service", "demo-worker-0"))
    await world.settle()
    assert world.names("Pod") == world.names("Service") == ["demo-master-0", "demo-worker-0"]


@pytest.mark.guarantee("E-5")
def test_an_owner_is_known_by_namespace_and_uid_wherever_objects_are_looked_up() -> None:
    """By the index, which history and web page read too, and by an object in hand."""
    job = TrainJob.model_validate(
        {"metadata": {"name": "demo", "namespace": "team", "uid": "1"}, "spec": {"runtimeRef": {"name": "r"}}}
    )
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "demo", "uid": "1"}

    def jobset(name: str, namespace: str, **reference: Any) -> JsonObject:
        return {"metadata": {"name": name, "namespace": namespace, "ownerReferences": [{**owner, **reference}]}}

    objects = [
        jobset("demo", "team", controller=True),
        jobset("demo", "other", controller=True),
        jobset("namesake", "team", controller=True, uid="2"),
        jobset("used", "team"),
    ]
    store = Store()
    store.add_indexer(OWNER_INDEX, owner_values)
    store.replace(map(store.entry, objects), resource_version="1")
    assert store.index_keys(OWNER_INDEX, owner_value("team", "1")) == ["team/demo"]
    assert [is_controlled_by(each, job) for each in objects] == [True, False, False, False]


@pytest.mark.guarantee("E-5")
@pytest.mark.parametrize(("group", "waits"), [("kubeflow.org/v1alpha9", True), ("example.com/v1", False)])
async def test_only_what_an_earlier_job_of_the_same_group_left_is_waited_for(group: str, waits: bool) -> None:
    """The garbage collector leaves alone what names an owner of a kind that it does not know: nobody would be told."""
    pod = stranger("Pod", "demo-master-0")
    pod["metadata"] |= {"namespace": "team"}
    pod["metadata"]["ownerReferences"][0] |= {"uid": "uid-0", "apiVersion": group}
    world = JobWorld(pytorchjob(master=replicas(1)))
    world.stores.pods.put(pod)
    await world.settle()
    assert [each["reason"] for each in world.status["conditions"] if each["type"] == "Blocked"] == (
        [] if waits else ["NameTaken"]
    )


# What might be taken for the end of an entry, or for one of ours.
NAMES = st.sampled_from(["f:a", 'k:{"name":"a"}', 'v:"b"', '},{"a', "]", '"manager":"trainer"', "é", "."])
FIELDS: st.SearchStrategy[JsonObject] = st.recursive(
    st.just({}), lambda below: st.dictionaries(NAMES, below, max_size=3), max_leaves=6
)
ENTRIES = st.fixed_dictionaries(
    {
        "manager": st.sampled_from(["trainer", "trainer2", 'a","manager":"trainer', "kubectl"]),
        "operation": st.sampled_from(["Apply", "Update"]),
        "fieldsV1": FIELDS,
    },
    optional={"subresource": st.just("status"), "time": st.just("2026-01-01T00:00:00Z")},
)


@pytest.mark.guarantee("A-5")
def test_owned_fields_are_those_of_our_applies() -> None:
    fields: list[JsonObject] = [
        {"manager": "trainer", "operation": "Update", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "fieldsV1": {"f:right": {}}},
    ]
    assert owned_fields_of({"metadata": {"managedFields": fields}}, "trainer") == {"f:right": {}}
    assert owned_fields_of({"metadata": {}}, "trainer") is None


@pytest.mark.guarantee("A-5")
@given(entries=st.lists(ENTRIES, max_size=4))
def test_they_are_what_is_kept_of_a_stripped_object(entries: list[JsonObject]) -> None:
    obj: JsonObject = {"metadata": {"name": "a", "managedFields": entries}, "spec": {"c": 1}}
    owned = owned_fields_of(obj, "trainer")
    stripped = strip_managed_fields(obj)
    assert owned_fields(stripped) == owned
    assert OWNED_FIELDS in stripped["metadata"] or owned is None
    assert "managedFields" not in stripped["metadata"]


@pytest.mark.guarantee("A-5")
@pytest.mark.parametrize("text", ["", "[]", "[", "[{]", '["trainer"]', '[{"manager":"trainer","operation":"Apply",x}]'])
def test_of_a_text_that_is_none_nothing_is_ours(text: str) -> None:
    assert owned_fields(strip_managed_fields({"metadata": {"managedFields": text}})) is None
