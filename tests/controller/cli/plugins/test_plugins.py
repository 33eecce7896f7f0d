"""`trainmaster plugins list`, `show` and `check`: what a controller would load, or why not; and `plugins new`."""

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from support.commands import Ran
from support.debian import read_dockerfile
from support.distributions import Distributions
from support.vandal import raise_key_error

from trainmaster.controller.cli import root
from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.server.healthz import Healthz
from trainmaster.runtime.framework.calls import Calls, PluginFailed
from trainmaster.runtime.version import __version__

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"

COST_LABELS = '''
    from pydantic import BaseModel, Field
    from trainmaster.runtime.listers import Watch

    class Options(BaseModel):
        centre: str = Field(description="Who pays.")
        share: int = Field(1, ge=1)

    class Config(BaseModel):
        stages: list[str]

    class CostLabels:
        """Labels pods with who pays.

        And nothing else.
        """

        name = "cost-labels"
        maturity = "beta"
        options_model = Options
        pod_group_policy_config = Config
        after = ("torch",)
        replaces = ("plainml",)
        failure_policy = "skip"

        def __init__(self, options):
            pass

        def watch_extension(self):
            return [Watch("kai.example/v1", "Queue", "queues", label_selector="a=b", optional=True)]

        def build(self):
            return ()
'''
BROKEN = "raise SystemExit('no licence')"


@pytest.fixture
def distributions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distributions:
    directory = tmp_path / "site-packages"
    directory.mkdir()
    return Distributions(directory, monkeypatch)


def configuration(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}plugins:\n  {text}\n")
    return str(path)


def listed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    assert root.main(["plugins", "list", "-o", "json", *arguments]) == code
    return {each["name"]: each for each in json.loads(capsys.readouterr().out)}


def test_the_list_has_what_is_installed_in_the_order_in_which_it_runs(ran: Ran) -> None:
    out, err = ran("plugins", "list")
    head, *lines = out.splitlines()
    assert head.split("  ")[0] == "NAME"
    by_name = {line.split()[0]: line.split() for line in lines}
    assert by_name["torch"][1] == "trainmaster"
    assert by_name["torch"][3:] == ["stable", "enforce_ml_policy,validate", by_name["torch"][5], "loaded"]
    assert int(by_name["jobset"][5]) == 12  # its priority is the lowest
    assert by_name["trainjobstatus"][5:] == ["-", "gate", "closed"]
    assert "trainmaster: trainjobstatus is gate closed: the feature gate TrainJobStatus is off" in err


def test_the_list_says_why_a_plugin_is_not_loaded(
    distributions: Distributions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributions.install("acme-broken", {"broken": "Broken"}, module=BROKEN)
    distributions.install("acme-costs", {"cost-labels": "CostLabels"}, module=COST_LABELS)
    config = configuration(tmp_path, "{disabled: [volcano], options: {cost-labels: {centre: robotics}}}")
    plugins = listed(capsys, "--config", config, code=1)
    assert plugins["cost-labels"] == {
        "name": "cost-labels",
        "distribution": "acme-costs",
        "version": "1.2",
        "class": "acme_costs:CostLabels",
        "state": "loaded",
        "reason": "",
        "order": plugins["torch"]["order"] + 1,
        "apiVersion": "1.0",
        "maturity": "beta",
        "extensionPoints": ["build", "watch_extension"],
        "policies": ["podGroupPolicy.custom"],
    }
    assert plugins["volcano"]["reason"] == "plugins.disabled of the configuration names it"
    others = configuration(tmp_path, "{enabled: [cost-labels], options: {cost-labels: {centre: robotics}}}")
    enabled = listed(capsys, "--config", others)
    assert {enabled[name]["state"] for name in ("torch", "volcano", "cost-labels")} == {"loaded"}
    assert enabled["broken"]["reason"] == "plugins.enabled of the configuration does not name it"
    assert plugins["broken"]["state"] == "broken"
    assert plugins["broken"]["reason"] == (
        "plugin 'broken' (acme_broken:Broken, from acme-broken) cannot be loaded: SystemExit: no licence"
    )


def test_one_plugin_is_told_in_full(distributions: Distributions, tmp_path: Path, ran: Ran) -> None:
    distributions.install("acme-costs", {"cost-labels": "CostLabels"}, module=COST_LABELS)
    config = configuration(tmp_path, "{options: {cost-labels: {centre: robotics}}}")
    told = json.loads(ran("plugins", "show", "cost-labels", "--config", config, "-o", "json").out)
    assert told["about"] == "Labels pods with who pays."
    assert told["serves"] == "TrainJobs whose runtime has podGroupPolicy.custom"
    assert (told["after"], told["replaces"], told["failurePolicy"]) == (["torch"], ["plainml"], "skip")
    assert told["options"] == {
        "centre": {"description": "Who pays.", "type": "string", "default": "required"},
        "share": {"minimum": 1, "type": "integer", "default": 1},
    }
    assert list(told["customPolicies"]) == ["podGroupPolicy.custom.config"]
    assert told["watches"] == [
        {
            "apiVersion": "kai.example/v1",
            "kind": "Queue",
            "labelSelector": "a=b",
            "optional": True,
            "rights": ["list", "watch"],
        }
    ]
    assert (
        "\nserves: TrainJobs whose runtime has podGroupPolicy.custom\n"
        in ran("plugins", "show", "cost-labels", "--config", config).out
    )


def test_a_name_that_nobody_offers_is_told_with_what_is_meant(ran: Ran) -> None:
    for action in ("show", "check"):
        assert (
            ran("plugins", action, "jobst", code=2).err
            == "trainmaster: no plugin 'jobst' is installed (did you mean \"jobset\"?)\n"
        )


def test_the_check_tells_what_is_wrong(distributions: Distributions, tmp_path: Path, ran: Ran) -> None:
    distributions.install("acme-broken", {"broken": "Broken"}, module=BROKEN)
    distributions.install("acme-costs", {"cost-labels": "CostLabels"}, module=COST_LABELS)
    config = configuration(tmp_path, "{options: {cost-labels: {center: robotics, share: 0}}}")
    out, err = ran("plugins", "check", "--config", config, code=1)
    assert "plugins.options.cost-labels.share: Input should be greater than or equal to 1, got 0" in out
    assert 'plugins.options.cost-labels.center: unknown field (did you mean "centre"?)' in out
    assert "plugins.options.cost-labels.centre: is required" in out
    assert "SystemExit: no licence" in out
    assert err == "trainmaster: 4 errors, 0 warnings\n"
    report = json.loads(ran("plugins", "check", "cost-labels", "--config", config, "-o", "json", code=1).out)
    assert sorted(each["path"] for each in report["problems"]) == [
        f"plugins.options.cost-labels.{field}" for field in ("center", "centre", "share")
    ]
    assert root.main(["plugins", "check", "torch", "--config", config]) == 0


def test_its_author_is_shown_where_it_failed(distributions: Distributions, ran: Ran) -> None:
    distributions.install("acme-broken", {"broken": "Broken"}, module=BROKEN)
    for action in ("list", "show broken", "check", "check broken"):
        assert "Traceback" not in ran("plugins", *action.split(), code=1).err
        assert 'acme_broken.py", line 1, in <module>\n' in ran("plugins", *action.split(), "--traceback", code=1).err


FAILING = """
    class Failing:
        name = "failing"

        def enforce_pod_spec(self, info, job):
            info.labels["region"] = job.metadata.labels["region"]
"""


def test_where_a_hook_failed_is_shown_to_its_author(distributions: Distributions, tmp_path: Path, ran: Ran) -> None:
    distributions.install("acme-failing", {"failing": "Failing"}, module=FAILING)
    (tmp_path / "job.yaml").write_text(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: demo}\n"
        "spec: {runtimeRef: {name: torch-distributed}}\n"
    )
    for command in ("render", "validate"):
        err = "".join(ran(command, "-f", str(tmp_path / "job.yaml"), code=1))
        assert "plugin failing failed in enforce_pod_spec: KeyError: 'region'" in err
        assert "Traceback" not in err
        err = ran(command, "-f", str(tmp_path / "job.yaml"), "--traceback", code=1).err
        assert err.count("Traceback") == 1
        assert 'acme_failing.py", line 6, in enforce_pod_spec\n' in err


@pytest.fixture
async def probes() -> AsyncIterator[str]:
    """A manager that does not call two of its plugins."""
    healthz = Healthz()
    guard = PluginGuard(time_limit=1.0, failures=1, period=60.0)
    for plugin in ("torch", "volcano"):
        with pytest.raises(PluginFailed):
            Calls(guard=guard).run(plugin, "build", raise_key_error, job="uid")
    healthz.add_readyz_check("plugins", lambda: None, note=guard.detail)
    server = TestServer(healthz.application())
    await server.start_server()
    yield str(server.make_url(""))
    await server.close()


async def test_the_list_knows_what_a_manager_does_not_call(probes: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(root.main, ["plugins", "list", "-o", "json", "--manager", probes]) == 0
    plugins = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert (plugins["torch"]["state"], plugins["torch"]["reason"]) == ("quarantined", "after a failure in build")
    assert plugins["volcano"]["state"] == "quarantined"
    assert plugins["jax"]["state"] == "loaded"


def test_a_manager_that_cannot_be_asked_is_told(ran: Ran) -> None:
    told = r"^trainmaster: (the manager cannot be asked at|--manager .* is no address)"
    for address in ("http://127.0.0.1:1", "127.0.0.1:8081", "ftp://127.0.0.1"):
        assert re.search(told, ran("plugins", "list", "--manager", address, code=2).err)


def test_the_package_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert root.main(["plugins", "new", "cost-labels"]) == 0
    package = tmp_path / "cost-labels"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {"trainmaster.plugins": {"cost-labels": "cost_labels:CostLabels"}}
    for path in package.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    assert not [path for path in package.rglob("*") if "__module__" in path.name or path.suffix == ".in"]


def test_its_image_is_made_as_our_image_allows(tmp_path: Path) -> None:
    package = tmp_path / "cost-labels"
    assert root.main(["plugins", "new", "cost-labels", "--directory", str(package)]) == 0
    assert (package / "Dockerfile").read_text().splitlines()[1:3] == [
        f"ARG IMAGE=trainmaster:{__version__}",
        "FROM ${IMAGE}",
    ]
    # Ours has a user that cannot write, and its `python` has no pip.
    *_, become_root, _, install, back = (package / "Dockerfile").read_text().splitlines()
    assert become_root == "USER root"
    assert install.startswith('RUN ["pip", "install"')
    assert back == f"USER {read_dockerfile().user}"


def test_what_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    new, none = str(tmp_path / "new"), "cannot be the name of a plugin: use lower-case letters"
    for arguments, told in (
        *((["--directory", new, "--", name], none) for name in ("Cost", "cost_labels", "-cost", "cost-", "class", "")),
        *((["--directory", new, "--", name], none) for name in ("x" * 41, "../cost")),
        (["torch", "--directory", new], "a plugin 'torch' is installed already"),
        (["cost-labels", "--directory", str(tmp_path)], "exists and is not empty; choose another --directory"),
        (["cost-labels", "--directory", f"{tmp_path}/mine.txt/new"], f"cannot write {tmp_path}/mine.txt/new"),
    ):
        assert root.main(["plugins", "new", *arguments]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("trainmaster: ")
        assert told in printed
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
