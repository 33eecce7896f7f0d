"""Runtimes that still carry the finalizer of earlier versions."""

from collections.abc import Iterable
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.objects import runtime_object, trainjob_object
from support.world import World, refused, world_with

from trainmaster.controller.kube.cache.delta import Delta, Record
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, NotFound
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, LOW_PRIORITY
from trainmaster.controller.reconciling.event_handlers import (
    ConcernedKeys,
    priority_of_other,
    priority_of_own,
    priority_of_owned,
)
from trainmaster.controller.reconciling.outcomes import DONE, Requeue
from trainmaster.controller.reconciling.problems import REPORT_INTERVAL, Problem
from trainmaster.controller.reconciling.runtimes import RuntimeReconciler
from trainmaster.controller.resources import TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import LEGACY_FINALIZER
from trainmaster.runtime.framework.interface import NotReady
from trainmaster.runtime.jsontree import JsonObject

KEY = "team/rt"


class Client:
    def __init__(self) -> None:
        self.patches: list[Any] = []
        self.failure: Exception | None = None

    async def patch(self, resource: object, namespace: str, name: str, patch: Any) -> JsonObject:
        self.patches.append(patch)
        if self.failure is not None:
            raise self.failure
        return {}


def made(*finalizers: str) -> tuple[Client, RuntimeReconciler]:
    client, store = Client(), Store()
    runtime = runtime_object()
    runtime["metadata"] |= {"resourceVersion": "7", "uid": "r"}
    if finalizers:
        runtime["metadata"]["finalizers"] = list(finalizers)
    store.put(runtime)
    return client, RuntimeReconciler(cast("KubeClient", client), TRAINING_RUNTIMES, store)


@pytest.mark.guarantee("F-2")
@pytest.mark.parametrize(("others", "left"), [([], None), (["acme.io/keep"], ["acme.io/keep"])])
async def test_the_old_finalizer_goes_and_those_of_others_stay(others: list[str], left: list[str] | None) -> None:
    client, reconciler = made(LEGACY_FINALIZER, *others)
    assert await reconciler.reconcile(KEY) == DONE
    assert client.patches == [{"metadata": {"resourceVersion": "7", "finalizers": left}}]


@pytest.mark.guarantee("F-2")
async def test_a_runtime_without_it_is_left_alone() -> None:
    client, reconciler = made("acme.io/keep")
    assert await reconciler.reconcile(KEY) == DONE
    assert await reconciler.reconcile("team/unknown") == DONE
    assert client.patches == []


@pytest.mark.guarantee("F-2")
async def test_what_is_gone_meanwhile_is_done_and_what_changed_is_read_again() -> None:
    client, reconciler = made(LEGACY_FINALIZER)
    client.failure = NotFound(status=404)
    assert await reconciler.reconcile(KEY) == DONE
    client.failure = Conflict(status=409)
    with pytest.raises(Conflict):
        await reconciler.reconcile(KEY)


_NAMES = st.sampled_from(["a", "b", "a-1"])
_OWNERS = st.lists(st.sampled_from(["ns/a", "ns/b", "ns/c", "ns/a-1"]), max_size=2)
_STEPS = st.tuples(st.sampled_from(["put", "put", "delete", "delete unseen", "resync"]), _NAMES, _OWNERS)


def _owners(obj: JsonObject) -> Iterable[str]:
    return obj["owners"]  # type: ignore[no-any-return] # those that `_object` gave it


def _object(name: str, owners: list[str], version: int) -> JsonObject:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version)}, "owners": owners}


@pytest.mark.guarantee("E-4")
@given(st.lists(_STEPS, max_size=30), st.sampled_from(["", "-1"]))
def test_a_change_concerns_what_an_object_belongs_to_and_belonged_to(
    steps: list[tuple[str, str, list[str]]], suffix: str
) -> None:
    store, concerned = Store(), ConcernedKeys(_owners, usual=lambda key: key.removesuffix(suffix))
    last: dict[str, list[str]] = {}
    for version, (step, name, owners) in enumerate(steps, start=1):
        key = f"ns/{name}"
        before = last.get(key, [])
        if step == "put":
            change, last[key] = store.put(_object(name, owners, version)), owners
            expected = {*before, *owners}
        elif key not in last:
            continue
        elif step == "resync":
            assert set(concerned(store.resync_delta(key))) == set(before)  # type: ignore[arg-type] # it is there
            continue
        else:
            seen = step == "delete"
            change = store.delete(key, last=_object(name, owners, version) if seen else None)
            del last[key]
            expected = {*before, *owners} if seen else set(before)
        found = set(concerned(change))
        assert found == expected or (change.is_deletion and found == {*expected, key.removesuffix(suffix)})
    kept = sum(bool(owners) and {*owners} != {key.removesuffix(suffix)} for key, owners in last.items())
    assert len(concerned) == kept


def test_nothing_is_kept_of_objects_that_concern_nobody() -> None:
    """The pods of all other kinds of jobs, for instance."""
    store, concerned = Store(), ConcernedKeys(_owners)
    for version in (1, 2):
        for name in ("a", "b"):
            assert list(concerned(store.put(_object(name, [], version)))) == []
    assert len(concerned) == 0
    assert set(concerned(store.put(_object("a", ["ns/a", "ns/c"], 3)))) == {"ns/a", "ns/c"}
    assert set(concerned(store.put(_object("a", [], 4)))) == {"ns/a", "ns/c"}
    assert len(concerned) == 0


def record(**metadata: Any) -> Record:
    return "uid", "1", orjson.dumps({"metadata": {"name": "a", "uid": "uid", "generation": 1, **metadata}}), ()


PLAIN = record()


@pytest.mark.guarantee("W-19")
@pytest.mark.parametrize(
    ("change", "of_the_job", "of_its_workload"),
    [
        (Delta("ns/a", None, PLAIN), 0, 0),
        (Delta("ns/a", PLAIN, record(labels={"a": "b"})), 0, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, record(generation=2)), CHANGE_PRIORITY, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, record(deletionTimestamp="2026-01-01T00:00:00Z")), CHANGE_PRIORITY, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, record(uid="other")), CHANGE_PRIORITY, CHANGE_PRIORITY),
        (Delta("ns/a", PLAIN, None), CHANGE_PRIORITY, CHANGE_PRIORITY),
    ],
    ids=["added", "status or labels", "spec", "being deleted", "replaced", "gone"],
)
def test_what_somebody_waits_for_comes_before_what_is_new(change: Delta, of_the_job: int, of_its_workload: int) -> None:
    assert priority_of_own(change) == of_the_job
    assert priority_of_owned(change) == of_its_workload
    assert priority_of_other(change) == 0, "it may concern thousands"


@pytest.mark.guarantee("W-22")
@pytest.mark.parametrize("flag", ["initial", "resync"])
def test_what_is_not_new_can_wait(flag: str) -> None:
    change = Delta("ns/a", None if flag == "initial" else PLAIN, PLAIN)
    setattr(change, flag, True)
    assert priority_of_own(change) == priority_of_owned(change) == priority_of_other(change) == LOW_PRIORITY


async def test_a_message_that_changes_on_every_try_is_not_written_on_every_try() -> None:
    """Each write of the status is an event that wakes the job up at once, past every backoff: a hot loop."""
    world = world_with()
    for port in range(41000, 41050):
        world.refusal = refused(f"failed calling webhook: read tcp 10.0.0.1:{port}->10.0.0.2:443: connection reset")
        assert isinstance(await world.reconcile(), Requeue)
    assert len(world.patches) == len(world.events) == 1
    await world.reconcile_after(60)
    assert len(world.patches) == len(world.events) == 2
    assert ":41049->" in world.conditions["Blocked"]["message"]


async def test_a_cause_that_changes_in_words_only_is_told_at_once() -> None:
    """The words before it were found a second time, so they do not change on every try."""
    waits = Waits("Pool b is closed: maintenance")
    world = World(waits)
    world.put(trainjob_object(), runtime_object())
    await world.work()
    assert world.conditions["Blocked"]["message"].endswith("Pool b is closed: maintenance")
    for reason in ("no nodes", "no quota"):
        waits.why = f"Pool b is closed: {reason}"
        world.clock.step(3)
        await world.reconcile()
        assert world.conditions["Blocked"]["message"].endswith(reason)
        await world.reconcile()
    waits.why = ""
    await world.reconcile()
    assert "Blocked" not in world.conditions


async def test_words_that_have_to_wait_are_written_when_their_time_has_come() -> None:
    """Whatever the backoff is by then: nothing else happens that would have the job looked at."""
    waits = Waits("closed: first")
    world = World(waits)
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    waits.why = "closed: second"
    outcome = await world.reconcile_after(3)
    assert world.conditions["Blocked"]["message"].endswith("closed: first")
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == REPORT_INTERVAL - 3
    await world.reconcile_after(outcome.at_latest)
    assert world.conditions["Blocked"]["message"].endswith("closed: second")


class Waits:
    """A plugin that waits for something as long as it has a reason to."""

    name = "waits"

    def __init__(self, why: str) -> None:
        self.why = why

    def enforce_ml_policy(self, info: Any) -> None:
        if self.why:
            raise NotReady(self.why)


@pytest.mark.defect("B25")
async def test_a_percent_sign_is_told_as_it_is() -> None:
    world = world_with()
    world.refusal = refused("100%s of 5%d%%")
    await world.reconcile()
    (note,) = world.events
    assert note.endswith("100%s of 5%d%%")
    assert "100%s of 5%d%%" in world.conditions["Blocked"]["message"]


async def test_another_reason_is_told_at_once() -> None:
    world = World()
    world.put(trainjob_object())
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeNotFound"
    world.put(runtime_object())
    world.refusal = refused("no")
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "ApplyFailed"


@pytest.mark.parametrize("message", ["x" * 5000, "é" * 5000, "short"])
def test_a_note_fits_its_event(message: str) -> None:
    """The limit of the API is 1024 bytes, not characters."""
    note = Problem("ApplyFailed", message).event_note("TrainJob")
    assert len(note.encode()) <= 1024
    assert note.endswith(("short", " ..."))


@pytest.mark.guarantee("M-11")
def test_owners_read_no_credential_that_somebody_quotes() -> None:
    token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmVk"
    problem = Problem("PluginFailed", f"plugin theirs failed in build: RuntimeError: {token} is no good")
    assert "c2lnbmVk" not in f"{problem.condition()} {problem.event_note('TrainJob')}"
    assert problem.condition()["message"].endswith("RuntimeError: [redacted] is no good")
