"""The benchmark does what docs/benchmarks.md says. Nothing here looks at how long anything takes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.commands import Finished, client_of, eventually, processes_of, trainmaster

from bench.burst import Measured
from bench.counting import AuditReader, Requests, requests_in_metrics
from bench.figures import FIGURES, regressed, verdict
from bench.reporting import Report, read_document
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS

pytestmark = pytest.mark.slow(seconds=24)

_REFERENCE = Path(__file__).resolve().parents[2] / "hack" / "bench" / "reference.json"
_TIMEOUT = 100.0


async def _bench(*arguments: str) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


def _reference(path: Path, *, jobs: int, **values: float) -> str:
    figures = {name.replace("__", "."): {"value": value} for name, value in values.items()}
    path.write_text(json.dumps({"jobs": jobs, "figures": figures}))
    return str(path)


async def test_a_run_measures_every_figure_and_names_what_got_worse(tmp_path: Path) -> None:
    reference = _reference(tmp_path / "reference.json", jobs=20, create__requests=0.25, manager__peak_memory=1e9)
    run = await _bench("--jobs", "20", "--json", str(tmp_path / "out.json"), "--compare", reference)
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


async def test_a_run_of_pytorchjobs_measures_their_figures(tmp_path: Path) -> None:
    run = await _bench("--kind", "PyTorchJob", "--jobs", "5", "--json", str(tmp_path / "out.json"))
    assert run.code == 0, run.err
    document = json.loads((tmp_path / "out.json").read_text())
    of_pytorchjobs = {name for name in FIGURES if name.startswith("pytorchjob.")}
    assert set(document["figures"]) | {"pytorchjob.manager.worst_stall"} == of_pytorchjobs
    assert document["requests"]["create"]["create pods"] == 5 * 4
    assert document["requests"]["create"]["create services"] == 5 * 4
    assert document["figures"]["pytorchjob.restart.writes"]["value"] == 0
    assert document["figures"]["pytorchjob.settled.writes"]["value"] == 0
    assert document["figures"]["pytorchjob.life.requests"]["met"]


@pytest.mark.controllers
async def test_it_measures_a_manager_of_somebody_else_and_leaves_the_cluster_clean(tmp_path: Path) -> None:
    assert (await trainmaster("cluster", "up", "--detach", "--without", "kubelet", cwd=tmp_path)).code == 0
    try:
        kubeconfig = tmp_path / ".trainmaster" / "kubeconfig"
        await eventually(lambda: len(processes_of(str(kubeconfig))) == 1)
        (pid,) = processes_of(str(kubeconfig))
        run = await _bench("--jobs", "3", "--no-churn", "--kubeconfig", str(kubeconfig), "--manager-pid", str(pid))
        assert run.code == 0, run.err
        assert "create.rate" in run.out
        assert "settled.cpu" in run.out
        for name in ("restart.ready", "life.cpu", "create.requests"):
            assert name not in run.out
        async with client_of(kubeconfig) as client:
            with pytest.raises(NotFound):
                await client.get(CLUSTER_TRAINING_RUNTIMES, None, "trainmaster-bench")
            async with asyncio.timeout(_TIMEOUT):
                while (await client.list(TRAINJOBS, "trainmaster-bench"))["items"]:
                    await asyncio.sleep(0.1)
    finally:
        assert (await trainmaster("cluster", "down", cwd=tmp_path)).code == 0


async def test_what_cannot_be_measured_is_told_in_one_line(tmp_path: Path) -> None:
    lonely = await _bench("--manager-pid", "1")
    assert lonely.code == 2
    assert "add --kubeconfig FILE" in lonely.err
    odd = tmp_path / "odd.json"
    odd.write_text("[]")
    compared = await _bench("--compare", str(odd))
    assert compared.code == 2
    assert f"cannot compare with {odd}: it was not written by --json" in compared.err
    missing = await _bench("--kubeconfig", str(tmp_path / "nowhere"))
    assert missing.code == 2
    assert missing.err.startswith("bench: ")
    assert str(tmp_path / "nowhere") in missing.err
    assert len(missing.err.splitlines()) == 1


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
    assert verdict("manager.peak_memory", 389, jobs=9_999) is None
    assert verdict("manager.peak_memory", 389, jobs=10_000) is True
    assert verdict("manager.peak_memory", 391, jobs=10_000) is False
    assert verdict("create.requests", 2.5, jobs=1) is False
    assert verdict("start.ready", 1e9, jobs=10_000) is None


def test_runs_of_different_size_are_compared_where_size_does_not_matter() -> None:
    measured = Measured({"micro.resolve": 300.0, "create.requests": 3.0})
    reference: dict[str, Any] = {
        "jobs": 1000,
        "figures": {"micro.resolve": {"value": 100.0}, "create.requests": {"value": 2.0}, "gone.figure": {"value": 1}},
    }
    assert [line.split()[0] for line in Report(1000, measured).compare(reference)] == [
        "micro.resolve",
        "create.requests",
    ]
    (line,) = Report(20, measured).compare(reference)
    assert line == "micro.resolve regressed: 300 us, but it may be 200 (the reference has 100)"


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


def test_metrics_stand_in_for_an_audit_log() -> None:
    requests = requests_in_metrics(
        "# TYPE rest_client_requests_total counter\n"
        'rest_client_requests_total{code="200",host="h",method="GET"} 7\n'
        'rest_client_requests_total{code="201",host="h",method="POST"} 3\n'
        'rest_client_requests_total{code="409",host="h",method="POST"} 1\n'
        "# TYPE trainmaster_informer_snapshots_total counter\n"
        'trainmaster_informer_snapshots_total{method="list",resource="trainjobs"} 1\n'
        'trainmaster_informer_snapshots_total{method="streaming",resource="jobsets"} 5\n'
    )
    assert requests.counts == Counter({"POST": 4, "list snapshots": 1})
    assert (requests.single, requests.writes, requests.lists) == (4, 4, 1)
