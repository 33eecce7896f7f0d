"""`trainmaster.report`: a training reports by it, and is neither held up nor ended by it."""

import ast
import asyncio
import runpy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.authorities import Authority
from support.statusserver import NAMESPACE, StatusClient, Trainers

from trainmaster import report
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.api.constants import STATUS_AUTHORITY_ENV, STATUS_TOKEN_ENV, STATUS_URL_ENV, status_path
from trainmaster.runtime.jsontree import JsonObject

Enter = Callable[..., None]


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Put this process into a pod."""

    def enter(url: str = "", token: str = "good", **environment: str) -> None:
        (tmp_path / "token").write_text(token)
        (tmp_path / "ca.crt").write_bytes(Authority().pem)
        files = {STATUS_TOKEN_ENV: str(tmp_path / "token"), STATUS_AUTHORITY_ENV: str(tmp_path / "ca.crt")}
        for name, value in ({STATUS_URL_ENV: url} | files | environment).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(report, "_reporter", report._Reporter())

    return enter


def answering(status: int, **headers: str) -> Callable[[], Awaitable[web.Response]]:
    async def answer() -> web.Response:
        return web.Response(status=status, headers={name.replace("_", "-"): each for name, each in headers.items()})

    return answer


class Recorder:
    """A server that keeps what it is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.reports: list[JsonObject] = []
        self.answer: Callable[[], Awaitable[web.Response]] = answering(200)
        self.url = ""

    async def post(self, request: web.Request) -> web.Response:
        self.reports.append((await request.json())["trainerStatus"])
        return await self.answer()


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    found, app = Recorder(), web.Application()
    app.router.add_post("/", found.post)
    async with TestServer(app) as server:
        found.url = str(server.make_url("/"))
        yield found


async def flush() -> None:
    await asyncio.to_thread(report.flush)


async def test_what_is_reported_is_in_the_status_of_jobs(http: StatusClient, trainers: Trainers, enter: Enter) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    enter(f"http://127.0.0.1:{http.port}{status_path(NAMESPACE, 'train')}", token, RANK="0", WORLD_SIZE="8")
    report.progress(percent=45.7, metrics={"loss": 0.23471111}, checkpoint=True, remaining_seconds=7.5)
    await flush()
    reported = await trainers.reported("train")
    assert reported == {
        "progressPercentage": 45,
        "estimatedRemainingSeconds": 7,
        "metrics": [{"name": "loss", "value": "0.234711"}],
        "lastUpdatedTime": reported["lastCheckpointTime"],
        "lastCheckpointTime": reported["lastUpdatedTime"],
        "worldSize": 8,
    }
    report.progress(percent=46, metrics={"accuracy": 1}, world_size=4)
    await flush()
    later = await trainers.reported("train")
    assert later["lastCheckpointTime"] == reported["lastCheckpointTime"], "what is not reported again stays"
    assert (later["progressPercentage"], later["worldSize"], len(later["metrics"])) == (46, 4, 2)


async def test_reports_are_few_but_for_checkpoints_and_the_last_one(recorder: Recorder, enter: Enter) -> None:
    enter(recorder.url)
    report.progress(percent=0)
    await flush()
    for percent in range(1, 50):
        report.progress(percent=percent)
    report.progress(checkpoint=True)
    while len(recorder.reports) < 2:
        await asyncio.sleep(0.01)
    for percent in range(50, 100):
        report.progress(percent=percent)
    await flush()
    assert [each["progressPercentage"] for each in recorder.reports] == [0, 49, 99]


@pytest.mark.parametrize("environment", [{STATUS_URL_ENV: ""}, {"RANK": "1"}, {"PET_NODE_RANK": "3"}])
async def test_nothing_is_sent_outside_of_a_cluster_nor_by_other_ranks(
    recorder: Recorder, enter: Enter, environment: dict[str, str]
) -> None:
    enter(**({"url": recorder.url} | environment))
    report.progress(percent=1, checkpoint=True)
    await flush()
    assert (recorder.reports, report._reporter._thread) == ([], None)


@pytest.mark.parametrize("trouble", ["refused", "gone", "silent", "no token", "odd values"])
async def test_trouble_costs_one_warning(
    recorder: Recorder, enter: Enter, trouble: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    enter(f"http://127.0.0.1:{free_port()}" if trouble == "gone" else recorder.url)
    percent: Any = "half" if trouble == "odd values" else 1
    if trouble == "refused":
        recorder.answer = answering(403)
    if trouble == "no token":
        monkeypatch.delenv(STATUS_TOKEN_ENV)
    if trouble == "silent":
        monkeypatch.setattr(report, "TIMEOUT", 0.1)
        monkeypatch.setattr(recorder, "answer", asyncio.Event().wait)
    for _ in range(3):
        report.progress(percent=percent, checkpoint=True)
        await flush()
    (warning,) = [each for each in caplog.records if each.name == "trainmaster.report"]
    assert warning.getMessage().startswith("progress is not reported: ")


@pytest.mark.parametrize("seconds", ["60", "9" * 30, "9" * 5000], ids=len)
async def test_a_busy_server_is_asked_again_when_it_says(recorder: Recorder, enter: Enter, seconds: str) -> None:
    enter(recorder.url)
    recorder.answer = answering(429, Retry_After=seconds)
    report.progress(percent=1)
    await flush()
    wait = report._reporter._seconds_to_wait()
    assert wait is not None
    assert wait > report.INTERVAL
    recorder.answer = answering(200)
    await flush()
    assert len(recorder.reports) == 2
    assert report._reporter._seconds_to_wait() is None


def test_it_is_one_file_that_needs_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(report.__file__).read_text()
    imports = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Import | ast.ImportFrom)]
    names = {alias.name for each in imports if isinstance(each, ast.Import) for alias in each.names}
    names |= {str(each.module) for each in imports if isinstance(each, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    ast.parse(source, feature_version=(3, 9))
    runpy.run_path(report.__file__, run_name="__main__")
    assert capsys.readouterr().out == source


async def test_callbacks_of_libraries_report(recorder: Recorder, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(recorder.url)
    for name, base in (("transformers", "TrainerCallback"), ("pytorch_lightning", "Callback")):
        library: Any = ModuleType(name)
        setattr(library, base, type(base, (), {}))
        monkeypatch.setitem(sys.modules, name, library)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    callback = report.HuggingFaceCallback()
    assert type(callback).__mro__[2].__name__ == "TrainerCallback"
    callback.on_log(None, SimpleNamespace(global_step=5, max_steps=10), None, logs={"loss": 0.5, "note": "warm"})
    await flush()
    callback.on_save(None, None, None)
    await flush()
    first, saved = recorder.reports
    assert (first["progressPercentage"], "lastCheckpointTime" in first) == (50, False)
    assert first["metrics"] == [{"name": "loss", "value": "0.5"}, {"name": "note", "value": "warm"}]
    assert saved["lastCheckpointTime"] == saved["lastUpdatedTime"]

    enter(recorder.url)
    recorder.reports.clear()
    trainer = SimpleNamespace(global_step=3, estimated_stepping_batches=4, callback_metrics={"loss": 0.25})
    lightning = report.LightningCallback()
    lightning.on_train_batch_end(trainer, None, None, None, 0)
    await flush()
    lightning.on_train_batch_end(trainer, None, None, None, 0)
    await flush()
    lightning.on_save_checkpoint(trainer, None, {})
    lightning.on_train_end(trainer, None)
    await flush()
    assert [each["progressPercentage"] for each in recorder.reports] == [75, 75]
    assert "lastCheckpointTime" in recorder.reports[1]
    with pytest.raises(AttributeError):
        _ = report.KerasCallback
