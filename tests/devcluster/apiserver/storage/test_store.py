"""The store: compare-and-swap, history, listeners."""

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PODS
from trainmaster.devcluster.apiserver.storage import Event, Expired, ObjectKey, RevisionConflict, Store, watcher


def key(name: str, namespace: str = "default") -> ObjectKey:
    return ObjectKey(CONFIGMAPS, namespace, name)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def test_each_write_gets_the_next_revision_and_carries_it() -> None:
    """The caller may pass parts of an older record on; stamping must not reach into them."""
    store = Store()
    first = store.put(key("a"), config_map("a"), expect=0)
    given = config_map("b")
    second = store.put(key("b"), given, expect=0)
    assert (first.revision, second.revision, store.revision) == (1, 2, 2)
    assert second.object["metadata"]["resourceVersion"] == "2"
    assert "resourceVersion" not in given["metadata"]
    assert store.get(key("b")) is second


@pytest.mark.parametrize("expect", [0, 7])
def test_a_write_that_expects_another_revision_changes_nothing(expect: int) -> None:
    store = Store()
    store.put(key("a"), config_map("a", x="1"), expect=0)
    with pytest.raises(RevisionConflict) as caught:
        store.put(key("a"), config_map("a", x="2"), expect=expect)
    assert caught.value.actual == 1
    record = store.get(key("a"))
    assert record is not None
    assert record.object["data"] == {"x": "1"}
    assert store.revision == 1


def test_deleting_what_is_not_there_is_a_mismatch() -> None:
    with pytest.raises(RevisionConflict):
        Store().delete(key("a"))


async def test_a_closed_watch_ends_and_is_forgotten() -> None:
    store = Store()
    watch = store.watch(CONFIGMAPS, since=0)
    store.put(key("a"), config_map("a"), expect=0)
    watch.close()
    watch.close()
    assert [event async for event in watch] == []
    store.put(key("b"), config_map("b"), expect=0)
    assert watch.pending == 0


def test_a_forgotten_revision_is_expired_and_quiet_resources_stay_resumable() -> None:
    store = Store(history=2)
    store.put(ObjectKey(PODS, "default", "p"), config_map("p"), expect=0)
    for name in "abc":
        store.put(key(name), config_map(name), expect=0)
    with pytest.raises(Expired) as caught:
        store.watch(CONFIGMAPS, since=1)
    assert str(caught.value) == "too old resource version: 1 (2)"
    assert store.watch(CONFIGMAPS, since=2).pending == 2
    assert store.watch(PODS, since=0).pending == 1


async def test_a_forgotten_history_ends_no_watch_and_lets_none_start_before_now() -> None:
    store = Store()
    store.put(key("a"), config_map("a"), expect=0)
    watch = store.watch(CONFIGMAPS, since=0)
    store.forget_history(CONFIGMAPS)
    with pytest.raises(Expired):
        store.watch(CONFIGMAPS, since=0)
    store.put(key("b"), config_map("b"), expect=0)
    assert store.watch(CONFIGMAPS, since=1).pending == 1
    assert [(await anext(watch)).key.name, (await anext(watch)).key.name] == ["a", "b"]


async def test_a_watcher_that_lags_too_far_is_cut_off_after_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one stuck client would grow the server's memory without end."""
    monkeypatch.setattr(watcher, "BACKLOG", 2)
    store = Store()
    watch = store.watch(CONFIGMAPS, since=0)
    for name in "abc":
        store.put(key(name), config_map(name), expect=0)
    assert [(await anext(watch)).key.name, (await anext(watch)).key.name] == ["a", "b"]
    with pytest.raises(Expired):
        await anext(watch)


def test_listeners_see_events_in_order_even_when_they_write() -> None:
    store = Store()
    seen: list[int] = []

    def echo(event: Event) -> None:
        if event.key.name == "a":
            store.put(key("echo"), config_map("echo"), expect=0)

    store.subscribe(CONFIGMAPS, echo)
    store.subscribe(None, lambda event: seen.append(event.revision))
    store.put(key("a"), config_map("a"), expect=0)
    assert seen == [1, 2]


def test_a_failing_listener_fails_neither_the_write_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    seen: list[Event] = []

    def fail(_event: Event) -> None:
        raise RuntimeError("broken listener")

    store.subscribe(CONFIGMAPS, fail)
    store.subscribe(CONFIGMAPS, seen.append)
    store.put(key("a"), config_map("a"), expect=0)
    assert len(seen) == 1
    assert "broken listener" in caplog.text


def test_a_history_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="history must be at least 1"):
        Store(history=0)
