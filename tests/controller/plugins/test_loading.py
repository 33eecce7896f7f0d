"""Which plugins of a configuration run, what is said of those that do not load, and what slow ones cost."""

import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs
from support.objects import runtime, trainjob
from support.series import value_of
from support.vandal import faulty

from trainmaster.controller.configuration import Plugins
from trainmaster.controller.plugins.guard import guard_of
from trainmaster.controller.plugins.loading import LoadedPlugins, load
from trainmaster.controller.plugins.observer import LOG_INTERVAL, PluginCallObserver
from trainmaster.runtime.framework import Framework, PluginFailed, PluginInvalid
from trainmaster.runtime.framework.calls import PluginQuarantined, TimeLimitExceeded
from trainmaster.runtime.framework.descriptor import is_own
from trainmaster.runtime.framework.interface import NotReady, Rejected
from trainmaster.runtime.framework.loader import discover, unknown_names
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.resolver import PolicyUnserved, resolve

GROUP = "trainmaster.plugins"


class Distribution:
    """A distribution, as far as messages show it."""

    name = "acme-plugins"


def point(name: str, make: Any, *, module: str = "acme_plugins") -> EntryPoint:
    """An entry point of the distribution `acme-plugins`."""

    class Point(EntryPoint):
        def load(self) -> Any:
            return make() if isinstance(make, type(lambda: 0)) else make

    made = Point(name, f"{module}:{name.title()}", GROUP)
    vars(made)["dist"] = Distribution()
    return made


def acme(name: str = "acme", **attributes: Any) -> type:
    return type(faulty("build", list, name=name, **attributes))


def exits() -> Any:
    sys.exit(3)


def loaded(*points: EntryPoint, features: tuple[str, ...] = (), **settings: Any) -> LoadedPlugins:
    section = Plugins.model_validate({"onLoadError": "skip", **settings})
    return load(section, options=section.options, features=features, points=[*discover(), *points])


def others(found: LoadedPlugins) -> set[str]:
    return {plugin.name for plugin in found.plugins if not is_own(plugin)}


class Colours(BaseModel):
    colour: int


BROKEN = [
    (point("acme", exits), r"plugin 'acme' \(acme_plugins:Acme, from acme-plugins\) cannot be loaded: SystemExit: 3"),
    (EntryPoint("acme", "no.such.module:Acme", GROUP), r"cannot be loaded: ModuleNotFoundError: No module named 'no'"),
    (point("acme", acme(api_version="9.0")), r"from acme-plugins\) needs plugin API 9\.0, this Trainmaster offers 1\."),
    (point("acme", acme(enforce_mlpolicy=lambda self: None)), r"enforce_mlpolicy is no extension point"),
    (point("acme", acme("other")), r"calls itself 'other', but a plugin has one name everywhere"),
    (point("acme", acme(build=None)), r"implements no extension point"),
    (
        point("acme", acme(options_model=Colours)),
        r"does not accept its options: plugins\.options\.acme\.colour: is required",
    ),
    (
        point("acme", acme(watch_extension=lambda self: [Watch("jobset.x-k8s.io/v1alpha2", "JobSet", "jobs")])),
        r"plugins contradict each other about JobSet",
    ),
    (point("acme", acme(watch_extension=lambda self: 1 // 0)), r"watch_extension failed: ZeroDivisionError"),
    (point("acme", acme(after=("acme",))), r"the order of plugins contradicts itself"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_one_that_does_not_load_is_left_out_where_the_configuration_says_so(broken: EntryPoint, message: str) -> None:
    found = loaded(broken, point("fine", acme("fine")))
    assert others(found) == {"fine"}
    assert [plugin.name for plugin in found.plugins if plugin.name in ("acme", "fine")] == ["fine"]
    with pytest.raises(PluginInvalid, match=message):
        raise found.failed["acme"]


@pytest.mark.parametrize(("broken", "message"), BROKEN[:7])
def test_otherwise_the_manager_does_not_start(broken: EntryPoint, message: str) -> None:
    with pytest.raises(PluginInvalid, match=f"{message}.*; to start without it, add 'acme' to plugins.disabled"):
        loaded(broken, onLoadError="fail")


def test_nobody_takes_the_name_of_a_plugin_of_ours() -> None:
    found = loaded(point("jobset", acme("jobset")))
    (text,) = [str(error) for error in found.failed.values()]
    assert "plugin 'jobset' (acme_plugins:Jobset, from acme-plugins) has the name of a plugin of Trainmaster" in text
    assert "`replaces = ('jobset',)`" in text
    assert "trainmaster.plugins" in type(next(each for each in found.plugins if each.name == "jobset")).__module__
    with pytest.raises(PluginInvalid, match="has the name of a plugin of Trainmaster itself"):
        loaded(point("jobset", acme("jobset")), onLoadError="fail")


def test_two_of_one_name_are_both_left_out() -> None:
    found = loaded(point("acme", acme()), point("acme", acme(), module="acme_fork"))
    assert others(found) == set()
    assert "has the same name as another plugin" in str(found.failed["acme"])


def test_only_those_of_others_that_are_enabled_are_loaded() -> None:
    found = loaded(point("acme", acme()), point("beta", exits), enabled=["acme"], onLoadError="fail")
    assert others(found) == {"acme"}
    assert {"torch", "jobset"} <= {plugin.name for plugin in found.plugins}


@pytest.mark.parametrize(
    "settings",
    [{"enabled": ["acmee"]}, {"disabled": ["acmee"]}, {"options": {"acmee": {}}}, {"failurePolicy": {"acmee": "skip"}}],
)
def test_a_name_that_nothing_installed_has_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(PluginInvalid, match=r'unknown plugins: acmee \(did you mean "acme"\?\)'):
        loaded(point("acme", acme()), **settings)


def test_what_did_not_load_is_in_log_metrics_and_readiness() -> None:
    found = loaded(point("acme", exits), point("fine", acme("fine", after=("jobsett",))))
    with capture_logs() as logs:
        found.publish()
    failed, misspelt = logs
    assert (failed["log_level"], failed["plugin"]) == ("error", "acme")
    assert "from acme-plugins" in failed["error"]
    assert isinstance(failed["exc_info"], SystemExit)
    assert misspelt["log_level"] == "warning"
    assert misspelt["reason"] == (
        "fine has 'jobsett' in its `after`, but no plugin of that name is installed (did you mean \"jobset\"?)"
    )
    assert value_of("trainmaster_plugin_loaded", {"plugin": "acme"}) == 0
    assert value_of("trainmaster_plugin_loaded", {"plugin": "fine"}) == 1
    assert value_of("trainmaster_plugin_quarantined", {"plugin": "fine"}) == 0
    assert value_of("trainmaster_plugin_quarantined", {"plugin": "jobset"}) is None
    assert guard_of(Plugins()).detail(found.failed) == "acme did not load"


def test_names_of_plugins_that_are_installed_and_do_not_run_are_no_mistake() -> None:
    found = loaded(point("acme", acme(after=("beta",))), point("beta", acme("beta")), disabled=["beta"])
    assert list(unknown_names(found.plugins, found.installed)) == []


def test_trainjobs_that_ask_for_what_did_not_load_are_told_which_plugin_that_may_be() -> None:
    found = loaded(point("acme", exits), disabled=["torch"])
    framework = Framework(found.plugins, not_loaded=found.failed)
    with pytest.raises(PolicyUnserved, match=r"^no plugin serves mlPolicy\.torch, and acme did not load, which may be"):
        resolve(trainjob(), runtime(policy={"torch": {}}), framework)


def refusing(plugin: str, phase: str, job: str, make: Any) -> Any:
    """Let no call of a plugin through."""
    raise PluginQuarantined("is quarantined")


def test_what_calls_the_plugins_of_others_does_not_stand_around_those_of_trainmaster() -> None:
    framework = Framework(loaded().plugins, guard=refusing)
    assert not framework.guards_others
    resolve(trainjob(), runtime(policy={"torch": {}}), framework)
    framework = Framework(loaded(point("acme", acme())).plugins, guard=refusing)
    assert framework.guards_others
    with pytest.raises(PluginFailed, match=r"^plugin acme is quarantined$"):
        resolve(trainjob(), runtime(policy={"torch": {}}), framework)


def test_the_package_decides_whose_a_plugin_is_whatever_the_name_of_the_distribution() -> None:
    """Whoever packages Trainmaster may call the distribution something else."""
    shipped = next(each for each in discover() if each.name == "jobset")
    vendored = EntryPoint(shipped.name, shipped.value, GROUP)
    found = load(Plugins(enabled=[]), options={}, features=(), points=[vendored, point("acme", acme())])
    assert [plugin.name for plugin in found.plugins] == ["jobset"]
    assert not Framework(found.plugins, guard=refusing).guards_others


def sample(suffix: str, **labels: str) -> float | None:
    return value_of(f"trainmaster_plugin_{suffix}", labels)


def raised(error: BaseException) -> BaseException:
    """An error as it is caught."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_slow_call_is_logged_once_by_name() -> None:
    observe = PluginCallObserver()
    with capture_logs() as logs:
        observe("Quick", "build", 0.1, None)
        for seconds in (0.25, 3.0):
            observe("Sluggish", "build", seconds, None)
        observe("Sluggish", "status", 0.2, Rejected("no"))
    logged = [(entry["log_level"], entry["plugin"], entry["phase"], entry["seconds"]) for entry in logs]
    assert logged == [("warning", "Sluggish", "build", 0.25), ("warning", "Sluggish", "status", 0.2)]
    labels = {"plugin": "Sluggish", "phase": "build"}
    assert sample("call_seconds_sum", **labels) == pytest.approx(3.25)
    assert sample("call_seconds_bucket", **labels, le="0.1") == 0
    assert sample("call_seconds_bucket", **labels, le="0.3") == 1
    assert sample("calls_total", **labels, result="success") == 2


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (KeyError("region"), "error"),
        (SystemExit(3), "error"),
        (Rejected("no"), "rejected"),
        (NotReady("not yet"), "rejected"),
        (TimeLimitExceeded("took longer than 5 s in build"), "timeout"),
    ],
)
def test_calls_are_counted_by_result(error: BaseException, result: str) -> None:
    labels = {"plugin": f"counted-{type(error).__name__}", "phase": "build", "result": result}
    with capture_logs():
        PluginCallObserver()(labels["plugin"], "build", 0.0, error)
    assert sample("calls_total", **labels) == 1


def test_an_error_is_logged_with_its_traceback_once_for_each_place() -> None:
    """A `KeyError` without file and line is no help to the author of a plugin."""
    now = 0.0
    observe = PluginCallObserver(now=lambda: now)
    error = raised(KeyError("region"))
    with capture_logs() as logs:
        observe("acme", "build", 0.0, error)
        observe("acme", "build", 0.0, error)
        observe("acme", "validate", 0.0, error)
        observe("acme", "build", 0.0, raised(Rejected("answers are no errors")))
        now = LOG_INTERVAL
        observe("acme", "build", 0.0, error)
    assert [(entry["log_level"], entry["plugin"], entry["phase"]) for entry in logs] == [
        ("error", "acme", "build"),
        ("error", "acme", "validate"),
        ("error", "acme", "build"),
    ]
    assert logs[0]["error"] == "KeyError: 'region'"
    assert logs[0]["exc_info"].__traceback__.tb_frame.f_code.co_name == "raised"
