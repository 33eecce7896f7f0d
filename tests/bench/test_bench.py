"""The benchmark does what docs/benchmarks.md says. Nothing here looks at how long anything takes."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_module

from bench import samples
from bench.api import BenchmarkFailed
from bench.burst import Measured
from bench.checkout import ready
from bench.counting import AuditReader, Requests
from bench.figures import FIGURES, regressed, verdict
from bench.instructions import TOLERATED, Reference, build, exceeded, undisturbed
from bench.processes import run_process
from bench.reporting import Report, read_document
from trainmaster.controller.explain.pods import is_of_jobset

_REFERENCE = Path(__file__).resolve().parents[2] / "hack" / "bench" / "reference.json"


def _reference(path: Path, *, jobs: int, **values: float) -> str:
    figures = {name.replace("__", "."): {"value": value} for name, value in values.items()}
    path.write_text(json.dumps({"jobs": jobs, "figures": figures}))
    return str(path)


async def test_a_run_measures_every_figure_and_names_what_got_worse(tmp_path: Path) -> None:
    reference = _reference(tmp_path / "reference.json", jobs=20, create__requests=0.25, manager__peak_memory=1e9)
    run = await run_module("bench", "--jobs", "20", "--json", str(tmp_path / "out.json"), "--compare", reference)
    assert run.code == 1, run.err
    assert "create.requests regressed: " in run.err
    assert "manager.peak_memory" not in run.err
    document = json.loads((tmp_path / "out.json").read_text())
    # The event loop is watched by the manager, and a stall needs a loop that was ever late.
    of_trainjobs = {name for name in FIGURES if not name.startswith(("pytorchjob.", "waiting."))}
    assert set(document["figures"]) | {"manager.worst_stall"} == of_trainjobs
    for name in document["figures"]:
        assert f"\n{name} " in run.out
    assert document["jobs"] == 20
    assert {"cpu", "cpus", "memory_mb", "python", "libraries"} <= set(document["machine"])
    assert document["requests"]["create"]["patch jobsets"] == 20
    assert document["figures"]["create.requests"]["budget"] == 2
    assert document["figures"]["restart.writes"] == {"value": 0, "unit": "", "budget": 0, "met": True}
    assert document["figures"]["restart.ready"]["met"] is None


def test_the_manager_takes_pending_pods_for_those_of_a_jobset() -> None:
    """It explains nothing by others, and the phase `waiting` would not end."""
    assert [is_of_jobset(pod) for pod in samples.pending_pods(1)] == [True, True]


async def test_a_run_of_pytorchjobs_measures_their_figures(tmp_path: Path) -> None:
    run = await run_module("bench", "--kind", "PyTorchJob", "--jobs", "5", "--json", str(tmp_path / "out.json"))
    assert run.code == 0, run.err
    document = json.loads((tmp_path / "out.json").read_text())
    of_pytorchjobs = {name for name in FIGURES if name.startswith("pytorchjob.")}
    assert set(document["figures"]) | {"pytorchjob.manager.worst_stall"} == of_pytorchjobs
    assert document["requests"]["create"]["create pods"] == 5 * 4
    assert document["requests"]["create"]["create services"] == 5 * 4
    assert document["figures"]["pytorchjob.restart.writes"]["value"] == 0
    assert document["figures"]["pytorchjob.settled.writes"]["value"] == 0
    assert document["figures"]["pytorchjob.life.requests"]["met"]


async def test_what_cannot_be_measured_is_told_in_one_line(tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text("[]")
    for arguments, told in (
        (("--phases", "create,death"), "there is no phase death"),
        (("--compare", str(odd)), f"cannot compare with {odd}: it was not written by --json"),
    ):
        run = await run_module("bench", *arguments)
        assert run.code == 2
        assert told in run.err


def _repository(directory: Path, makefile: str) -> str:
    """Make a repository of one commit, and return the commit's name."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), "-c", "user.name=test", "-c", "user.email=test@example.com", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    directory.mkdir()
    git("init", "--quiet")
    (directory / "Makefile").write_text(makefile)
    git("add", "Makefile")
    git("commit", "--quiet", "--message", "Begin")
    return git("rev-parse", "HEAD")


def test_another_commit_is_made_ready_by_its_own_makefile_and_stays(tmp_path: Path) -> None:
    recipe = "mkdir -p .venv/bin && echo $(PYTHON) > .venv/bin/python && touch $@ && echo made >> ../made"
    sha = _repository(tmp_path / "repository", f".venv/.runtime:\n\t{recipe}\n")
    for _ in range(2):
        checkout = ready("HEAD", say=print, repository=tmp_path / "repository", kept=tmp_path / "kept")
        assert checkout.name == sha[:8]
        assert (checkout.directory / ".venv/bin/python").read_text().strip() == sys.executable
        assert checkout.program.interpreter == (str(checkout.directory / ".venv/bin/python"),)
    assert (tmp_path / "kept/made").read_text() == "made\n", "it was made anew"
    shutil.rmtree(tmp_path / "kept")
    assert ready(sha, say=print, repository=tmp_path / "repository", kept=tmp_path / "kept").is_ready


def test_an_environment_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path) -> None:
    _repository(tmp_path / "repository", ".venv/.runtime:\n\t@echo no index; exit 1\n")
    with pytest.raises(BenchmarkFailed, match=r"(?s)the environment of HEAD cannot be made in .*no index"):
        ready("HEAD", say=print, repository=tmp_path / "repository", kept=tmp_path / "kept")


def test_durations_may_double_rates_may_halve_and_counts_may_not_grow() -> None:
    assert regressed("create.cpu", 2.0, 1.0) is None
    assert regressed("create.cpu", 2.1, 1.0) == 2.0
    assert regressed("create.rate", 50.0, 100.0) is None
    assert regressed("create.rate", 49.0, 100.0) == 50.0
    assert regressed("create.requests", 2.0, 2.0) is None
    assert regressed("create.requests", 2.1, 2.0) == 2.0
    assert regressed("settled.writes", 1.0, 0.0) == 0.0
    assert regressed("create.requests", 1.0, 2.0) is None


def test_budgets_of_many_jobs_say_nothing_about_few() -> None:
    assert verdict("manager.peak_memory", 199, jobs=9_999) is None
    assert verdict("manager.peak_memory", 199, jobs=10_000) is True
    assert verdict("manager.peak_memory", 201, jobs=10_000) is False
    assert verdict("create.requests", 2.5, jobs=1) is False
    assert verdict("start.ready", 1e9, jobs=10_000) is None


def test_runs_of_the_same_size_are_compared() -> None:
    measured = Measured({"create.cpu": 300.0, "create.requests": 3.0})
    reference: dict[str, Any] = {
        "jobs": 1000,
        "figures": {"create.cpu": {"value": 100.0}, "create.requests": {"value": 2.0}, "gone.figure": {"value": 1}},
    }
    assert [line.split()[0] for line in Report(1000, measured).compare(reference)] == ["create.cpu", "create.requests"]
    line, _ = Report(1000, measured).compare(reference)
    assert line == "create.cpu regressed: 300 ms/job, but it may be 200 (the reference has 100)"
    assert Report(20, measured).compare(reference) == []


def test_the_reference_is_a_run_of_the_usual_size() -> None:
    document = read_document(_REFERENCE)
    assert document["jobs"] == 1000
    assert set(document["figures"]) <= set(FIGURES)
    assert not [name for name, each in document["figures"].items() if each.get("met") is False]


async def test_requests_are_those_of_the_manager_since_the_beginning(tmp_path: Path) -> None:
    def line(verb: str, resource: str, *, agent: str = "trainmaster/1 (linux)", **more: str) -> bytes:
        reference = {"resource": resource, **more}
        event = {"stage": "ResponseComplete", "verb": verb, "userAgent": agent, "objectRef": reference}
        return json.dumps(event).encode() + b"\n"

    path = tmp_path / "audit.log"
    path.write_bytes(line("create", "jobsets"))
    reader = AuditReader(path, user_agent="trainmaster/")
    assert await reader.count() == Requests()
    late = line("list", "jobsets")
    with path.open("ab") as log:
        log.write(line("patch", "trainjobs", subresource="status"))
        log.write(line("update", "leases") + line("create", "trainjobs", agent="load-generator"))
        log.write(b'{"stage": "ResponseComplete", "verb": "get", "userAgent": "trainmaster/1"}\n')
        log.write(late[:9])
    first = await reader.count()
    assert first.counts == {"patch trainjobs/status": 1}
    with path.open("ab") as log:
        log.write(late[9:] + line("get", "secrets") + line("watch", "pods"))
    second = await reader.count()
    assert (second - first).counts == {"list jobsets": 1, "get secrets": 1, "watch pods": 1}
    assert (second.single, second.writes, second.lists) == (2, 1, 1)


def test_instructions_may_grow_a_little() -> None:
    reference = {"create": 1000.0, "live": 2000.0}
    assert exceeded({"create": 1000.0 * TOLERATED, "live": 1.0}, reference) == []
    (line,) = exceeded({"create": 1001.0 * TOLERATED, "live": 2000.0}, reference)
    assert line.startswith("create takes ")


def test_what_happens_by_the_clock_does_not_count() -> None:
    assert undisturbed([5400, 5410, 19_300, 5420, 5430, 13_900, 5400, 5440]) == pytest.approx(5400, rel=0.01)


def test_a_reference_of_instructions_is_kept(tmp_path: Path) -> None:
    reference = Reference("0" * 40, build(), {"create": 1000, "live": 2000})
    reference.write(tmp_path / "reference.json")
    assert Reference.read(tmp_path / "reference.json") == reference
    (tmp_path / "odd.json").write_text('{"commit": "x"}')
    for name in ("odd.json", "missing.json"):
        with pytest.raises(BenchmarkFailed, match="make one with --renew"):
            Reference.read(tmp_path / name)


async def test_programs_keep_their_bytecode_whatever_we_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each start of a manager would compile all modules, as no installed one does."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "told.py").write_text("import sys; print(sys.dont_write_bytecode)", encoding="utf-8")
    log = tmp_path / "log"
    async with run_process(["told"], log, {"PYTHONPATH": str(tmp_path)}) as process:
        await asyncio.to_thread(process.wait, 60)
    assert log.read_text(encoding="utf-8").strip() == "False"
