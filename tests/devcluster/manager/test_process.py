"""The manager inside of `trainmaster cluster`: what is told when it does not run, and what being ready means."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import TIMEOUT, client_of, eventually, processes_of, started, trainmaster

from trainmaster.controller.kube.rest.errors import ApiError
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.manager import parent_death
from trainmaster.devcluster.manager.process import _failures
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

WITHOUT_PODS = ("--without", "kubelet")
WRONG = {"plugins": {"colour": "red"}}
COMPLAINT = "plugins.colour: unknown field"
JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "early"},
    "spec": {"runtimeRef": {"name": "missing"}},
}

_CONTAINER = {"name": "node", "image": "none", "command": ["true"]}
_TEMPLATE = {
    "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
    "spec": {"template": {"spec": {"containers": [_CONTAINER]}}},
}
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "shell"},
    "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": _TEMPLATE}]}}},
}
NEVER_ENDING = JOB | {"spec": {"runtimeRef": {"name": "shell"}}}
"""No pod of it ever runs: the cluster of these tests has no kubelet."""


def configuration(directory: Path, **content: Any) -> str:
    path = directory / "manager-of-the-test.yaml"
    head: JsonObject = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
    path.write_text(yaml.safe_dump(head | content))
    return path.name


async def refusal_of(home: Path, job: JsonObject) -> str:
    """Create a TrainJob; returns why that is refused."""
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        with pytest.raises(ApiError) as refused:
            await client.create(TRAINJOBS, job, namespace="default")
    return refused.value.message


async def test_in_the_background_a_manager_that_cannot_run_fails_the_start(home: Path) -> None:
    """A script that goes on after `up` would wait for ever; what is left running would be in the way of the next."""
    file = configuration(home, **WRONG)
    up = await trainmaster("cluster", "up", "--detach", *WITHOUT_PODS, "--config", file, cwd=home)
    assert up.code == 1
    assert "Cluster is ready" not in up.out
    assert "the manager of the cluster does not run" in up.err
    assert COMPLAINT in up.err
    assert str(home / ".trainmaster" / "manager.log") in up.err
    assert f"its configuration comes from {home / file}" in up.err
    status = await trainmaster("cluster", "status", cwd=home)
    assert (status.code, "not running" in status.out) == (3, True)

    # Nothing keeps the next one from starting.
    up = await trainmaster("cluster", "up", "--detach", *WITHOUT_PODS, cwd=home)
    assert (up.code, up.err) == (0, "")
    assert "Cluster is ready" in up.out


async def test_in_the_foreground_it_runs_on_and_says_so(home: Path) -> None:
    """The API server is of use without it, and whoever sits before it can read."""
    file = configuration(home, **WRONG)
    async with started("cluster", "up", *WITHOUT_PODS, "--config", file, cwd=home) as cluster:
        await eventually(lambda: "Press Ctrl-C" in "".join(cluster.out))
        said = "".join(cluster.err)
        assert "Cluster is ready" not in "".join(cluster.out)
        assert "the manager of the cluster does not run" in said
        assert COMPLAINT in said
        assert str(home / ".trainmaster" / "manager.log") in said

        status = await trainmaster("cluster", "status", cwd=home)
        assert status.code == 1
        assert re.search(r"manager: +crashing \(it ended [2-9] times, the last time with exit code 1\)", status.out)
        assert re.search(rf"last error: +.*{COMPLAINT}", status.out)
        assert re.search(rf"log: +{home / '.trainmaster' / 'manager.log'}", status.out)

        job = home / "job.yaml"
        job.write_text(yaml.safe_dump(JOB))
        for cluster_of in ((), ("--kubeconfig", ".trainmaster/kubeconfig")):
            run = await trainmaster("run", *cluster_of, job.name, cwd=home)
            assert run.code == 1
            assert "the manager of this embedded cluster does not run" in run.err
            assert COMPLAINT in run.err
            assert "created" not in run.err

        cluster.process.send_signal(signal.SIGTERM)
        assert (await cluster.finish()).code == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
async def test_a_manager_that_crashes_later_is_told_of_and_so_is_its_return(home: Path) -> None:
    broken = home / "broken"
    plugin = home / "plugin"
    plugin.mkdir()
    (plugin / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"if os.path.exists({str(broken)!r}) and 'manager' in sys.orig_argv:\n"
        "    raise SystemExit('the plug is out')\n"
    )
    command = ("cluster", "up", *WITHOUT_PODS)
    async with started(*command, cwd=home, PYTHONPATH=str(plugin)) as cluster:
        await eventually(lambda: "Press Ctrl-C" in "".join(cluster.out))
        assert "Cluster is ready" in "".join(cluster.out)
        (home / "job.yaml").write_text(yaml.safe_dump_all([RUNTIME, NEVER_ENDING]))
        async with started("run", "job.yaml", cwd=home) as run:
            await eventually(lambda: any(line.endswith(" created\n") for line in run.err))
            broken.touch()
            (manager,) = processes_of(f"--kubeconfig\0{home / '.trainmaster' / 'kubeconfig'}")
            os.kill(manager, signal.SIGKILL)
            await eventually(lambda: "the plug is out" in "".join(cluster.err))
            assert (await trainmaster("cluster", "status", cwd=home)).code == 1
            await eventually(lambda: any("nothing becomes of TrainJobs" in line for line in run.err))
            broken.unlink()
            await eventually(lambda: "the manager of the cluster runs again" in "".join(cluster.err))
            assert (await trainmaster("cluster", "status", cwd=home)).code == 0
            await eventually(lambda: any("embedded cluster runs again" in line for line in run.err))


async def test_status_does_not_call_a_cluster_ready_before_its_webhooks_are(home: Path) -> None:
    async with started("cluster", "up", *WITHOUT_PODS, cwd=home) as cluster:
        while (await trainmaster("cluster", "status", cwd=home)).code != 0:
            assert cluster.process.returncode is None
        assert "must be created before the TrainJob is created" in await refusal_of(home, JOB)


@pytest.mark.parametrize(
    "content",
    [
        {"webhook": {"enabled": False}},
        {"webhook": {"enabled": False}, "health": {"healthProbeBindAddress": "0"}},
        {"health": {"readinessEndpointName": "prepared"}},
        {"certManagement": {"enable": True, "webhookServiceName": "kubeflow-trainer-controller-manager"}},
    ],
)
async def test_a_manager_is_ready_however_it_is_configured(home: Path, content: JsonObject) -> None:
    up = await trainmaster(
        "cluster", "up", "--detach", *WITHOUT_PODS, "--config", configuration(home, **content), cwd=home
    )
    assert (up.code, up.err) == (0, "")
    assert "Cluster is ready" in up.out


async def test_a_manager_that_only_waits_is_told_of_and_given_up_on_ctrl_c(home: Path) -> None:
    """It has no certificate, so that it is never ready; nobody has to wait until that counts as a failure."""
    (home / "empty").mkdir()
    file = configuration(home, webhook={"certDir": str(home / "empty")})
    assert "manager:" not in (await trainmaster("cluster", "status", cwd=home)).out
    waits = re.compile(r"^manager: +starting\n  waits for: .+\n  log: +.*manager\.log$", re.MULTILINE)
    async with started("cluster", "up", *WITHOUT_PODS, "--config", file, cwd=home) as cluster:
        log = home / ".trainmaster" / "manager.log"
        await eventually(lambda: log.exists() and "there is no certificate" in log.read_text())
        status = await trainmaster("cluster", "status", cwd=home)
        while not waits.search(status.out):
            status = await trainmaster("cluster", "status", cwd=home)
        assert (status.code, status.err) == (3, "")
        assert re.search(r"^cluster: +starting \(pid \d+\)", status.out)
        cluster.process.send_signal(signal.SIGINT)
        done = await cluster.finish()
    assert done.code == 0
    assert "Cluster is ready" not in done.out


async def test_a_manager_that_is_only_starting_is_waited_for(home: Path) -> None:
    """A TrainJob that is submitted while the manager starts again is worked on as if nothing had been."""
    await trainmaster("cluster", "up", "--detach", *WITHOUT_PODS, cwd=home)
    marker = f"--kubeconfig\0{home / '.trainmaster' / 'kubeconfig'}"
    (manager,) = processes_of(marker)
    (home / "job.yaml").write_text(yaml.safe_dump(JOB))
    os.kill(manager, signal.SIGKILL)
    await eventually(lambda: manager not in processes_of(marker))
    run = await trainmaster("run", "job.yaml", cwd=home)
    assert "failed calling webhook" not in run.err
    assert 'ClusterTrainingRuntime "missing" does not exist' in run.err


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("[+]ping ok\n[-]informer-sync failed: waiting for x\n[-]webhook failed: y\nreadyz check failed\n",
         "informer-sync failed: waiting for x; webhook failed: y"),
        ("Bad Gateway\n", "Bad Gateway"),
    ],
)  # fmt: skip
def test_of_a_readiness_probe_is_told_what_has_failed(answer: str, message: str) -> None:
    assert _failures(answer) == message


# It waits for a signal, not for its input: the end of that is what it is to be killed for, and it could end by itself
# before.
PROGRAM = """import signal, sys
print("runs", __name__, *sys.argv[1:], flush=True)
signal.pause()
"""


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a module of a directory so that it ends with its starter."""
    return subprocess.Popen(
        [sys.executable, parent_death.__file__, *arguments],
        env={"PYTHONPATH": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def held(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that is to run a module, which says so, as soon as it is let."""
    (tmp_path / "slow.py").write_text("print('imported', flush=True)\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return start(tmp_path, "--hold", "slow", "program", "a", "b")


def test_it_is_imported_at_once_and_runs_when_it_is_let(held: subprocess.Popen[str]) -> None:
    with held:
        assert held.stdout is not None
        assert held.stdin is not None
        assert held.stdout.readline() == "imported\n"
        held.stdin.write("\n")
        held.stdin.flush()
        assert held.stdout.readline() == "runs __main__ a b\n"
        held.stdin.close()
        assert held.wait(TIMEOUT) == -signal.SIGKILL


def test_it_never_runs_when_its_starter_ends_before(held: subprocess.Popen[str]) -> None:
    with held:
        assert held.stdout is not None
        assert held.stdin is not None
        assert held.stdout.readline() == "imported\n"
        held.stdin.close()
        assert held.wait(TIMEOUT) == -signal.SIGKILL
        assert held.stdout.read() == ""


def test_a_program_that_is_not_held_runs_at_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint('runs', *sys.argv[1:], flush=True)\n")
    with start(tmp_path, "program", "a") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs a\n"
        assert process.wait(TIMEOUT) == 0


def test_what_cannot_be_imported_is_left_to_the_program(tmp_path: Path) -> None:
    """That fails in its own way, whose last line is told as the reason."""
    (tmp_path / "program.py").write_text("import nothing_of_this_name\n")
    with start(tmp_path, "--hold", "nothing_of_this_name", "program") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("\n")
        process.stdin.flush()
        said = process.stderr.read()
        assert process.wait(TIMEOUT) == 1
    assert said.count("Traceback") == 1
    assert said.endswith("ModuleNotFoundError: No module named 'nothing_of_this_name'\n")
