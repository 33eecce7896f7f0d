"""The pages below `/debug/`, of a manager against the embedded API server: who may read them, what they say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from support.commands import eventually
from support.objects import trainjob_object
from support.processes import account_token
from support.service_accounts import allow_url
from support.stack import Stack, api_server
from support.web import Served, served

from trainmaster.controller.configuration import (
    LeaderElection,
)
from trainmaster.controller.debugging.handlers import INDEX
from trainmaster.controller.resources import TRAINJOBS

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
        assert "trainjob_controller-0" in tasks
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
