"""The pages below `/debug/`, of a manager against the embedded API server: who may read them, what they say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.objects import trainjob_object
from support.processes import account_token
from support.service_accounts import allow_url
from support.stack import QUIET, Stack, api_server, manager

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    LeaderElection,
    Metrics,
    MetricsAuth,
    complete,
    effective_configuration,
    parse_configuration,
)
from trainmaster.controller.debugging.handlers import INDEX
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.listener import free_port

PAGES = ("tasks", "threads", "cache", "queue", "plugins", "leader", "configuration")


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        yield stack


class Pages:
    """The metrics server of a manager."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def read(self, path: str, *, token: str = "") -> tuple[int, Any]:
        """Return status and content."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.request("GET", f"http://127.0.0.1:{self._port}{path}", headers=headers) as answer:
            return answer.status, await (answer.json() if "json" in answer.content_type else answer.text())


@asynccontextmanager
async def debugged(stack: Stack, *, enabled: bool = True, auth: bool = False) -> AsyncIterator[Pages]:
    port = free_port()
    configuration = Configuration(
        webhook=QUIET.webhook,
        health=QUIET.health,
        metrics=Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=auth)),
        leader_election=LeaderElection(leader_elect=True, resource_namespace="default"),
        enable_debugging_handlers=enabled,
    )
    assert not complete(configuration).problems
    async with manager(stack.access, configuration=configuration):
        yield Pages(port)


@pytest.mark.guarantee("M-9")
async def test_they_are_off_unless_switched_on(stack: Stack) -> None:
    async with debugged(stack, enabled=False) as pages:
        assert {(await pages.read(f"/debug{path}"))[0] for path in ("", "/", *(f"/{page}" for page in PAGES))} == {404}
        assert (await pages.read("/metrics"))[0] == 200


@pytest.mark.guarantee("M-9")
async def test_each_page_shows_what_it_should(stack: Stack) -> None:
    job = trainjob_object()
    job["metadata"] = {"name": "demo", "namespace": "default"}
    await stack.client.create(TRAINJOBS, job)
    async with debugged(stack) as pages:
        async with asyncio.timeout(30):
            while not (leader := (await pages.read("/debug/leader"))[1])["leading"]:
                await asyncio.sleep(0.02)
        assert (leader["lease"], leader["holder"], leader["healthy"]) == (
            "default/trainer.kubeflow.org",
            leader["identity"],
            True,
        )
        assert await pages.read("/debug/") == (200, INDEX)
        assert await pages.read("/debug") == (200, INDEX)
        assert set(re.findall(r"^/debug/(\w+)", INDEX, re.MULTILINE)) == {*PAGES, "profile"}
        _, tasks = await pages.read("/debug/tasks")
        assert "trainjob_controller-0" in tasks
        _, threads = await pages.read("/debug/threads")
        assert "leader-election\n" in threads
        _, caches = await pages.read("/debug/cache")
        (trainjobs,) = [cache for cache in caches if cache["name"] == TRAINJOBS.name]
        assert (trainjobs["synced"], trainjobs["objects"], trainjobs["failure"]) == (True, 1, None)
        assert int(trainjobs["resourceVersion"]) > 0
        _, (shown,) = await pages.read("/debug/cache?key=default/demo")
        assert (shown["informer"], "spec" in shown["fields"]) == (TRAINJOBS.name, True)
        assert (await pages.read("/debug/cache?key=default/other"))[0] == 404
        assert (await pages.read(f"/debug/cache?key={'x' * 500}"))[0] == 404
        _, queues = await pages.read("/debug/queue")
        assert {"trainjob_controller", "trainingruntime_controller"} < set(queues)
        _, plugins = await pages.read("/debug/plugins")
        assert "JobSet".lower() in str(plugins["order"]["build"]).lower()
        _, configuration = await pages.read("/debug/configuration")
        assert configuration["enableDebuggingHandlers"] is True
        status, profile = await pages.read("/debug/profile?seconds=0.5")
        assert status == 200
        assert {line.partition(";")[0] for line in profile.splitlines()} >= {"MainThread", "leader-election"}
        for wrong in ("0", "-1", "61", "nan", "inf", "soon"):
            assert (await pages.read(f"/debug/profile?seconds={wrong}"))[0] == 400
        running = asyncio.create_task(pages.read("/debug/profile?seconds=1"))
        async with asyncio.timeout(30):
            while "profiler\n" not in (await pages.read("/debug/threads"))[1]:
                await asyncio.sleep(0.01)
        assert (await pages.read("/debug/profile"))[0] == 429
        assert (await running)[0] == 200


@pytest.mark.guarantee("M-9")
async def test_authentication_holds_for_each_page(stack: Stack) -> None:
    """Who may read metrics need not be allowed to read these."""
    scraper, developer = await account_token(stack.client, "scraper"), await account_token(stack.client, "developer")
    for name, path in (("scraper", "/metrics"), ("developer", "/debug/*")):
        await allow_url(stack.client, name, path)
    async with debugged(stack, auth=True) as pages:
        for path in [f"/debug/{page}" for page in (*PAGES, "", "profile?seconds=0.01")]:
            assert (await pages.read(path))[0] == 401, path
            assert (await pages.read(path, token=scraper))[0] == 403, path
            assert (await pages.read(path, token=developer))[0] == 200, path
        assert (await pages.read("/metrics", token=scraper))[0] == 200


HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration", "enableDebuggingHandlers": True}


@pytest.mark.guarantee("M-9")
@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"bindAddress": ":8443"}, "everybody who reaches the metrics server could read them"),
        (
            {"bindAddress": "10.0.0.1:8443"},
            "set metrics.auth.enabled to true, or metrics.bindAddress to 127.0.0.1:PORT",
        ),
        ({"bindAddress": "0"}, 'give metrics.bindAddress an address, not "0"'),
        ({"bindAddress": ":8443", "auth": {"enabled": True}}, ""),
        ({"bindAddress": "127.0.0.1:8443"}, ""),
        ({"bindAddress": "localhost:8443"}, ""),
        ({"bindAddress": "[::1]:8443"}, ""),
    ],
)
def test_they_are_refused_where_everybody_could_read_them(metrics: dict[str, Any], told: str) -> None:
    problems = complete(parse_configuration({**HEAD, "metrics": metrics})).problems
    assert [problem.path for problem in problems] == (["enableDebuggingHandlers"] if told else [])
    assert all(told in problem.message for problem in problems)


@pytest.mark.guarantee("M-9")
def test_the_refusal_of_the_file_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(f"{key}: {value}" for key, value in {**HEAD, "enableDebuggingHandlers": "true"}.items()))
    with pytest.raises(ConfigurationInvalid, match="enableDebuggingHandlers: everybody who reaches"):
        effective_configuration(path)
