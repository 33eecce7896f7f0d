"""The registry and its kinds, with and without a cluster, and the line of a pod in `kubectl get pods`."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry import offline, pod_summary
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.offline import check
from trainmaster.devcluster.apiserver.registry.times import age, human_duration, timestamp
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, EVENTS, EVENTS_V1, NAMESPACES
from trainmaster.devcluster.apiserver.storage import Journal, Store
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml


def test_all_built_in_kinds_have_a_schema_and_distinct_names() -> None:
    kinds = builtin_registry().kinds()
    assert all(kind.schema is not None and kind.definition for kind in kinds)
    assert len({(kind.group, kind.kind) for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (19920, "5h32m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_for_people(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 1, 1, 1, 0, 0, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamp(moment) == "2025-12-31T23:00:00Z"
    assert age("2025-12-31T23:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)) == "60m"
    assert age(None, moment) == "<unknown>"


ROOT = Path(__file__).resolve().parents[4]


def trainjob(**spec: Any) -> JsonObject:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "demo"},
        "spec": {"runtimeRef": {"name": "rt"}, **spec},
    }


def faults(obj: JsonObject) -> list[tuple[str, str]]:
    answer = check(obj)
    assert answer is not None
    return [(fault.path, fault.message) for fault in answer[1]]


def test_defaults_are_filled_in_and_the_original_stays() -> None:
    obj = trainjob()
    before = copy_tree(obj)
    answer = check(obj)
    assert answer is not None
    checked, found = answer
    assert not found
    assert checked["spec"]["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    assert obj == before


def test_unknown_fields_come_with_the_known_ones() -> None:
    answer = check(trainjob(trainer={"env": [{"name": "A", "vale": "1"}]}))
    assert answer is not None
    (fault,) = answer[1]
    assert (fault.path, fault.known) == ("spec.trainer.env[0].vale", ("name", "value", "valueFrom"))


@pytest.mark.parametrize(
    ("obj", "path", "message"),
    [
        (trainjob(trainer={"numProcPerNode": 0}), "spec.trainer.numProcPerNode", "greater than or equal to 1"),
        (trainjob(activeDeadlineSeconds="1"), "spec.activeDeadlineSeconds", "must be of type integer"),
        (trainjob() | {"metadata": {"name": "Demo"}}, "metadata.name", "lowercase RFC 1123"),
        (trainjob() | {"metadata": {"name": "1"}}, "", "must match RFC 1035"),
        (trainjob() | {"metadata": {"name": "a", "labels": {"b": "c d"}}}, "metadata.labels", "a valid label"),
        (trainjob() | {"metadata": {"name": "a", "labels": {"b": 1}}}, "metadata.labels", "type string"),
        (trainjob() | {"apiVersion": "trainer.kubeflow.org/v2"}, "apiVersion", "no version v2 of TrainJob"),
    ],
)
def test_faults_are_those_of_the_api_server(obj: JsonObject, path: str, message: str) -> None:
    found = faults(obj)
    assert any(where.startswith(path) and message in text for where, text in found), found


def test_the_definitions_are_those_that_are_deployed() -> None:
    """They are read here as JSON, for its speed."""
    directory = Path(offline.__file__).parent / "definitions"
    read = {path.stem: orjson.loads(path.read_bytes()) for path in directory.glob("*.json")}
    folders = (ROOT / "deploy/crds", ROOT / "hack/trainmaster/devcluster/crds")
    assert read == {path.stem: load_yaml(path.read_text()) for folder in folders for path in folder.glob("*.yaml")}


def test_jobs_of_the_training_operator_are_checked_too() -> None:
    worker = {"replicas": "2", "templat": {}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "demo"}}
    found = faults(job | {"spec": {"jaxReplicaSpecs": {"Worker": worker}}})
    assert ("spec.jaxReplicaSpecs.Worker.templat", "unknown field") in found
    assert any(path == "spec.jaxReplicaSpecs.Worker.replicas" and "integer" in message for path, message in found)
    assert check({**job, "kind": "MXJob"}) is None


NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
RUNNING: JsonObject = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
COMPLETED: JsonObject = {"terminated": {"exitCode": 0, "reason": "Completed"}}
FAILED: JsonObject = {"terminated": {"exitCode": 3, "reason": "Error"}}


def waiting(reason: str) -> JsonObject:
    return {"waiting": {"reason": reason}}


def container(name: str, state: JsonObject, *, ready: bool = False, restarts: int = 0, last: str = "") -> JsonObject:
    shown = {"name": name, "state": state, "ready": ready, "restartCount": restarts, "started": "running" in state}
    return {**shown, "lastState": {"terminated": {"finishedAt": last}} if last else {}}


def pod(
    *main: JsonObject, init: tuple[JsonObject, ...] = (), sidecars: tuple[str, ...] = (), phase: str = "Running"
) -> JsonObject:
    spec = {
        "initContainers": [
            {"name": each["name"], **({"restartPolicy": "Always"} if each["name"] in sidecars else {})} for each in init
        ],
        "containers": [{"name": each["name"]} for each in main],
    }
    status = {"phase": phase, "initContainerStatuses": list(init), "containerStatuses": list(main)}
    return {"metadata": {"name": "p"}, "spec": spec, "status": status}


def shown(obj: JsonObject) -> tuple[str, str, str]:
    return pod_summary.readiness(obj), pod_summary.state(obj), pod_summary.restarts(obj, NOW)


WAITS = container("main", waiting("PodInitializing"))


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod(container("a", waiting("ContainerCreating")), phase="Pending"), ("0/1", "ContainerCreating", "0")),
        (pod(container("a", RUNNING, ready=True)), ("1/1", "Running", "0")),
        (pod(container("a", RUNNING)), ("0/1", "Running", "0")),
        (pod(container("a", COMPLETED), phase="Succeeded"), ("0/1", "Completed", "0")),
        (pod(container("a", FAILED), phase="Failed"), ("0/1", "Error", "0")),
        (pod(container("a", {"terminated": {"exitCode": 3}}), phase="Failed"), ("0/1", "ExitCode:3", "0")),
        (pod(container("a", {"terminated": {"exitCode": 137, "signal": 9}})), ("0/1", "Signal:9", "0")),
        (pod(container("a", COMPLETED), container("b", RUNNING, ready=True)), ("1/2", "NotReady", "0")),
        (
            pod(container("a", waiting("CrashLoopBackOff"), restarts=2, last="2026-01-01T00:09:30Z")),
            ("0/1", "CrashLoopBackOff", "2 (30s ago)"),
        ),
        # Of several the first one counts, for it is looked at last.
        (pod(container("a", waiting("CrashLoopBackOff")), container("b", FAILED)), ("0/2", "CrashLoopBackOff", "0")),
        (pod(WAITS, init=(container("i", waiting("PodInitializing")),)), ("0/1", "Init:0/1", "0")),
        (pod(WAITS, init=(container("i", RUNNING),)), ("0/1", "Init:0/1", "0")),
        (pod(WAITS, init=(container("i", COMPLETED), container("j", RUNNING))), ("0/1", "Init:1/2", "0")),
        (pod(WAITS, init=(container("i", COMPLETED, ready=True),)), ("0/1", "PodInitializing", "0")),
        (pod(WAITS, init=(container("i", FAILED),)), ("0/1", "Init:Error", "0")),
        (
            pod(WAITS, init=(container("i", {"terminated": {"exitCode": 9, "signal": 9}}),)),
            ("0/1", "Init:Signal:9", "0"),
        ),
        (
            pod(WAITS, init=(container("i", waiting("CrashLoopBackOff"), restarts=4, last="2026-01-01T00:09:00Z"),)),
            ("0/1", "Init:CrashLoopBackOff", "4 (60s ago)"),
        ),
        (
            pod(container("a", RUNNING, ready=True, restarts=1), init=(container("i", COMPLETED, restarts=4),)),
            ("1/1", "Running", "1"),
        ),
        (
            pod(
                container("a", RUNNING, ready=True),
                init=(container("s", RUNNING, ready=True, restarts=2),),
                sidecars=("s",),
            ),
            ("2/2", "Running", "2"),
        ),
        (pod(WAITS, init=(container("s", waiting("PodInitializing")),), sidecars=("s",)), ("0/2", "Init:0/1", "0")),
    ],
)
def test_a_pod_in_a_line(obj: JsonObject, expected: tuple[str, str, str]) -> None:
    assert shown(obj) == expected


def test_what_is_said_of_the_pod_itself() -> None:
    evicted = pod(phase="Failed")
    evicted["status"]["reason"] = "Evicted"
    assert pod_summary.state(evicted) == "Evicted"
    gated = pod(phase="Pending")
    gated["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert pod_summary.state(gated) == "SchedulingGated"
    beside = pod(container("a", COMPLETED), container("b", RUNNING, ready=True))
    beside["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pod_summary.state(beside) == "Running"


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        ("Running", "", "Terminating"),
        ("Pending", "", "Terminating"),
        ("Succeeded", "", "Completed"),
        ("Running", "NodeLost", "Unknown"),
    ],
)
def test_a_pod_that_is_being_deleted(phase: str, reason: str, expected: str) -> None:
    """One that has ended already waits for a finalizer: it says how it ended."""
    obj = pod(container("a", COMPLETED), phase=phase)
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    obj["status"]["reason"] = reason
    assert pod_summary.state(obj) == expected


async def put(api: Api, name: str, app: str, namespace: str = "default") -> None:
    obj = {"metadata": {"name": name, "labels": {"app": app}}}
    try:
        await api.create(CONFIGMAPS, obj, namespace=namespace)
    except StatusError:
        await api.update(CONFIGMAPS, obj, namespace=namespace)


async def test_a_bookmark_is_never_ahead_of_what_was_delivered(api: Api) -> None:
    """A client that resumes from a bookmark must not lose the events still on their way."""
    watch = api.watch(CONFIGMAPS, since=api.revision)
    start = api.revision
    await put(api, "a", "x")
    assert watch.revision == start
    await anext(watch)
    await api.create(NAMESPACES, {"metadata": {"name": "other"}})
    assert watch.revision == api.revision


async def test_a_watch_from_a_version_of_the_future_is_silent_until_it_comes(api: Api) -> None:
    future = api.revision + 2
    async with api.watch(CONFIGMAPS, since=future) as watch:
        for name in ("a", "b"):
            assert watch.revision == 0
            await put(api, name, "x")
        assert api.revision == future
        assert watch.take() is None
        assert watch.revision == future
        await put(api, "c", "x")
        event = watch.take()
    assert event is not None
    assert event.object is not None
    assert (event.type, event.object["metadata"]["name"], event.revision) == ("ADDED", "c", future + 1)


def old_style(name: str = "old") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "message": "hello",
        "reason": "Pulled",
        "type": "Normal",
        "source": {"component": "kubelet"},
    }


async def test_events_live_for_an_hour_after_their_last_write(api: Api, clock: Any) -> None:
    await api.create(EVENTS, old_style("first"), namespace="default")
    made = copy_tree(await api.create(EVENTS, old_style("second"), namespace="default"))
    clock.advance(minutes=30)
    await api.update(EVENTS, {**made, "count": 2}, namespace="default")
    clock.advance(minutes=30)
    watch = api.watch(EVENTS, since=api.revision - 1)
    assert [record.metadata["name"] for record in api.list(EVENTS)[0]] == ["second"]
    clock.advance(minutes=30)
    assert api.list(EVENTS_V1)[0] == []
    watch.close()


async def test_events_grow_old_across_restarts(tmp_path: Any, clock: Any) -> None:
    store = Store(journal=Journal(tmp_path / "journal"))
    api = Api(store, builtin_registry(), clock=clock)
    await api.create(NAMESPACES, {"metadata": {"name": "default"}})
    await api.create(EVENTS, {**old_style(), "lastTimestamp": "2026-01-02T03:04:05Z"}, namespace="default")
    store.close()
    clock.advance(minutes=59)
    store = Store(journal=Journal(tmp_path / "journal"))
    api = Api(store, builtin_registry(), clock=clock)
    assert len(api.list(EVENTS)[0]) == 1
    clock.advance(minutes=1)
    assert api.list(EVENTS)[0] == []
    store.close()
