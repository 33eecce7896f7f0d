"""The history of a manager against the embedded API server: what is recorded, and who gets to see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.history import record
from support.http import listening
from support.job_kinds import job_object
from support.objects import runtime_object, trainjob_object
from support.postgres import Postgres
from support.processes import account_token
from support.service_accounts import allow_listing, allow_url
from support.stack import QUIET, Stack, api_server, manager

from trainmaster.controller.configuration import (
    Configuration,
    ConfigurationInvalid,
    Health,
    LeaderElection,
    Metrics,
    MetricsAuth,
    complete,
    parse_configuration,
)
from trainmaster.controller.configuration.types import History
from trainmaster.controller.history.access import NamespaceAccess
from trainmaster.controller.history.handlers import add_history_handlers
from trainmaster.controller.history.postgres import postgres_store
from trainmaster.controller.history.query import Query
from trainmaster.controller.history.reader import HistoryReader
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.kube.clock import SystemClock, time_text
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS, job_resource
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

T = TypeVar("T")

(PYTORCHJOB,) = (each for each in load_job_kinds() if each.kind == "PyTorchJob")
PYTORCHJOBS = job_resource(PYTORCHJOB)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        for namespace in ("team", "other"):
            metadata = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await stack.client.create(NAMESPACES, metadata)
            runtime = {**runtime_object(), "metadata": {"name": runtime_object()["metadata"]["name"]}}
            await stack.client.create(TRAINING_RUNTIMES, {**runtime, "kind": "TrainingRuntime"}, namespace=namespace)
        yield stack


class Served:
    """The servers of a manager."""

    def __init__(self, port: int, probes: int) -> None:
        self._port, self._probes = port, probes

    async def get(self, path: str, *, token: str = "", header: str = "Authorization") -> tuple[int, Any]:
        headers = {header: f"Bearer {token}"} if token else {}
        async with aiohttp.request("GET", f"http://127.0.0.1:{self._port}{path}", headers=headers) as answer:
            return answer.status, await (answer.json() if "json" in answer.content_type else answer.text())

    async def jobs(self, query: str = "") -> dict[str, JsonObject]:
        status, found = await self.get(f"/history/v1/jobs{query}")
        assert status == 200, found
        return {each["name"]: each for each in found["items"]}

    async def readiness(self) -> str:
        async with aiohttp.request("GET", f"http://127.0.0.1:{self._probes}/readyz?verbose") as answer:
            return await answer.text()


@asynccontextmanager
async def recorded(
    stack: Stack, file: Path, *, auth: bool = False, elect: bool = False, **history: Any
) -> AsyncIterator[Served]:
    port, probes = free_port(), free_port()
    configuration = Configuration(
        webhook=QUIET.webhook,
        health=Health(health_probe_bind_address=f"127.0.0.1:{probes}"),
        metrics=Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=auth)),
        leader_election=LeaderElection(leader_elect=elect, resource_namespace="default"),
        history=History(enabled=True, file=str(file), **history),
    )
    assert not complete(configuration).problems
    async with manager(stack.access, configuration=configuration):
        yield Served(port, probes)


async def until(condition: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(30):
        while not (answer := await condition()):
            await asyncio.sleep(0.02)
        return answer


async def create(stack: Stack, name: str, namespace: str = "team") -> JsonObject:
    job = trainjob_object(runtimeRef={"kind": "TrainingRuntime", "name": runtime_object()["metadata"]["name"]})
    job["metadata"] = {"name": name, "annotations": {"app.kubernetes.io/created-by": "ann@example.com"}}
    return await stack.client.create(TRAINJOBS, job, namespace=namespace)


async def has_jobset(stack: Stack, name: str, namespace: str = "team") -> bool:
    try:
        return bool(await stack.client.get(JOBSETS, namespace, name))
    except NotFound:
        return False


async def start(stack: Stack, name: str) -> None:
    """Play the part of JobSet's controller, once all pods are ready."""
    await until(lambda: has_jobset(stack, name))
    parts = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
    await stack.client.patch(JOBSETS, "team", name, {"status": {"replicatedJobsStatus": parts}}, subresource="status")


async def end(stack: Stack, name: str, namespace: str = "team", *, well: bool = True) -> None:
    """Play the part of JobSet's controller."""
    await until(lambda: has_jobset(stack, name, namespace))
    condition = {
        "type": "Completed" if well else "Failed",
        "status": "True",
        "reason": "AllJobsCompleted" if well else "FailedJobs",
        "message": "as it should" if well else "some jobs failed",
        "lastTransitionTime": time_text(datetime.now(UTC)),
    }
    status = {"conditions": [condition], "restarts": 2}
    await stack.client.patch(JOBSETS, namespace, name, {"status": status}, subresource="status")


async def test_jobs_are_recorded_when_they_end_and_when_they_are_deleted(stack: Stack, tmp_path: Path) -> None:
    async with recorded(stack, tmp_path / "history.sqlite") as served:
        good, bad = await create(stack, "good"), await create(stack, "bad")
        await create(stack, "unfinished")
        assert await served.jobs() == {}
        await end(stack, "good")
        await end(stack, "bad", well=False)

        async def ended() -> bool:
            return set(await served.jobs()) == {"good", "bad"}

        await until(ended)
        found = await served.jobs()
        assert (found["good"]["result"], found["good"]["user"]) == ("Succeeded", "ann@example.com")
        assert (found["good"]["uid"], found["good"]["nodes"]) == (good["metadata"]["uid"], 1)
        assert (found["bad"]["result"], found["bad"]["cause"], found["bad"]["restarts"]) == ("Failed", "Unknown", 2)
        assert not found["good"]["deleted"]

        for name in ("good", "unfinished"):
            await stack.client.delete(TRAINJOBS, "team", name)

        async def deleted() -> bool:
            jobs = await served.jobs()
            return bool(jobs["good"]["deleted"]) and "unfinished" in jobs

        await until(deleted)
        found = await served.jobs()
        assert (found["good"]["result"], found["good"]["ended"]) == ("Succeeded", found["good"]["ended"])
        assert (found["unfinished"]["result"], found["unfinished"]["message"]) == (
            "Deleted",
            "the job was deleted before it had ended",
        )
        assert set(await served.jobs("?result=failed")) == {"bad"}
        assert set(await served.jobs("?namespace=other")) == set()
        status, whole = await served.get(f"/history/v1/jobs/{bad['metadata']['uid']}")
        assert (status, [each["event"] for each in whole["timeline"]]) == (200, ["Created", "Failed"])
        assert await served.get("/history/v1/jobs/none") == (
            404,
            {"error": "no job with this UID is recorded in a namespace that you may see"},
        )


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?limit=0", "limit must be a whole number from 1 to 500, got '0'"),
        ("?limit=x", "limit must be"),
        ("?result=good", "result must be one of Succeeded, Failed, Deleted, got 'good'"),
        ("?since=never", "since must be how long ago"),
        ("?continue=x", "continue must be what the answer before this one had"),
        ("?reuslt=Failed", "unknown parameter 'reuslt'; known are namespace, name,"),
        (f"?name={'x' * 1000}", "name is longer than any such name"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_text(tmp_path: Path, query: str, text: str) -> None:
    app, reader = aiohttp.web.Application(), HistoryReader(sqlite_store(tmp_path / "h"))
    add_history_handlers(app, reader, NamespaceAccess(None), clock=SystemClock())
    async with listening(app) as port:
        status, told = await Served(port, 0).get(f"/history/v1/jobs{query}")
        assert status == 400
        assert text in told["error"]
    await reader.close()


async def test_what_happened_while_nobody_led_is_recorded_afterwards(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    async with recorded(stack, file) as served:
        for name in ("ended", "gone", "stays"):
            await create(stack, name)
            await start(stack, name)
        await until(lambda: _open_rows(served, stack, ["ended", "gone", "stays"]))
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "x",
        "message": "y",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    await stack.client.patch(TRAINJOBS, "team", "ended", {"status": {"conditions": [failed]}}, subresource="status")
    await stack.client.delete(TRAINJOBS, "team", "gone")
    await asyncio.sleep(1.1)  # what was written in this very second counts as news
    async with recorded(stack, file) as served:

        async def both() -> bool:
            return set(await served.jobs()) == {"ended", "gone"}

        await until(both)
        found = await served.jobs()
        assert (found["ended"]["result"], found["gone"]["result"]) == ("Failed", "Deleted")
        assert "while nobody recorded it" in found["gone"]["message"]
        assert found["gone"]["nodes"] == 1, "what was known before is kept"
        assert found["gone"]["started"]
        assert found["ended"]["started"]


async def _open_rows(served: Served, stack: Stack, names: list[str]) -> bool:
    for name in names:
        uid = (await stack.client.get(TRAINJOBS, "team", name))["metadata"]["uid"]
        status, whole = await served.get(f"/history/v1/jobs/{uid}")
        if status != 200 or not whole["started"]:
            return False
    return True


async def test_jobs_of_v1_are_recorded_too_also_those_that_had_ended_before(stack: Stack, tmp_path: Path) -> None:
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
    ended = {
        "type": "Failed",
        "status": "True",
        "reason": "PyTorchJobFailed",
        "message": "PyTorchJob before has failed because it has reached the specified backoff limit",
        "lastTransitionTime": time_text(datetime.now(UTC)),
        "lastUpdateTime": time_text(datetime.now(UTC)),
    }
    for name in ("before", "running"):
        job = job_object(PYTORCHJOB, {"Master": 1, "Worker": 2})
        job["metadata"] = {"name": name}
        await stack.client.create(PYTORCHJOBS, job, namespace="team")
    status = {"conditions": [ended], "replicaStatuses": {}}
    await stack.client.patch(PYTORCHJOBS, "team", "before", {"status": status}, subresource="status")
    async with recorded(stack, tmp_path / "history.sqlite") as served:
        await until(lambda: _are(served, {"before"}))
        found = (await served.jobs())["before"]
        assert (found["kind"], found["result"], found["cause"]) == ("PyTorchJob", "Failed", "BackoffLimitExceeded")
        assert found["nodes"] == 3
        await stack.client.delete(PYTORCHJOBS, "team", "running")
        await until(lambda: _are(served, {"before", "running"}))
        assert (await served.jobs())["running"]["result"] == "Deleted"


async def _are(served: Served, names: set[str]) -> bool:
    return set(await served.jobs()) == names


async def test_of_two_replicas_one_records_and_both_show(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    async with recorded(stack, file, elect=True) as first, recorded(stack, file, elect=True) as second:
        await create(stack, "one")
        await end(stack, "one")

        async def shown() -> bool:
            return set(await first.jobs()) == set(await second.jobs()) == {"one"}

        await until(shown)


async def test_a_store_that_cannot_be_used_costs_the_history_and_nothing_else(stack: Stack, tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with recorded(stack, tmp_path / "nowhere" / "history.sqlite") as served:
            await create(stack, "one")
            await end(stack, "one")

            async def complete_() -> bool:
                job = await stack.client.get(TRAINJOBS, "team", "one")
                return any(each["type"] == "Complete" for each in (job.get("status") or {}).get("conditions", []))

            await until(complete_)

            async def told() -> bool:
                return "unable to open database file" in await served.readiness()

            await until(told)
            assert "[+]history ok: the history in " in await served.readiness()
            assert "readyz check passed" in await served.readiness()
            status, answer = await served.get("/history/v1/jobs")
            assert (status, "unable to open database file" in answer["error"]) == (503, True)
            _, metrics = await served.get("/metrics")
            assert "trainmaster_history_store_failing 1.0" in metrics
    assert sum(each["event"] == "the history is not recorded" for each in logged) == 1


async def test_the_configuration_bounds_the_history_and_names_the_annotation(stack: Stack, tmp_path: Path) -> None:
    file, now = tmp_path / "history.sqlite", datetime.now(UTC)
    ended = {f"hours-{hours}": time_text(now - timedelta(hours=hours)) for hours in (1, 2, 3, 30)}
    store = sqlite_store(file)
    store.write([record(n, name=name, ended=moment) for n, (name, moment) in enumerate(ended.items())], now=now)
    store.close()
    async with recorded(stack, file, max_records=2, max_age="24h", user_annotation="uid") as served:

        async def bounded() -> bool:
            return set(await served.jobs()) == {"hours-1", "hours-2"}

        await until(bounded)
        job = await create(stack, "new")
        await stack.client.patch(TRAINJOBS, "team", "new", {"metadata": {"labels": {"uid": "bob"}}})
        await end(stack, "new")

        async def newest() -> bool:
            return set(await served.jobs()) == {"new", "hours-1"}

        await until(newest)
        assert (await served.get(f"/history/v1/jobs/{job['metadata']['uid']}"))[1]["user"] == "bob"


@pytest.mark.nightly
async def test_the_records_may_be_in_a_database(stack: Stack, postgres: Postgres, tmp_path: Path) -> None:
    postgres.new_database(tmp_path / "url")
    async with recorded(stack, tmp_path / "none" / "h", database_url_file=str(tmp_path / "url")) as served:
        await create(stack, "in-a-database")
        await end(stack, "in-a-database")

        async def found() -> bool:
            return "in-a-database" in await served.jobs("?namespace=team")

        await until(found)
    store = postgres_store(tmp_path / "url")
    assert store.find(Query(name="in-a-database"))[0]
    store.close()


async def test_everybody_sees_the_namespaces_in_which_they_may_list_trainjobs(stack: Stack, tmp_path: Path) -> None:
    tokens = {name: await account_token(stack.client, name) for name in ("admin", "member", "nobody", "stranger")}
    for name in ("admin", "member", "nobody"):
        await allow_url(stack.client, name, "/history/*")
    await allow_listing(stack.client, "admin")
    await allow_listing(stack.client, "member", namespace="team")
    async with recorded(stack, tmp_path / "history.sqlite", auth=True) as served:
        uids = {}
        for namespace in ("team", "other"):
            uids[namespace] = (await create(stack, f"in-{namespace}", namespace))["metadata"]["uid"]
            await end(stack, f"in-{namespace}", namespace)

        async def seen(who: str, query: str = "") -> Any:
            status, found = await served.get(f"/history/v1/jobs{query}", token=tokens[who])
            return sorted(each["name"] for each in found["items"]) if status == 200 else (status, found)

        async def recorded_both() -> bool:
            return bool(await seen("admin") == ["in-other", "in-team"])

        await until(recorded_both)
        assert await seen("member") == ["in-team"]
        assert await seen("member", "?namespace=team") == ["in-team"]
        refused = (403, {"error": "you may not list TrainJobs in namespace other, so its history is not shown"})
        assert await seen("member", "?namespace=other") == refused
        assert await seen("nobody") == []
        assert (await served.get("/history/v1/jobs"))[0] == 401
        assert (await served.get("/history/v1/jobs", token=tokens["stranger"]))[0] == 403
        assert (await served.get("/history/v1/jobs", token="nonsense"))[0] == 401
        for who, namespace, status in (("member", "team", 200), ("member", "other", 404), ("admin", "other", 200)):
            path = f"/history/v1/jobs/{uids[namespace]}"
            assert (await served.get(path, token=tokens[who]))[0] == status, (who, namespace)
        # The proxy of an API server keeps the header Authorization to itself.
        through_proxy = await served.get(
            "/history/v1/jobs", token=tokens["member"], header="X-Trainmaster-Authorization"
        )
        assert [each["name"] for each in through_proxy[1]["items"]] == ["in-team"]


HEAD = {
    "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
    "kind": "Configuration",
    "history": {"enabled": True, "file": "/tmp/history.sqlite"},
}


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({}, "everybody who reaches the metrics server could read them; set metrics.auth.enabled to true"),
        ({"bindAddress": "10.0.0.1:8443"}, "or metrics.bindAddress to 127.0.0.1:PORT"),
        ({"auth": {"enabled": True}}, ""),
        ({"bindAddress": "127.0.0.1:8443"}, ""),
        ({"bindAddress": "0"}, ""),
    ],
)
def test_a_history_that_everybody_could_read_is_refused(metrics: dict[str, Any], told: str) -> None:
    problems = complete(parse_configuration({**HEAD, "metrics": metrics})).problems
    assert [problem.path for problem in problems] == (["history.enabled"] if told else [])
    assert all(told in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"maxRecords": 0}, "maxRecords"),
        ({"maxAge": "0s"}, "must be longer than zero"),
        ({"maxAge": "90d"}, "must be a duration as Go writes it"),
        ({"file": ""}, "'' is no name of a file"),
        ({"file": "/var/lib/"}, "is no name of a file"),
    ],
)
def test_options_that_make_no_sense_are_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=message):
        parse_configuration({**HEAD, "history": section})
