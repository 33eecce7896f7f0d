"""A TrainJob by kubectl alone, as users do it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.training import python, runtime, trainjob

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
]

Kubectl = Callable[..., Coroutine[Any, Any, str]]
Start = Callable[..., Coroutine[Any, Any, asyncio.subprocess.Process]]


@pytest.fixture
def start(cluster_home: Path, tmp_path: Path) -> Start:
    """A function that starts kubectl."""
    options = [
        "--kubeconfig",
        str(cluster_home / ".trainmaster" / "kubeconfig"),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]

    async def run(*arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("kubectl", *options, *arguments),
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    return run


@pytest.fixture
def kubectl(start: Start) -> Kubectl:
    """A function that runs kubectl to its end and returns what it printed."""

    async def run(*arguments: str) -> str:
        process = await start(*arguments)
        async with asyncio.timeout(90):
            printed, _ = await process.communicate()
        assert process.returncode == 0, printed.decode()
        return printed.decode()

    return run


async def lines_until(process: asyncio.subprocess.Process, last: str) -> list[str]:
    """Read what a process prints up to a line that starts with some words, however wide the columns are."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(60):
        while not lines or not f"{' '.join(lines[-1].split())} ".startswith(f"{last} "):
            line = await process.stdout.readline()
            assert line, lines
            lines.append(line.decode().strip())
    return lines


async def test_the_life_of_a_trainjob(kubectl: Kubectl, start: Start, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"""
import os, time
print("first", flush=True)
while not os.path.exists({str(go)!r}):
    time.sleep(0.02)
print("last", flush=True)
"""
    job = trainjob("by-hand", on="by-hand", trainer={"command": python(script)})
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump_all([runtime("by-hand"), job]))

    watching = await start("get", "trainjobs", "--watch", "--no-headers")
    applied = await kubectl("apply", "--server-side", "-f", str(manifest))
    assert "trainjob.trainer.kubeflow.org/by-hand serverside-applied" in applied
    selector = "jobset.sigs.k8s.io/jobset-name=by-hand"
    await kubectl("wait", "--for=create", "pod", "-l", selector, "--timeout=60s")
    await kubectl("wait", "--for=condition=Ready", "pod", "-l", selector, "--timeout=60s")
    (pod,) = (await kubectl("get", "pods", "-l", selector, "-o", "name")).split()

    following = await start("logs", "-f", pod)
    assert await lines_until(following, "first") == ["first"]
    await kubectl("wait", "--for=jsonpath={.status.jobsStatus[0].active}=1", "trainjob/by-hand", "--timeout=60s")
    header, row = (await kubectl("get", "trainjob", "by-hand")).splitlines()
    assert header.split() == ["NAME", "STATE", "ACTIVE", "AGE"]
    assert row.split()[:2] == ["by-hand", "node"]
    go.touch()
    assert await lines_until(following, "last") == ["last"]
    assert await asyncio.wait_for(following.wait(), 30) == 0

    assert "condition met" in await kubectl("wait", "--for=condition=Complete", "trainjob/by-hand", "--timeout=60s")
    (_, row) = (await kubectl("get", "trainjob", "by-hand")).splitlines()
    assert row.split()[:2] == ["by-hand", "Complete"]
    seen = await lines_until(watching, "by-hand Complete")
    assert len(seen) > 1
    watching.terminate()
    await watching.wait()

    whole = yaml.safe_load(await kubectl("get", "trainjob", "by-hand", "-o", "yaml"))
    assert whole["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    assert whole["status"]["jobsStatus"][0]["succeeded"] == 1
    assert "managedFields" not in whole["metadata"]
    described = await kubectl("describe", "trainjob", "by-hand")
    assert "AllJobsCompleted" in described

    assert 'trainjob.trainer.kubeflow.org "by-hand" deleted' in await kubectl("delete", "trainjob", "by-hand")
    await kubectl("wait", "--for=delete", "jobset/by-hand", "--timeout=60s")
    assert "by-hand" not in await kubectl("get", "trainjobs,jobsets,jobs,pods,configmaps", "-o", "name")


async def test_a_job_deleted_as_an_orphan_leaves_its_jobset_and_in_the_foreground_takes_it_along(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    manifest = tmp_path / "job.yaml"
    for name, cascade in (("orphaning", "orphan"), ("thorough", "foreground")):
        sleeping = trainjob(name, on="cascades", trainer={"command": python("import time; time.sleep(600)")})
        manifest.write_text(yaml.safe_dump_all([runtime("cascades"), sleeping]))
        await kubectl("apply", "--server-side", "-f", str(manifest))
        await kubectl("wait", "--for=create", f"jobset/{name}", "--timeout=60s")
        await kubectl("delete", "trainjob", name, f"--cascade={cascade}", "--timeout=60s")
    left = (await kubectl("get", "jobsets", "-o", "name")).split()
    assert "jobset.jobset.x-k8s.io/orphaning" in left
    assert "jobset.jobset.x-k8s.io/thorough" not in left
    await kubectl("delete", "jobset", "orphaning", "--timeout=60s")


async def test_the_log_of_the_attempt_before(kubectl: Kubectl, tmp_path: Path) -> None:
    """A container that failed once and was restarted in place tells what it said before."""
    script = f"""
import os, sys, time
first = not os.path.exists({str(tmp_path / "tried")!r})
open({str(tmp_path / "tried")!r}, "w").close()
print("first attempt" if first else "second attempt", flush=True)
if first:
    sys.exit(3)
time.sleep(600)
"""
    manifest = tmp_path / "job.yaml"
    restarting = runtime("restarts", backoff_limit=6, restart_policy="OnFailure")
    job = trainjob("restarting", on="restarts", trainer={"command": python(script)})
    manifest.write_text(yaml.safe_dump_all([restarting, job]))
    await kubectl("apply", "--server-side", "-f", str(manifest))
    selector = "jobset.sigs.k8s.io/jobset-name=restarting"
    await kubectl("wait", "--for=create", "pod", "-l", selector, "--timeout=60s")
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    await kubectl("wait", restarted, "pod", "-l", selector, "--timeout=60s")
    (pod,) = (await kubectl("get", "pods", "-l", selector, "-o", "name")).split()
    assert await kubectl("logs", "--previous", pod) == "first attempt\n"
    terminated = "{.status.containerStatuses[0].lastState.terminated.exitCode}"
    assert await kubectl("get", pod, "-o", f"jsonpath={terminated}") == "3"
    await kubectl("delete", "trainjob", "restarting")


@pytest.mark.defect("U1")
async def test_the_state_is_what_holds(kubectl: Kubectl, tmp_path: Path) -> None:
    """A job that was resumed is not shown as suspended any more, and one that has ended not as suspended again."""
    go = tmp_path / "go"
    command = python(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)")
    job = trainjob("by-turns", on="by-turns", suspend=True, trainer={"command": command})
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump_all([runtime("by-turns"), job]))

    async def state() -> list[str]:
        return (await kubectl("get", "trainjob", "by-turns", "--no-headers")).split()[1:2]

    async def suspend(value: str) -> None:
        await kubectl("patch", "trainjob", "by-turns", "--type=merge", "-p", f'{{"spec":{{"suspend":{value}}}}}')
        await kubectl("wait", f"--for=condition=Suspended={value}", "trainjob/by-turns", "--timeout=60s")

    await kubectl("apply", "--server-side", "-f", str(manifest))
    await kubectl("wait", "--for=condition=Suspended", "trainjob/by-turns", "--timeout=60s")
    assert await state() == ["Suspended"]
    await suspend("false")
    await kubectl("wait", "--for=jsonpath={.status.jobsStatus[0].active}=1", "trainjob/by-turns", "--timeout=60s")
    assert await state() == ["node"], "no state, but the replicated job that is active"
    go.touch()
    await kubectl("wait", "--for=condition=Complete", "trainjob/by-turns", "--timeout=60s")
    await suspend("true")
    assert await state() == ["Complete"]
    await kubectl("delete", "trainjob", "by-turns")
