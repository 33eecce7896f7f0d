"""The pages for debugging, the stacks of tasks and threads on them, and profiles on request."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.commands import eventually
from support.installations import allow_url
from support.objects import trainjob_object
from support.processes import account_token
from support.stack import Stack, api_server
from support.virtualtime import VirtualClock
from support.web import Served, served

from trainmaster.controller.configuration import Configuration, LeaderElection, Plugins
from trainmaster.controller.debugging import stacks, state
from trainmaster.controller.debugging.handlers import INDEX
from trainmaster.controller.debugging.stacks import task_stacks, thread_stacks
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.framework import Framework, load_plugins

PAGES = ("tasks", "threads", "cache", "queue", "plugins", "leader", "configuration")


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        yield stack


def debugged(stack: Stack, *, enabled: bool = True, auth: bool = False) -> AbstractAsyncContextManager[Served]:
    election = LeaderElection(leader_elect=True, resource_namespace="default")
    return served(stack.access, auth=auth, leader_election=election, enable_debugging_handlers=enabled)


@pytest.mark.guarantee("M-9")
async def test_they_are_off_unless_switched_on(stack: Stack) -> None:
    async with debugged(stack, enabled=False) as pages:
        assert {(await pages.get(f"/debug{path}"))[0] for path in ("", "/", *(f"/{page}" for page in PAGES))} == {404}
        assert (await pages.get("/metrics"))[0] == 200


@pytest.mark.guarantee("M-9")
async def test_each_page_shows_what_it_should(stack: Stack) -> None:
    job = trainjob_object()
    job["metadata"] = {"name": "demo", "namespace": "default"}
    await stack.client.create(TRAINJOBS, job)
    async with debugged(stack) as pages:

        async def leading() -> Any:
            return (await pages.get("/debug/leader"))[1]["leading"]

        await eventually(leading)
        leader = (await pages.get("/debug/leader"))[1]
        assert (leader["lease"], leader["holder"], leader["healthy"]) == (
            "default/trainer.kubeflow.org",
            leader["identity"],
            True,
        )
        assert await pages.get("/debug/") == (200, INDEX)
        assert await pages.get("/debug") == (200, INDEX)
        assert set(re.findall(r"^/debug/(\w+)", INDEX, re.MULTILINE)) == {*PAGES, "profile"}
        _, tasks = await pages.get("/debug/tasks")
        assert "clustertrainingruntime_controller-0" in tasks
        _, threads = await pages.get("/debug/threads")
        assert "leader-election\n" in threads
        _, caches = await pages.get("/debug/cache")
        (trainjobs,) = [cache for cache in caches if cache["name"] == TRAINJOBS.name]
        assert (trainjobs["synced"], trainjobs["objects"], trainjobs["failure"]) == (True, 1, None)
        assert int(trainjobs["resourceVersion"]) > 0
        _, (shown,) = await pages.get("/debug/cache?key=default/demo")
        assert (shown["informer"], "spec" in shown["fields"]) == (TRAINJOBS.name, True)
        assert (await pages.get("/debug/cache?key=default/other"))[0] == 404
        assert (await pages.get(f"/debug/cache?key={'x' * 500}"))[0] == 404
        _, queues = await pages.get("/debug/queue")
        assert {"trainjob_controller", "trainingruntime_controller"} < set(queues)
        _, plugins = await pages.get("/debug/plugins")
        assert "JobSet".lower() in str(plugins["order"]["build"]).lower()
        _, configuration = await pages.get("/debug/configuration")
        assert configuration["enableDebuggingHandlers"] is True

        async def profiled() -> bool:
            status, profile = await pages.get("/debug/profile?seconds=0.1")
            assert status == 200
            return {line.partition(";")[0] for line in profile.splitlines()} >= {"MainThread", "leader-election"}

        await eventually(profiled)
        for wrong in ("0", "-1", "61", "nan", "inf", "soon"):
            assert (await pages.get(f"/debug/profile?seconds={wrong}"))[0] == 400
        running = asyncio.create_task(pages.get("/debug/profile?seconds=60"))

        async def profiles() -> bool:
            return "profiler\n" in (await pages.get("/debug/threads"))[1]

        await eventually(profiles)
        assert (await pages.get("/debug/profile"))[0] == 429
        running.cancel()


@pytest.mark.guarantee("M-9")
async def test_authentication_holds_for_each_page(stack: Stack) -> None:
    """Who may read metrics need not be allowed to read these."""
    scraper, developer = await account_token(stack.client, "scraper"), await account_token(stack.client, "developer")
    for name, path in (("scraper", "/metrics"), ("developer", "/debug/*")):
        await allow_url(stack.client, name, path)
    async with debugged(stack, auth=True) as pages:
        for path in [f"/debug/{page}" for page in (*PAGES, "", "profile?seconds=0.01")]:
            assert (await pages.get(path))[0] == 401, path
            assert (await pages.get(path, token=scraper))[0] == 403, path
            assert (await pages.get(path, token=developer))[0] == 200, path
        assert (await pages.get("/metrics", token=scraper))[0] == 200


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "namespace": "team",
        "name": "key",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"canary": "hunter2"},
        "annotations": {"canary": "hunter2"},
        "ownerReferences": [{"kind": "TrainJob", "name": "demo", "uid": "o", "apiVersion": "v1"}],
    },
    "data": {"canary": "hunter2"},
    "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Odd", "message": "hunter2"}, "odd"]},
}


@pytest.mark.guarantee("M-9")
async def test_an_object_is_shown_without_what_is_in_it() -> None:
    informer = Informer(None, SECRETS)  # type: ignore[arg-type] # it is not run
    informer.store.put(orjson.loads(orjson.dumps(SECRET)))
    (shown,) = state.cached_object([informer], "team/key")
    assert "hunter2" not in str(shown)
    assert shown["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert shown["ownerReferences"] == [{"apiVersion": "v1", "kind": "TrainJob", "name": "demo", "uid": "o"}]
    assert shown["conditions"] == [{"type": "Ready", "status": "False", "reason": "Odd"}]
    assert shown["fields"] == ["apiVersion", "data", "kind", "metadata", "status"]
    assert state.cached_object([informer], "team/other") == []
    (cache,) = state.caches([informer])
    assert (cache["name"], cache["objects"], cache["synced"], cache["failure"]) == ("secrets", 1, False, None)
    assert cache["bytes"] == shown["bytes"] > 100


@pytest.mark.guarantee("M-9")
async def test_a_queue_shows_what_is_first_of_each_state() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock=clock)
    for number in range(250):
        queue.add(f"team/ready-{number}")
        queue.add_after(f"team/later-{number}", 10 + number)
    assert queue.take() == "team/ready-0"
    queue.add_rate_limited("team/failed")
    queue.add_rate_limited("team/failed")
    await clock.advance(0.001)
    shown = state.queues([("controller", queue)])["controller"]
    assert (shown["ready"], shown["delayed"], shown["running"], shown["shutDown"]) == (249, 251, 1, False)
    assert [len(shown[f"{name}Keys"]) for name in ("ready", "delayed", "running")] == [100, 100, 1]
    assert shown["readyKeys"][0] == {"key": "team/ready-1", "priority": 0, "waitedSeconds": 0.001, "retries": 0}
    assert shown["runningKeys"] == [{"key": "team/ready-0", "priority": 0, "runningSeconds": 0.001, "retries": 0}]
    first, second = shown["delayedKeys"][:2]
    assert (first["key"], first["retries"]) == ("team/failed", 2)
    assert second == {"key": "team/later-0", "priority": 0, "dueInSeconds": 9.999, "retries": 0}
    queue.shut_down()


@pytest.mark.guarantee("M-9")
def test_plugins_are_shown_in_their_order_and_their_options_without_texts() -> None:
    framework = Framework(load_plugins())
    assert state.plugins(framework)["order"] == framework.order()
    # Options of plugins are shown without texts.
    options = {"theirs": {"token": "hunter2", "retries": 3, "hosts": ["hunter2"], "more": {"on": True}}}
    shown = state.configuration(Configuration(plugins=Plugins(options=options)))
    assert shown["plugins"]["options"] == {
        "theirs": {"token": "[redacted]", "retries": 3, "hosts": ["[redacted]"], "more": {"on": True}}
    }
    assert shown["webhook"]["certDir"] == Configuration().webhook.cert_dir


async def profile_with(*parts: str) -> str:
    """A profile that was taken for so long that it has these parts."""

    async def taken() -> str:
        text = await stacks.profile(0.05)
        return text if all(part in text for part in parts) else ""

    return str(await eventually(taken))


@pytest.mark.guarantee("M-9")
async def test_a_profile_has_the_stacks_of_all_threads_with_their_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, name="computing")
    thread.start()
    try:
        text = await profile_with(f"{__name__}.test_a_profile", "MainThread;")
    finally:
        ended.set()
        thread.join()
    counts = dict(line.rsplit(" ", 1) for line in text.splitlines())
    assert all(int(count) > 0 for count in counts.values())
    (computing,) = {stack.partition(";threading.Thread.run")[0] for stack in counts if stack.startswith("computing;")}
    assert computing.startswith("computing;threading.Thread._bootstrap;")
    assert any(f"{__name__}.test_a_profile" in stack and stack.startswith("computing;") for stack in counts)
    assert not any(stack.startswith("profiler") for stack in counts)
    # Stacks beyond a bound are counted together.
    monkeypatch.setattr(stacks, "MAX_PROFILED", 0)
    text = await profile_with("MainThread;(others) ")
    assert all(";(others) " in line for line in text.splitlines())


@pytest.mark.guarantee("M-9")
async def test_a_profile_that_is_given_up_leaves_no_thread() -> None:
    running = asyncio.create_task(stacks.profile(60))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert "profiler" not in {thread.name for thread in threading.enumerate()}


HELD_SECRET = "hunter2-in-a-variable"


async def wait_for(event: asyncio.Event) -> None:
    password = HELD_SECRET
    await event.wait()
    assert password


async def outer(event: asyncio.Event) -> None:
    await wait_for(event)


async def generated(event: asyncio.Event) -> AsyncIterator[int]:
    await wait_for(event)
    yield 1


async def collect(event: asyncio.Event) -> None:
    async for _ in generated(event):
        pass


@pytest.mark.guarantee("M-9")
async def test_tasks_at_one_place_are_shown_once_down_to_the_innermost_call(monkeypatch: pytest.MonkeyPatch) -> None:
    event = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(outer(event), name=f"worker-{number:02}")
        await asyncio.sleep(0)
        text = task_stacks(asyncio.get_running_loop())
        event.set()
    assert text.startswith("21 tasks\n\n20 x worker-00, worker-01, worker-02,")
    assert "worker-07 and 12 more\n" in text
    group = text.split("\n\n")[1].splitlines()[1:]
    assert [line.split(":")[0].rpartition(".")[2] for line in group] == ["outer", "wait_for", "wait"]
    assert group[0].startswith(f"    {__name__}.outer:")
    assert HELD_SECRET not in text
    # The text has bounds.
    monkeypatch.setattr(stacks, "MAX_TASKS", 5)
    event = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(9):
            tasks.create_task(outer(event))
        await asyncio.sleep(0)
        text = task_stacks(asyncio.get_running_loop())
        event.set()
    assert text.startswith("10 tasks\n")
    assert text.endswith("\n5 tasks are not shown\n")


@pytest.mark.guarantee("M-9")
async def test_tasks_within_generators_and_those_that_run_are_shown() -> None:
    event = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(collect(event), name="collector")
        await asyncio.sleep(0)
        text = task_stacks(asyncio.get_running_loop())
        event.set()
    assert "1 x collector\n" in text
    assert f"{__name__}.collect:" in text
    assert "test_tasks_within_generators_and_those_that_run_are_shown:" in text


@pytest.mark.guarantee("M-9")
def test_threads_are_shown_by_name() -> None:
    ended = threading.Event()

    def wait_here(password: str) -> None:
        ended.wait()

    thread = threading.Thread(target=wait_here, args=(HELD_SECRET,), name="a thread of ours")
    thread.start()
    text = thread_stacks()
    ended.set()
    thread.join()
    (ours,) = [part for part in text.split("\n\n") if part.startswith("a thread of ours\n")]
    assert f"    {__name__}.test_threads_are_shown_by_name.<locals>.wait_here:" in ours
    assert "MainThread\n" in text
    assert HELD_SECRET not in text
