"""`trainmaster history`: from a file, from a manager by its URL, and by the proxy of an API server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from support.commands import Finished, trainmaster
from support.history import record
from support.kubeconfigs import write_kubeconfig
from support.web import listening

from trainmaster.controller.history.handlers import NamespaceAccess, add_history_handlers
from trainmaster.controller.history.record import JobRecord, Sample, TimelineEntry
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryReader
from trainmaster.controller.kube.clock import SystemClock, time_text

pytestmark = pytest.mark.nightly

NOW = datetime.now(UTC)


def ago(**span: int) -> str:
    return time_text(NOW - timedelta(**span))


FAILED = record(
    1,
    uid="0b6e64ad-9f0f-4a3e-8c5e-0123456789ab",
    name="bert",
    created=ago(hours=12),
    started=ago(hours=11),
    ended=ago(hours=9),
    result="Failed",
    cause="OutOfMemory",
    message="rank 3 (pod bert-node-0-3) failed with exit code 137\n\x1b[2Jsecond line",
    exit_code=137,
    nodes=4,
    accelerators={"nvidia.com/gpu": 32},
    goodput={"queuedSeconds": 3600, "productiveSeconds": 7200, "lostSeconds": 3600},
    restarts=2,
    user="ann@example.com",
    deleted=ago(hours=1),
    samples=(Sample(ago(hours=10), 40, {"loss": "0.53"}),),
    timeline=(TimelineEntry(ago(hours=12), "Created"), TimelineEntry(ago(hours=9), "Failed", "rank 3\nfailed")),
)
RECORDS = (
    FAILED,
    record(2, name="mnist", created=ago(hours=31), ended=ago(hours=30), runtime="jax"),
    record(
        3,
        name="gone",
        created=ago(days=9),
        ended=ago(days=8),
        result="Deleted",
        cause="Unschedulable",
        namespace="team-b",
    ),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "history.sqlite", RECORDS)


def written(path: Path, records: tuple[JobRecord, ...]) -> Path:
    store = sqlite_store(path)
    store.write(records, now=NOW)
    store.close()
    return path


async def history(file: Path, *words: str) -> Finished:
    return await trainmaster("history", "--file", str(file), *words, cwd=file.parent)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_jobs_are_listed_the_last_end_first(file: Path) -> None:
    found = await history(file)
    assert (found.code, found.err) == (0, "")
    assert rows(found.out) == [
        ["NAMESPACE", "KIND", "NAME", "STATE", "CAUSE", "RUNTIME", "ENDED", "DURATION"],
        ["team-a", "TrainJob", "bert", "Failed", "OutOfMemory", "torch-distributed", "9h", "ago", "3h"],
        ["team-a", "TrainJob", "mnist", "Complete", "-", "jax", "30h", "ago", "60m"],
        ["team-b", "TrainJob", "gone", "Deleted", "Unschedulable", "torch-distributed", "8d", "ago", "24h"],
    ]
    # More columns are shown where they are asked for.
    wide = rows((await history(file, "-o", "wide", "-n", "team-a")).out)
    assert wide[0][-6:] == ["NODES", "ACCELERATORS", "RESTARTS", "EXIT", "DELETED", "USER"]
    assert wide[1][-7:] == ["4", "32", "nvidia.com/gpu", "2", "137", "yes", "ann@example.com"]
    assert wide[2][-6:] == ["-", "-", "0", "-", "no", "-"]


async def test_jobs_are_chosen_by_what_they_are(file: Path) -> None:
    for words, names in (
        (("-n", "team-b"), ["gone"]),
        (("--runtime", "jax"), ["mnist"]),
        (("--result", "failed"), ["bert"]),
        (("--result", "complete"), ["mnist"]),
        (("--cause", "Unschedulable"), ["gone"]),
        (("--since", "2d"), ["bert", "mnist"]),
        (("--limit", "1"), ["bert"]),
        (("-A",), ["bert", "mnist", "gone"]),
    ):
        found = await history(file, *words, "-o", "json")
        assert [each["name"] for each in json.loads(found.out)["items"]] == names


async def test_all_that_is_recorded_of_a_job_is_told_and_nothing_that_a_terminal_obeys(file: Path) -> None:
    found = await history(file, "bert")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[:6] == [
        "Job:          TrainJob team-a/bert",
        "UID:          0b6e64ad-9f0f-4a3e-8c5e-0123456789ab",
        "State:        Failed (OutOfMemory)",
        "Message:      rank 3 (pod bert-node-0-3) failed with exit code 137",
        "              second line",
        "Exit code:    137",
    ]
    assert "Goodput:      4h of which 120m productive (50 %), 60m queued, 60m lost\n" in found.out
    assert f"Progress:     40 %, loss 0.53 (reported {ago(hours=10)})" in found.out
    assert found.out.splitlines()[-3:] == [
        "Timeline:",
        f"  {ago(hours=12)}  Created",
        f"  {ago(hours=9)}  Failed: rank 3 failed",
    ]
    assert "\x1b" not in found.out
    assert (await history(file, FAILED.uid)).out == found.out
    whole = json.loads((await history(file, "bert", "-o", "json")).out)
    assert (whole["uid"], len(whole["timeline"])) == (FAILED.uid, 2)


async def test_of_several_of_one_name_the_last_is_told_and_files_without_history_are_told_of(tmp_path: Path) -> None:
    file = written(tmp_path / "h", (record(1, name="again"), record(2, name="again", cause="Evicted", result="Failed")))
    assert "Failed (Evicted)" in (await history(file, "again")).out
    # Files that are no history are told of.
    missing = await history(tmp_path / "none")
    assert (missing.code, "is no file; name that of history.file" in missing.err) == (1, True)
    (tmp_path / "text").write_text("no database " * 1000)
    other = await history(tmp_path / "text")
    assert (other.code, "file is not a database" in other.err) == (1, True)
    assert (tmp_path / "text").read_text() == "no database " * 1000


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("none",), 2, "trainmaster: no job 'none' that has ended is recorded in a namespace that you may see;"),
        (("none", "-n", "team-a"), 2, "is recorded in namespace team-a; -A looks in all;"),
        (("00000000-0000-0000-0000-000000000000",), 2, "no job with the UID 00000000-0000-0000-0000-000000000000"),
        (("--since", "never"), 2, "trainmaster: since must be how long ago, 90m or 7d say, or a time"),
        (("--cause", "Weather"), 2, "argument --cause: invalid choice: 'Weather'"),
        (("--limit", "0"), 2, "'0' is no whole number from 1 to 500"),
        (("--runtime", "none"), 0, "no such jobs are recorded"),
    ],
)
async def test_questions_in_vain_take_a_line(file: Path, words: tuple[str, ...], code: int, text: str) -> None:
    found = await history(file, *words)
    assert (found.code, found.out) == (code, "")
    assert text in found.err
    assert "Traceback" not in found.err


@asynccontextmanager
async def served(file: Path) -> AsyncIterator[int]:
    """A manager that shows its history to everybody."""
    app, reader = web.Application(), HistoryReader(sqlite_store(file))
    add_history_handlers(app, reader, NamespaceAccess(None), clock=SystemClock())
    async with listening(app) as port:
        yield port
    await reader.close()


async def test_a_manager_tells_the_same_by_its_url(file: Path) -> None:
    async with served(file) as port:
        url = ("history", "--url", f"http://127.0.0.1:{port}")
        assert (await trainmaster(*url, cwd=file.parent)).out == (await history(file)).out
        assert (await trainmaster(*url, "bert", cwd=file.parent)).out == (await history(file, "bert")).out
        absent = await trainmaster(*url, "none", cwd=file.parent)
        assert (absent.code, "no job 'none'" in absent.err) == (2, True)


@asynccontextmanager
async def api_server(manager: int, *, service: str, token: str) -> AsyncIterator[tuple[int, list[web.Request]]]:
    """An API server that proxies to a Service, as the real one does: without the header Authorization."""
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return web.json_response({"message": "Unauthorized"}, status=401)
        base = f"/api/v1/namespaces/{service}/proxy"
        if not request.path.startswith(base):
            return web.json_response({"kind": "Status", "message": "not found"}, status=404)
        seen.append(request)
        headers = {name: value for name, value in request.headers.items() if name != "Authorization"}
        location = f"http://127.0.0.1:{manager}{request.path_qs.removeprefix(base)}"
        async with aiohttp.request("GET", location, headers=headers) as answered:
            return web.Response(status=answered.status, body=await answered.read(), content_type=answered.content_type)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with listening(app) as port:
        yield port, seen


async def test_a_manager_in_a_cluster_is_reached_by_its_service_and_knows_who_asks(file: Path) -> None:
    service = "kubeflow/services/https:kubeflow-trainer-controller-manager:metrics"
    async with served(file) as manager, api_server(manager, service=service, token="secret") as (port, seen):
        kubeconfig = write_kubeconfig(file.parent / "kubeconfig", f"http://127.0.0.1:{port}")
        found = await trainmaster("history", "-A", "--kubeconfig", str(kubeconfig), cwd=file.parent)
        assert found.out == (await history(file)).out
        assert [each.headers["X-Trainmaster-Authorization"] for each in seen] == ["Bearer secret"]
        (file.parent / "token").write_text("other\n")
        other = ("history", "--kubeconfig", str(kubeconfig), "--token-file", str(file.parent / "token"))
        assert rows((await trainmaster(*other, "-n", "team-b", cwd=file.parent)).out)[1][1] == "gone"
        assert seen[-1].headers["X-Trainmaster-Authorization"] == "Bearer other"
        absent = await trainmaster(*other, "--service", "elsewhere/manager", cwd=file.parent)
        assert (absent.code, "is history.enabled set in the configuration of the manager?" in absent.err) == (1, True)
        wrong = await trainmaster(*other, "--service", "manager", cwd=file.parent)
        assert (wrong.code, "--service 'manager' is no Service of a manager" in wrong.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--url", "127.0.0.1:8443"), "is no URL; give that of the metrics of the manager"),
        (("--url", "http://127.0.0.1:1"), "is it the address of the manager's metrics"),
        (("--url", "https://a", "--certificate-authority", "none"), "--certificate-authority none cannot be read"),
        (("--url", "https://a", "--token-file", "none"), "--token-file none cannot be read"),
        ((), "no cluster: $KUBECONFIG is not set"),
    ],
)
async def test_a_history_that_is_not_there_is_told_of(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    found = await trainmaster("history", *words, cwd=tmp_path)
    assert (found.code, found.out) == (1, "")
    assert text in found.err
    assert "Traceback" not in found.err


@pytest.mark.parametrize("body", ["[]", "<html>", '{"items": 7}', '{"items": [{}]}', "null"])
async def test_a_server_that_has_no_history_is_told_of(tmp_path: Path, body: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with listening(app) as port:
        found = await trainmaster("history", "--url", f"http://127.0.0.1:{port}", cwd=tmp_path)
    assert found.code == 1
    assert "Traceback" not in found.err
    assert str(port) in found.err
