"""A manager on an API server, with a plugin that blocks for some TrainJobs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.distributions import Distributions
from support.installations import create_namespace
from support.objects import runtime_object, trainjob_object
from support.stack import QUIET, Stack, manager
from support.training import conditions_of, until
from support.vandal import TIME, faulty, sleep, sleepers

from trainmaster.controller.cli.plugins.installed import plugin_notices, plugin_problems
from trainmaster.controller.configuration import Health, Plugins, complete, parse_configuration
from trainmaster.controller.plugins.guard import guard_of
from trainmaster.controller.plugins.loading import load
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.framework.calls import Calls
from trainmaster.runtime.framework.descriptor import is_own
from trainmaster.runtime.jsontree import JsonObject

HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}


@pytest.fixture
async def team(stack: Stack) -> Stack:
    await create_namespace(stack.client, "team")
    return stack


async def conditions_once_it_is_built(stack: Stack, name: str) -> dict[str, JsonObject]:
    async def ask() -> bool:
        return name in [each["metadata"]["name"] for each in (await stack.client.list(JOBSETS, "team"))["items"]]

    await until(ask)
    return conditions_of(await stack.client.get(TRAINJOBS, "team", name))


@pytest.fixture(autouse=True)
def woken() -> Iterator[None]:
    with sleepers():
        yield


async def test_the_configuration_says_how_plugins_are_contained(team: Stack) -> None:
    stack = team
    settings = Plugins.model_validate(
        {"timeLimit": "200ms", "failurePolicy": {"acme": "skip"}, "quarantine": {"failures": 1, "period": "1h"}}
    )
    plugins = [*load_plugins(), faulty("build", sleep, jobs=("bad",))]
    guard = guard_of(settings, now=TIME)
    framework = Framework(plugins, guard=guard, failure_policies=settings.failure_policy)
    port = free_port()
    configuration = QUIET.model_copy(update={"health": Health(health_probe_bind_address=f"127.0.0.1:{port}")})
    detailed = f"http://127.0.0.1:{port}/readyz?verbose"
    async with (
        manager(stack.access, framework=framework, configuration=configuration),
        aiohttp.ClientSession() as session,
    ):
        await stack.client.create(TRAINING_RUNTIMES, _new(runtime_object()))
        await stack.client.create(TRAINJOBS, _new(trainjob_object("good")))
        assert await conditions_once_it_is_built(stack, "good") == {}
        await stack.client.create(TRAINJOBS, _new(trainjob_object("bad")))
        skipped = (await conditions_once_it_is_built(stack, "bad"))["PluginSkipped"]
        assert skipped["message"].startswith("this TrainJob goes on without acme: plugin acme ")
        assert "took longer than 0.2 s in build" in skipped["message"]
        async with session.get(detailed) as response:
            assert response.status == 200
    with pytest.raises(PluginFailed, match=r"after a failure in build .*; it is tried again every 3600 s$"):
        Calls(guard=guard).run("acme", "build", list)
    assert guard.detail() == "acme is quarantined after a failure in build"


def _new(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {key: obj["metadata"][key] for key in ("name", "namespace")}}


MODULE = """
from pydantic import BaseModel
from trainmaster.runtime.framework.models import SecretFile

class Options(BaseModel):
    token: SecretFile

class Acme:
    name = "acme"
    options_model = Options
    def __init__(self, options): pass
    def build(self): return []
"""


def complaints(**plugins: Any) -> tuple[list[str], list[str]]:
    """What `config validate` says of a section: problems and notices."""
    effective = complete(parse_configuration({**HEAD, "plugins": plugins}))
    return [str(each) for each in plugin_problems(effective)], [str(each) for each in plugin_notices(effective)]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installing = Distributions(tmp_path, monkeypatch)
    installing.install("acme-plugins", {"acme": "Acme"}, module=MODULE)
    installing.install("broken-plugins", {"broken": "Broken"}, module="import no_such_module\n")
    monkeypatch.delitem(sys.modules, "acme_plugins", raising=False)


@pytest.mark.usefixtures("installed")
def test_what_is_wrong_with_options_has_its_place_in_the_file() -> None:
    problems, _ = complaints(enabled=["acme"], options={"acme": {"token": "hunter2", "colour": 1}})
    assert problems == [
        "plugins.options.acme.colour: unknown field (there are: token)",
        "plugins.options.acme.token: must be the absolute path of a file that holds the secret",
    ]


@pytest.mark.usefixtures("installed")
def test_what_does_not_load_is_a_problem_or_a_notice(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2\n")
    options = {"acme": {"token": str(secret)}}
    fault = (
        "plugins: plugin 'broken' (broken_plugins:Broken, from broken-plugins) cannot be loaded: ModuleNotFoundError"
    )
    problems, _ = complaints(options=options)
    assert [text.partition(": No module")[0] for text in problems] == [fault]
    problems, notices = complaints(options=options, onLoadError="skip")
    assert problems == []
    assert notices[0].startswith(fault)
    assert notices[0].endswith("; the manager runs without it, as plugins.onLoadError says")
    assert complaints(options=options, enabled=["acme"]) == ([], [])
    settings = Plugins.model_validate({"onLoadError": "skip", "options": options})
    loaded = load(settings, options=settings.options, features=())
    others = {each.name for each in loaded.plugins if not is_own(each)}
    assert (others, set(loaded.failed)) == ({"acme"}, {"broken"})


@pytest.mark.usefixtures("installed")
def test_names_in_the_section_that_nothing_installed_has_have_their_places() -> None:
    problems, notices = complaints(enabled=["jobst"], failurePolicy={"acmee": "skip"}, options={"acme": {}})
    assert problems == [
        'plugins.enabled[0]: no such plugin is installed here (did you mean "jobset"?)',
        'plugins.failurePolicy.acmee: no such plugin is installed here (did you mean "acme"?)',
    ]
    assert notices == ["plugins.options.acme: no effect: plugins.enabled of the configuration does not name it"]
