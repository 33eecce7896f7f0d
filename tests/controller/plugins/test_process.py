"""The manager as a process, with a plugin that does not load and one whose options change."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
from support.distributions import Distributions

from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

CONFIGURATION = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
webhook: {{enabled: false}}
metrics: {{bindAddress: "0"}}
health: {{healthProbeBindAddress: "127.0.0.1:{port}"}}
plugins: {{onLoadError: {on_load_error}, options: {{acme: {{colour: {colour}}}}}}}
"""

ACME = """
from pydantic import BaseModel

class Options(BaseModel):
    colour: str

class Acme:
    name = "acme"
    options_model = Options
    reloads_options = True
    after = ("jobsett",)

    def __init__(self, options):
        self._options = options

    def build(self):
        return []
"""

IMPATIENT = """
import sys
from trainmaster.controller.configuration import reload
from trainmaster.controller.cli.root import main
reload.INTERVAL = 0.05
sys.exit(main(["manager", "--config", "config.yaml", "--kubeconfig", "kubeconfig", "--zap-encoder=json"]))
"""

NOWHERE = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


class Manager:
    """A manager, and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: asyncio.Queue[JsonObject] = asyncio.Queue()

    async def follow(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            await self._lines.put(orjson.loads(line))

    async def until(self, event: str) -> JsonObject:
        async with asyncio.timeout(60):
            while (line := await self._lines.get())["event"] != event:
                pass
        return line

    async def end(self) -> int:
        async with asyncio.timeout(60):
            return await self._process.wait()


@asynccontextmanager
async def running(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Manager]:
    installing = Distributions(directory, monkeypatch)
    installing.install("acme-plugins", {"acme": "Acme"}, module=ACME)
    installing.install("broken-plugins", {"broken": "Broken"}, module="import no_such_module\n")
    (directory / "kubeconfig").write_text(NOWHERE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IMPATIENT),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory)},
        stderr=asyncio.subprocess.PIPE,
    )
    manager = Manager(process)
    following = asyncio.create_task(manager.follow())
    try:
        yield manager
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await following


async def test_the_manager_runs_without_a_plugin_that_does_not_load_and_follows_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION.format(port=port, on_load_error="skip", colour="blue"))
    async with running(tmp_path, monkeypatch) as manager:
        told = await manager.until("a plugin did not load and is left out")
        assert (told["level"], told["plugin"]) == ("error", "broken")
        assert "plugin 'broken' (broken_plugins:Broken, from broken-plugins) cannot be loaded" in told["error"]
        assert 'broken_plugins.py", line 1, in <module>' in told["stacktrace"]
        misspelt = await manager.until("a plugin names another one that is not installed")
        assert misspelt["reason"].startswith("acme has 'jobsett' in its `after`")
        assert "acme" in (await manager.until("starting"))["plugins"]
        file.write_text(CONFIGURATION.format(port=port, on_load_error="skip", colour="green"))
        assert (await manager.until("a plugin has new options"))["plugin"] == "acme"
        assert (await manager.until("the configuration file is in effect"))["reloaded"] == ["plugins.options.acme"]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/readyz?verbose") as response:
                assert "[+]plugins ok: broken did not load\n" in await response.text()
            async with session.get(f"http://127.0.0.1:{port}/readyz/plugins") as response:
                assert response.status == 200


async def test_otherwise_it_ends_and_says_which_distribution_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIGURATION.format(port=free_port(), on_load_error="fail", colour="blue"))
    async with running(tmp_path, monkeypatch) as manager:
        told = await manager.until("the manager cannot run")
        assert told["error"] == (
            "plugin 'broken' (broken_plugins:Broken, from broken-plugins) cannot be loaded: ModuleNotFoundError: No "
            "module named 'no_such_module'; to start without it, add 'broken' to plugins.disabled of the "
            "configuration file, or set plugins.onLoadError to skip"
        )
        assert 'broken_plugins.py", line 1, in <module>' in told["stacktrace"]
        assert await manager.end() == 1
