"""The history of a manager against the embedded API server: what is recorded, and who gets to see it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.commands import eventually
from support.history import record
from support.installations import allow_listing, allow_url
from support.job_kinds import job_object
from support.postgres import Postgres
from support.processes import account_token
from support.stack import Stack, api_server
from support.training import apply_runtime, conditions_of, runtime, trainjob
from support.web import Served, listening, served

from trainmaster.controller.configuration import ConfigurationInvalid, Health, LeaderElection, parse_configuration
from trainmaster.controller.configuration.types import History
from trainmaster.controller.history.handlers import NamespaceAccess, add_history_handlers
from trainmaster.controller.history.postgres import postgres_store
from trainmaster.controller.history.query import Query
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryReader
from trainmaster.controller.kube.clock import Clock, SystemClock, time_text
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINJOBS, job_resource
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, install_definitions
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject

(PYTORCHJOB,) = (each for each in load_job_kinds() if each.kind == "PyTorchJob")
PYTORCHJOBS = job_resource(PYTORCHJOB)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        await apply_runtime(stack.client, runtime())
        for namespace in ("team", "other"):
            await stack.client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield stack


class LaterClock(SystemClock):
    """Two seconds later: what was written in the very second of a look counts as news."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=2)


class Recorded:
    """The servers of a manager."""

    def __init__(self, manager: Served, probes: Served) -> None:
        self.get, self._probes = manager.get, probes

    async def jobs(self, query: str = "") -> dict[str, JsonObject]:
        status, found = await self.get(f"/history/v1/jobs{query}")
        assert status == 200, found
        return {each["name"]: each for each in found["items"]}

    async def until(self, *names: str, query: str = "") -> dict[str, JsonObject]:
        """Wait until these jobs are shown and no others; returns them."""

        async def shown() -> dict[str, JsonObject] | None:
            found = await self.jobs(query)
            return found if set(found) == set(names) else None

        found: dict[str, JsonObject] = await eventually(shown)
        return found

    async def readiness(self) -> str:
        return str((await self._probes.get("/readyz?verbose"))[1])


@asynccontextmanager
async def recorded(
    stack: Stack, file: Path, *, auth: bool = False, elect: bool = False, clock: Clock | None = None, **history: Any
) -> AsyncIterator[Recorded]:
    probes = f"127.0.0.1:{free_port()}"
    sections = {
        "health": Health(health_probe_bind_address=probes),
        "leader_election": LeaderElection(leader_elect=elect, resource_namespace="default"),
        "history": History(enabled=True, file=str(file), **history),
    }
    async with served(stack.access, auth=auth, clock=clock, **sections) as found:
        yield Recorded(found, Served(f"http://{probes}"))


async def create(stack: Stack, name: str, namespace: str = "team") -> JsonObject:
    job = trainjob(name)
    job["metadata"] = {"name": name, "annotations": {"app.kubernetes.io/created-by": "ann@example.com"}}
    return await stack.client.create(TRAINJOBS, job, namespace=namespace)


async def tell(stack: Stack, name: str, namespace: str = "team", **status: Any) -> None:
    """Play the part of JobSet's controller."""

    async def is_there() -> bool:
        return name in {each["metadata"]["name"] for each in (await stack.client.list(JOBSETS, namespace))["items"]}

    await eventually(is_there)
    await stack.client.patch(JOBSETS, namespace, name, {"status": status}, subresource="status")


async def start(stack: Stack, name: str) -> None:
    """All pods are ready."""
    parts = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
    await tell(stack, name, replicatedJobsStatus=parts)


async def end(stack: Stack, name: str, namespace: str = "team", *, well: bool = True) -> None:
    condition = {
        "type": "Completed" if well else "Failed",
        "status": "True",
        "reason": "AllJobsCompleted" if well else "FailedJobs",
        "message": "as it should" if well else "some jobs failed",
        "lastTransitionTime": time_text(datetime.now(UTC)),
    }
    await tell(stack, name, namespace, conditions=[condition], restarts=2)


async def test_jobs_are_recorded_when_they_end_and_when_they_are_deleted(stack: Stack, tmp_path: Path) -> None:
    async with recorded(stack, tmp_path / "history.sqlite") as served:
        good, bad = await create(stack, "good"), await create(stack, "bad")
        await create(stack, "unfinished")
        assert await served.jobs() == {}
        await end(stack, "good")
        await end(stack, "bad", well=False)
        found = await served.until("good", "bad")
        ended = found["good"]["ended"]
        assert (found["good"]["result"], found["good"]["user"]) == ("Succeeded", "ann@example.com")
        assert (found["good"]["uid"], found["good"]["nodes"]) == (good["metadata"]["uid"], 1)
        assert (found["bad"]["result"], found["bad"]["cause"], found["bad"]["restarts"]) == ("Failed", "Unknown", 2)
        assert not found["good"]["deleted"]
        for name in ("good", "unfinished"):
            await stack.client.delete(TRAINJOBS, "team", name)

        async def deleted() -> bool:
            return bool((await served.jobs())["good"]["deleted"])

        await eventually(deleted)
        found = await served.until("good", "bad", "unfinished")
        assert (found["good"]["result"], found["good"]["ended"]) == ("Succeeded", ended)
        gone = found["unfinished"]
        assert (gone["result"], gone["message"]) == ("Deleted", "the job was deleted before it had ended")
        assert set(await served.jobs("?result=failed")) == {"bad"}
        assert await served.jobs("?namespace=other") == {}
        status, whole = await served.get(f"/history/v1/jobs/{bad['metadata']['uid']}")
        assert (status, [each["event"] for each in whole["timeline"]]) == (200, ["Created", "Failed"])
        assert await served.get("/history/v1/jobs/none") == (
            404,
            {"error": "no job with this UID is recorded in a namespace that you may see"},
        )


async def test_what_makes_no_sense_is_refused_with_a_text(tmp_path: Path) -> None:
    app, reader = aiohttp.web.Application(), HistoryReader(sqlite_store(tmp_path / "h"))
    add_history_handlers(app, reader, NamespaceAccess(None), clock=SystemClock())
    async with listening(app) as port:
        for query, text in (
            ("limit=0", "limit must be a whole number from 1 to 500, got '0'"),
            ("limit=x", "limit must be"),
            ("result=good", "result must be one of Succeeded, Failed, Deleted, got 'good'"),
            ("since=never", "since must be how long ago"),
            ("continue=x", "continue must be what the answer before this one had"),
            ("reuslt=Failed", "unknown parameter 'reuslt'; known are namespace, name,"),
            (f"name={'x' * 1000}", "name is longer than any such name"),
        ):
            status, told = await Served(f"http://127.0.0.1:{port}").get(f"/history/v1/jobs?{query}")
            assert status == 400
            assert text in told["error"]
    await reader.close()


async def test_what_happened_while_nobody_led_is_recorded_afterwards(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    names = ("ended", "gone", "stays")
    async with recorded(stack, file) as served:
        uids = [(await create(stack, name))["metadata"]["uid"] for name in names]
        for name in names:
            await start(stack, name)

        async def are_open() -> bool:
            found = [await served.get(f"/history/v1/jobs/{uid}") for uid in uids]
            return all(status == 200 and whole["started"] for status, whole in found)

        await eventually(are_open)
    failed = {"type": "Failed", "status": "True", "reason": "x", "message": "y"}
    conditions = [{**failed, "lastTransitionTime": "2026-01-31T12:00:00Z"}]
    await stack.client.patch(TRAINJOBS, "team", "ended", {"status": {"conditions": conditions}}, subresource="status")
    await stack.client.delete(TRAINJOBS, "team", "gone")
    async with recorded(stack, file, clock=LaterClock()) as served:
        found = await served.until("ended", "gone")
        assert (found["ended"]["result"], found["gone"]["result"]) == ("Failed", "Deleted")
        assert "while nobody recorded it" in found["gone"]["message"]
        assert found["gone"]["nodes"] == 1, "what was known before is kept"
        assert found["gone"]["started"]
        assert found["ended"]["started"]


async def test_jobs_of_v1_are_recorded_too_also_those_that_had_ended_before(stack: Stack, tmp_path: Path) -> None:
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
    for name in ("before", "running"):
        job = job_object(PYTORCHJOB, {"Master": 1, "Worker": 2})
        job["metadata"] = {"name": name}
        await stack.client.create(PYTORCHJOBS, job, namespace="team")
    now = time_text(datetime.now(UTC))
    message = "PyTorchJob before has failed because it has reached the specified backoff limit"
    ended = {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": message}
    conditions = [{**ended, "lastTransitionTime": now, "lastUpdateTime": now}]
    status = {"conditions": conditions, "replicaStatuses": {}}
    await stack.client.patch(PYTORCHJOBS, "team", "before", {"status": status}, subresource="status")
    async with recorded(stack, tmp_path / "history.sqlite") as served:
        found = (await served.until("before"))["before"]
        assert (found["kind"], found["result"], found["cause"]) == ("PyTorchJob", "Failed", "BackoffLimitExceeded")
        assert found["nodes"] == 3
        await stack.client.delete(PYTORCHJOBS, "team", "running")
        assert (await served.until("before", "running"))["running"]["result"] == "Deleted"


async def test_of_two_replicas_one_records_and_both_show(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    async with recorded(stack, file, elect=True) as first, recorded(stack, file, elect=True) as second:
        await create(stack, "one")
        await end(stack, "one")
        await first.until("one")
        await second.until("one")


async def test_a_store_that_cannot_be_used_costs_the_history_and_nothing_else(stack: Stack, tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with recorded(stack, tmp_path / "nowhere" / "history.sqlite") as served:
            await create(stack, "one")
            await end(stack, "one")

            async def is_complete() -> bool:
                return "Complete" in conditions_of(await stack.client.get(TRAINJOBS, "team", "one"))

            async def is_told() -> bool:
                return "unable to open database file" in await served.readiness()

            await eventually(is_complete)
            await eventually(is_told)
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
        await served.until("hours-1", "hours-2")
        job = await create(stack, "new")
        await stack.client.patch(TRAINJOBS, "team", "new", {"metadata": {"labels": {"uid": "bob"}}})
        await end(stack, "new")
        await served.until("new", "hours-1")
        assert (await served.get(f"/history/v1/jobs/{job['metadata']['uid']}"))[1]["user"] == "bob"


@pytest.mark.nightly
async def test_the_records_may_be_in_a_database(stack: Stack, postgres: Postgres, tmp_path: Path) -> None:
    postgres.new_database(tmp_path / "url")
    async with recorded(stack, tmp_path / "none" / "h", database_url_file=str(tmp_path / "url")) as served:
        await create(stack, "in-a-database")
        await end(stack, "in-a-database")
        await served.until("in-a-database", query="?namespace=team")
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

        await eventually(recorded_both)
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
