"""The manager as a process, with a plugin that does not load and one whose options change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
from support.commands import Running, eventually, started
from support.distributions import Distributions
from support.kubeconfigs import write_kubeconfig

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


@asynccontextmanager
async def running(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """Run a manager that has two plugins beside ours, and a cluster that is not there."""
    installing = Distributions(directory, monkeypatch)
    installing.install("acme-plugins", {"acme": "Acme"}, module=ACME)
    installing.install("broken-plugins", {"broken": "Broken"}, module="import no_such_module\n")
    write_kubeconfig(directory / "kubeconfig", "http://127.0.0.1:1")
    (directory / "manager.py").write_text(IMPATIENT)
    async with started(cwd=directory, script="manager.py", PYTHONPATH=str(directory)) as manager:
        yield manager


async def logged(manager: Running, event: str) -> JsonObject:
    """Wait for an event in the log, and return its line."""
    line: JsonObject = await eventually(
        lambda: next((line for line in map(orjson.loads, manager.err) if line["event"] == event), None)
    )
    return line


async def test_the_manager_runs_without_a_plugin_that_does_not_load_and_follows_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    file = tmp_path / "config.yaml"
    file.write_text(CONFIGURATION.format(port=port, on_load_error="skip", colour="blue"))
    async with running(tmp_path, monkeypatch) as manager:
        told = await logged(manager, "a plugin did not load and is left out")
        assert (told["level"], told["plugin"]) == ("error", "broken")
        assert "plugin 'broken' (broken_plugins:Broken, from broken-plugins) cannot be loaded" in told["error"]
        assert 'broken_plugins.py", line 1, in <module>' in told["stacktrace"]
        misspelt = await logged(manager, "a plugin names another one that is not installed")
        assert misspelt["reason"].startswith("acme has 'jobsett' in its `after`")
        assert "acme" in (await logged(manager, "starting"))["plugins"]
        file.write_text(CONFIGURATION.format(port=port, on_load_error="skip", colour="green"))
        assert (await logged(manager, "a plugin has new options"))["plugin"] == "acme"
        assert (await logged(manager, "the configuration file is in effect"))["reloaded"] == ["plugins.options.acme"]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/readyz?verbose") as response:
                assert "[+]plugins ok: broken did not load\n" in await response.text()
            async with session.get(f"http://127.0.0.1:{port}/readyz/plugins") as response:
                assert response.status == 200


async def test_otherwise_it_ends_with_the_distribution_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(CONFIGURATION.format(port=free_port(), on_load_error="fail", colour="blue"))
    async with running(tmp_path, monkeypatch) as manager:
        told = await logged(manager, "the manager cannot run")
        assert told["error"] == (
            "plugin 'broken' (broken_plugins:Broken, from broken-plugins) cannot be loaded: ModuleNotFoundError: No "
            "module named 'no_such_module'; to start without it, add 'broken' to plugins.disabled of the "
            "configuration file, or set plugins.onLoadError to skip"
        )
        assert 'broken_plugins.py", line 1, in <module>' in told["stacktrace"]
        await manager.finish(code=1)
