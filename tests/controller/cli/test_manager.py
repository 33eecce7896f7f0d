"""The manager as a process: what signals, and losing the lease, do to it."""

import asyncio
import base64
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
from support.commands import Running, eventually, started
from support.kubeconfigs import write_kubeconfig
from support.stack import Stack

from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__
from trainmaster.runtime.yamltext import load_yaml

pytestmark = pytest.mark.nightly

CONFIGURATION = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
webhook: {enabled: false}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "0"}
leaderElection:
  {leaderElect: true, resourceNamespace: default, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


@asynccontextmanager
async def leading(tmp_path: Path, **environment: str) -> AsyncIterator[Running]:
    """Run a manager until it leads, and while the block runs."""
    configuration = tmp_path / "config.yaml"
    configuration.write_text(CONFIGURATION)
    arguments = ("--config", str(configuration), "--kubeconfig", str(next(tmp_path.rglob("kubeconfig"))))
    async with started("manager", *arguments, cwd=tmp_path, **environment) as running:
        await eventually(lambda: said(running, "lease acquired"))
        yield running


def said(running: Running, event: str) -> bool:
    return any(event in line for line in running.err)


def script(directory: Path, text: str) -> str:
    """A file with a program."""
    (directory / "program.py").write_text(text)
    return str(directory / "program.py")


async def lease(stack: Stack) -> JsonObject:
    spec: JsonObject = (await stack.client.get(LEASES, "default", "trainer.kubeflow.org"))["spec"]
    return spec


@pytest.mark.guarantee("K-13", "L-11", "M-2")
async def test_it_says_what_starts_and_stops_in_order_and_gives_the_lease_back(stack: Stack, tmp_path: Path) -> None:
    async with leading(tmp_path) as running:
        first = json.loads(running.err[0])
        running.process.terminate()
        finished = await running.finish()
    assert list(first)[:3] == ["ts", "level", "event"]
    assert (first["event"], first["version"]) == ("starting", __version__)
    assert first["configuration"] == str(tmp_path / "config.yaml")
    assert first["server"] == stack.access.server
    assert str(tmp_path) in first["credentials"]
    assert (first["namespace"], bool(first["pod"])) == ("default", True)
    assert {"torch", "jobset"} <= set(first["plugins"])
    assert first["event_loop"] == ("uvloop" if find_spec("uvloop") else "asyncio")
    assert finished.code == 0, finished.err
    assert (await lease(stack))["holderIdentity"] == ""
    assert '"level": "error"' not in finished.err


async def test_without_uvloop_it_runs_on_the_loop_of_the_standard_library(stack: Stack, tmp_path: Path) -> None:
    """As where the extra is not installed: the same life, signals and lease included."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['uvloop'] = None\n")
    async with leading(tmp_path, PYTHONPATH=str(tmp_path)) as running:
        assert json.loads(running.err[0])["event_loop"] == "asyncio"
        running.process.terminate()
        finished = await running.finish(code=0)
    assert (await lease(stack))["holderIdentity"] == ""
    assert '"level": "error"' not in finished.err


@pytest.mark.guarantee("L-9", "L-10", "L-14")
async def test_a_process_that_was_stopped_for_too_long_ends_with_one_clear_line(stack: Stack, tmp_path: Path) -> None:
    async with leading(tmp_path) as running:
        running.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(4)  # longer than the lease; nothing can be waited for in a stopped process
        running.process.send_signal(signal.SIGCONT)
        finished = await running.finish(code=1)
    errors = [line for line in finished.err.splitlines() if '"level": "error"' in line or '"level": "fatal"' in line]
    assert len(errors) == 1, finished.err
    assert "lease lost" in errors[0]
    assert (await lease(stack))["holderIdentity"] != "", "a lost lease is not released"


IN_A_POD = """
import functools, sys
from pathlib import Path
from trainmaster.controller.cli import main, manager

manager.load_config = functools.partial(manager.load_config, service_account=Path("serviceaccount"))
code = main(["manager", "--config", "config.yaml"])
print(*sorted({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


async def test_a_manager_in_a_pod_loads_nothing_for_what_is_switched_off(stack: Stack, tmp_path: Path) -> None:
    """It would take memory for as long as it runs: what reads kubeconfigs 37 MB, what makes certificates 8 MB."""
    (tmp_path / "config.yaml").write_text(CONFIGURATION)
    account = tmp_path / "serviceaccount"
    account.mkdir()
    kubeconfig = load_yaml(next(tmp_path.rglob("kubeconfig")).read_bytes())
    authority = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
    (account / "ca.crt").write_bytes(base64.b64decode(authority))
    (account / "token").write_text((await stack.access.headers())["Authorization"].removeprefix("Bearer "))
    address = urlsplit(stack.access.server)
    where = {"KUBERNETES_SERVICE_HOST": str(address.hostname), "KUBERNETES_SERVICE_PORT": str(address.port)}
    async with started(cwd=tmp_path, script=script(tmp_path, IN_A_POD), **where) as running:
        await eventually(lambda: said(running, "lease acquired"))
        running.process.terminate()
        finished = await running.finish(code=0)
    loaded = {*finished.out.split()}
    assert {"aiohttp", "trainmaster"} <= loaded
    assert not loaded & {"cryptography", "kubernetes_asyncio", "opentelemetry", "psycopg", "sqlite3"}


HANGING = """
import asyncio
from trainmaster.controller.cli.manager import _stopping_on_signals
from trainmaster.controller.manager import process

async def main():
    stop = asyncio.Event()
    with _stopping_on_signals(stop):
        print("started", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        await asyncio.Event().wait()

process.run_event_loop(main())
"""


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with started(cwd=tmp_path, script=script(tmp_path, HANGING)) as running:
        await eventually(lambda: "started\n" in running.out)
        running.process.terminate()
        await eventually(lambda: "stopping\n" in running.out)
        running.process.send_signal(signal.SIGINT)
        await running.finish(code=-signal.SIGINT)


IMPATIENT = """
import sys
from trainmaster.controller.cli import main
from trainmaster.controller.configuration import reload

reload.INTERVAL = 0.05
sys.exit(main(["manager", "--config", "config.yaml", "--kubeconfig", "kubeconfig", *sys.argv[1:]]))
"""


async def test_the_log_follows_the_configuration_file_while_the_manager_runs(tmp_path: Path) -> None:
    """Also while the API server is away. A flag wins over the file."""
    file, program = tmp_path / "config.yaml", script(tmp_path, IMPATIENT)
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")

    async def logged(running: Running, **fields: str) -> JsonObject:
        """The first line of the log with these fields, when it is there."""

        def found() -> JsonObject | None:
            lines = map(orjson.loads, list(running.err))
            return next((line for line in lines if fields.items() <= line.items()), None)

        line: JsonObject = await eventually(found)
        return line

    for flags in ((), ("--zap-log-level=info",)):
        file.write_text(CONFIGURATION)
        async with started(*flags, cwd=tmp_path, script=program) as running:
            await logged(running, event="starting")
            file.write_text(f"{CONFIGURATION}logging: {{verbosity: 2}}\n")
            if flags:
                warning = await logged(running, event="an option has no effect, or an unwanted one")
                assert warning["reason"] == "no effect: --zap-log-level or --zap-devel is given"
            else:
                told = await logged(running, event="the configuration file is in effect")
                assert told["reloaded"] == ["logging.verbosity"]
                await logged(running, level="debug")
