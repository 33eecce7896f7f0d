"""Options of plugins that change while the manager runs."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs
from support.objects import runtime, trainjob
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Configuration, load_configuration
from trainmaster.controller.configuration.reload import ConfigurationReloader
from trainmaster.controller.manager.plugin_options import PluginOptions
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.framework.loader import load_plugins
from trainmaster.runtime.framework.models import SecretFile
from trainmaster.runtime.listers import NO_LISTERS, Watch
from trainmaster.runtime.resolver import new_info, resolve

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"


class PainterOptions(BaseModel):
    colour: str = "red"
    layers: int = 1
    priority: int = 0
    token: SecretFile | None = None
    selector: str | None = None


class Painter:
    """Builds a ConfigMap of a colour."""

    name = "painter"
    options_model = PainterOptions
    reloads_options = True

    def __init__(self, options: PainterOptions) -> None:
        self._options = options
        self.priority = options.priority

    def watch_extension(self) -> list[Watch]:
        return [Watch("v1", "ConfigMap", "configmaps", writes=True, label_selector=self._options.selector)]

    def build(self) -> list[Desired]:
        data = {"colour": self._options.colour}
        return [Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "paint"}, "data": data})]


class Fixed(Painter):
    """The same, for good."""

    name = "fixed"
    reloads_options = False

    def build(self) -> list[Desired]:
        return []


class Point(EntryPoint):
    def load(self) -> Any:
        return {"painter": Painter, "fixed": Fixed}[self.name]


POINTS = [Point(name, f"acme:{name}", "trainmaster.plugins") for name in ("painter", "fixed")]


class Running:
    """A framework of both, and the file that it follows."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "config.yaml"
        self.write("painter: {colour: blue}")
        configuration = load_configuration(self._file)
        given = configuration.plugins.options
        self.framework = Framework(load_plugins(POINTS, options=given))
        options = PluginOptions(self.framework, given, points=POINTS)

        def apply(new: Configuration) -> None:
            options.reload(new.plugins.options)

        self._reloader = ConfigurationReloader(
            [self._file], configuration, feature_gates="", apply=apply, reloads=options.reloads, clock=VirtualClock()
        )

    def write(self, options: str) -> None:
        self._file.write_text(f"{HEAD}plugins: {{options: {{{options}}}}}\n")

    def reload(self, options: str) -> list[dict[str, Any]]:
        self.write(options)
        with capture_logs() as logs:
            self._reloader.reload()
        return [dict(entry) for entry in logs]

    @property
    def colour(self) -> str:
        (built,) = resolve(trainjob(), runtime(), self.framework).objects
        colour: str = built.object["data"]["colour"]
        return colour


class Own(Painter):
    __module__ = "trainmaster.plugins.painter"


class OwnPoint(EntryPoint):
    def load(self) -> Any:
        return Own


def test_one_that_has_the_name_of_a_plugin_of_trainmaster_does_not_come_in_by_new_options() -> None:
    """It was left out when the manager started, as `onLoadError: skip` says."""
    own = OwnPoint("painter", "trainmaster.plugins.painter:Painter", "trainmaster.plugins")
    framework = Framework(load_plugins([own], options={}))
    PluginOptions(framework, {}, points=[own, *POINTS]).reload({"painter": {"colour": "green"}})
    assert [type(each) for each in framework.plugins()] == [Own]
    (built,) = resolve(trainjob(), runtime(), framework).objects
    assert built.object["data"]["colour"] == "green"


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_new_options_are_in_effect_at_once(running: Running) -> None:
    assert running.colour == "blue"
    told, effect = running.reload("painter: {colour: green}")
    assert (told["event"], told["plugin"]) == ("a plugin has new options", "painter")
    assert effect["reloaded"] == ["plugins.options.painter"]
    assert running.colour == "green"
    running.reload("")
    assert running.colour == "red"
    (told,) = running.reload("fixed: {colour: green}")
    assert told["event"] == "the configuration file has changed; some options need a restart"
    assert told["options"] == ["plugins.options.fixed"], "one that cannot reload them"


def test_what_is_judged_meanwhile_is_judged_by_either() -> None:
    """And never by none."""

    class Judge(Painter):
        def __init__(self, options: PainterOptions, *, replaced: bool = True) -> None:
            super().__init__(options)
            self.replaced = replaced

        def applies_to(self) -> bool:
            if not self.replaced:
                framework.replace(Judge(PainterOptions(colour="green")))
            return True

        def validate(self) -> list[FieldError]:
            return [FieldError("spec", "no such colour")]

    framework = Framework([Judge(PainterOptions(colour="blue"), replaced=False)])
    (error,), _ = framework.validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)
    assert error.detail == "no such colour"


def test_what_has_begun_ends_with_the_old_options(running: Running) -> None:
    class Reloading:
        name = "reloading"
        priority = 1

        def build(self) -> list[Desired]:
            running.framework.replace(Painter(PainterOptions(colour="green")))
            return []

    framework = Framework([Reloading(), Painter(PainterOptions(colour="blue"))])
    running.framework = framework
    (built,) = resolve(trainjob(), runtime(), framework).objects
    assert built.object["data"] == {"colour": "blue"}
    (built,) = resolve(trainjob(), runtime(), framework).objects
    assert built.object["data"] == {"colour": "green"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("painter: {colour: green, layers: many}", "plugins.options.painter.layers: "),
        ("painter: {color: green}", 'plugins.options.painter.color: unknown field (did you mean "colour"?)'),
        ("painter: {token: secret}", "plugins.options.painter.token: must be the absolute path of a file that holds"),
        ("painter: {token: /no/such}", "plugins.options.painter.token: the file /no/such cannot be read: No such file"),
    ],
)
def test_options_that_do_not_fit_change_nothing(running: Running, options: str, message: str) -> None:
    (told,) = running.reload(options)
    assert (told["log_level"], told["event"]) == (
        "warning",
        "the configuration file cannot be used any more; the old values stay",
    )
    assert message in told["error"]
    assert "secret" not in told["error"].partition("holds")[0]
    assert running.colour == "blue"
    running.reload("painter: {colour: green}")
    assert running.colour == "green"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("painter: {colour: green, selector: a=b}", "plugin 'painter' watches something else with its new options"),
        (
            "painter: {colour: green, priority: 7}",
            "plugin 'painter' says something else of itself with its new options",
        ),
    ],
)
def test_what_changes_more_than_the_plugin_waits_for_a_restart(running: Running, options: str, reason: str) -> None:
    told, waiting = running.reload(options)
    assert (told["log_level"], told["plugin"]) == ("warning", "painter")
    assert "wait for a restart of the manager; it goes on with the old ones" in told["event"]
    assert told["reason"].startswith(reason)
    assert waiting["event"] == "the configuration file has changed; some options need a restart"
    assert (waiting["options"], waiting["reloaded"]) == (["plugins.options.painter"], [])
    assert running.colour == "blue"
    running.reload("painter: {colour: green}")
    assert running.colour == "blue"
