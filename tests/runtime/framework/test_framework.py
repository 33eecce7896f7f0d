"""The plugin framework: loading, checking, ordering, running and isolating plugins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from support.objects import runtime, trainjob

from trainmaster.runtime.extension import Desired, Rejected, StatusReport
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, PluginFailed, PluginInvalid, load_plugins
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.framework.order import order_plugins
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import new_info, resolve


class Builder:
    """Builds one ConfigMap."""

    def __init__(self, name: str = "Builder", *, object_name: str = "made", error: Exception | None = None) -> None:
        self.name = name
        self._object_name = object_name
        self._error = error

    def build(self, info: Any, job: Any, listers: Any) -> Iterator[Desired]:
        if self._error:
            raise self._error
        yield Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self._object_name}})


class Enforcer:
    """Notes that it ran."""

    def __init__(self, name: str, **place: Any) -> None:
        self.name = name
        for key, value in place.items():
            setattr(self, key, value)

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.labels[f"ran-{len(info.labels)}"] = self.name


class Gated(Enforcer):
    """Is not for everybody yet."""

    feature_gate = "Gate"

    def __init__(self) -> None:
        super().__init__("gated")


def names(plugins: list[Any]) -> list[str]:
    return [plugin.name for plugin in order_plugins(plugins)]


def test_built_in_plugins_come_through_entry_points() -> None:
    assert {"torch", "plainml", "jobset"} <= {point.name for point in discover()}
    assert {plugin.name for plugin in load_plugins()} >= {"torch", "plainml", "jobset"}


def test_a_disabled_plugin_is_not_even_imported() -> None:
    broken = EntryPoint("broken", "no.such.module:Plugin", "trainmaster.plugins")
    assert load_plugins([broken], disabled=frozenset({"broken"})) == []


def test_a_plugin_behind_a_gate_is_loaded_when_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("gated", "gated_plugin:Gated", "trainmaster.plugins")]
    monkeypatch.setitem(sys.modules, "gated_plugin", sys.modules[__name__])
    assert load_plugins(points) == []
    assert load_plugins(points, features=frozenset({"Other"})) == []
    assert [plugin.name for plugin in load_plugins(points, features=frozenset({"Gate"}))] == ["gated"]


def test_a_plugin_that_does_not_load_is_named_with_its_module() -> None:
    broken = EntryPoint("broken", "no.such.module:Plugin", "trainmaster.plugins")
    with pytest.raises(PluginInvalid, match=r"plugin 'broken' \(no.such.module:Plugin, from .*No module named 'no'"):
        load_plugins([broken])


def test_a_plugin_has_the_name_of_its_entry_point() -> None:
    """What is configured, ordered, measured and told of is one word."""
    assert [plugin.name for plugin in load_plugins()] == [
        point.name for point in discover() if not hasattr(point.load(), "feature_gate")
    ]
    point = EntryPoint("painter", "acme:Painter", "trainmaster.plugins")
    fault = (
        r"^plugin 'painter' \(acme:Painter, from an unknown distribution\) calls itself 'Builder', .*: give its class "
        r"the `name` 'painter', or rename the entry point; to start without it, add 'painter' to plugins.disabled of "
    )
    with pytest.raises(PluginInvalid, match=fault):
        load_plugins([_point_of(point, Builder)])


def test_two_plugins_of_one_name_are_refused() -> None:
    point = _point_of(EntryPoint("painter", "acme:Painter", "trainmaster.plugins"), lambda: Builder("painter"))
    with pytest.raises(PluginInvalid, match=r"'painter' \(.*\) has the same name as another plugin; uninstall one of "):
        load_plugins([point, point])


def test_options_of_an_unknown_plugin_are_an_error() -> None:
    with pytest.raises(PluginInvalid, match=r"unknown plugins: torhc; installed are: .*torch"):
        load_plugins(options={"torhc": {}})


class Painter(Builder):
    """Has options: one that it needs, one with a rule, and one that no file can give."""

    def __init__(self, *, colour: str, coats: int = 1, random: Any = len) -> None:
        if coats < 1:
            raise ValueError(f"coats must be 1 or more, not {coats!r}")
        self.name, self.colour = "painter", colour


class Bare:
    """Has no options."""

    name = "painter"

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        """Does nothing."""


def load_with(make: Any, **options: Any) -> list[Any]:
    point = EntryPoint("painter", f"{__name__}:Painter", "trainmaster.plugins")
    return load_plugins([_point_of(point, make)], options={"painter": options})


def test_options_reach_the_constructor() -> None:
    (plugin,) = load_with(Painter, colour="red")
    assert plugin.colour == "red"


@pytest.mark.parametrize(
    ("make", "options", "fault"),
    [
        (Painter, {"colour": "red", "colr": 1}, "has no option 'colr'; it has: coats, colour; correct "),
        (Bare, {"colour": "red"}, "has no option 'colour', nor any other; remove "),
        (Painter, {"coats": 2}, "needs the option 'colour'; set it in "),
        (
            Painter,
            {"colour": "red", "coats": 0},
            "does not accept its options: coats must be 1 or more, not 0; correct ",
        ),
        (
            Painter,
            {"colour": "red", "coats": "many"},
            "does not accept its options: '<' not supported between .*; correct ",
        ),
    ],
)
def test_options_that_are_wrong_are_told_as_what_they_are(make: Any, options: dict[str, Any], fault: str) -> None:
    """Whoever wrote the configuration file has not written the plugin: what counts is the option and its place."""
    place = "plugins.options.painter of the configuration file"
    with pytest.raises(PluginInvalid, match=rf"^plugin 'painter' \(.*\) {fault}{place}$"):
        load_with(make, **options)


def test_what_takes_any_option_is_given_any() -> None:
    class Open(Builder):
        def __init__(self, **options: Any) -> None:
            self.name, self.options = "painter", options

    assert load_with(Open, colour="red")[0].options == {"colour": "red"}


def _point_of(point: EntryPoint, value: Any) -> Any:
    """An entry point that loads a class of this test module, which cannot be imported by name."""

    class Point:
        name, value_, group, dist = point.name, point.value, point.group, None
        value = point.value

        @staticmethod
        def load() -> Any:
            return value

    return Point()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": ""}, "has no name"),
        ({"name": "X"}, "implements no extension point"),
        (
            {"name": "X", "api_version": "2.0", "build": Builder.build},
            "needs plugin API 2.0, this Trainmaster offers 1.0",
        ),
        ({"name": "X", "api_version": "new", "build": Builder.build}, "write it as major.minor"),
        ({"name": "X", "build": lambda self, info: ()}, r"build\(info\) must be build\(info, job, listers\)"),
    ],
)
def test_a_plugin_that_does_not_fit_is_refused_at_start(attributes: dict[str, Any], message: str) -> None:
    plugin = type("Odd", (), attributes)()
    with pytest.raises(PluginInvalid, match=message):
        Framework([plugin])


def test_an_async_plugin_is_refused() -> None:
    class Waiting:
        name = "Waiting"

        async def enforce_ml_policy(self, info: Any, job: Any) -> None:
            """Waits."""

    with pytest.raises(PluginInvalid, match="must be a plain function, not async"):
        Framework([Waiting()])


def test_order_is_by_name_without_any_wish() -> None:
    assert names([Enforcer("c"), Enforcer("a"), Enforcer("b")]) == ["a", "b", "c"]


def test_higher_priority_runs_first() -> None:
    assert names([Enforcer("a"), Enforcer("z", priority=1), Enforcer("b", priority=-1)]) == ["z", "a", "b"]


def test_before_and_after_win_over_priority() -> None:
    first = Enforcer("first", priority=-5, before=("second", "unknown"))
    assert names([Enforcer("second", priority=9), first, Enforcer("third", after=("second",))]) == [
        "first",
        "second",
        "third",
    ]


def test_a_contradiction_in_the_order_is_refused() -> None:
    with pytest.raises(PluginInvalid, match="contradicts itself: "):
        order_plugins([Enforcer("a", before=("b",)), Enforcer("b", before=("a",))])


def test_only_one_plugin_may_report_status() -> None:
    class Reporter:
        def __init__(self, name: str) -> None:
            self.name = name

        def status(self, job: Any, listers: Any) -> None:
            """Reports nothing."""

    with pytest.raises(PluginInvalid, match="these do: one, two"):
        Framework([Reporter("one"), Reporter("two")])


def test_enforcers_run_in_order() -> None:
    info = new_info(trainjob(), runtime())
    Framework([Enforcer("b"), Enforcer("a")]).enforce(info, trainjob())
    assert list(info.labels.values()) == ["a", "b"]


def test_built_objects_get_namespace_and_owner() -> None:
    built = Framework([Builder()]).build(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert built[0].object["metadata"] == {
        "name": "made",
        "namespace": "team",
        "ownerReferences": [
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "name": "demo",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_two_plugins_cannot_build_the_same_object() -> None:
    framework = Framework([Builder("one"), Builder("two")])
    with pytest.raises(PluginFailed, match="another plugin builds ConfigMap made as well"):
        framework.build(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)


def test_a_plugin_that_raises_is_named_and_keeps_the_cause() -> None:
    framework = Framework([Builder(error=KeyError("gone"))])
    with pytest.raises(PluginFailed, match="plugin Builder failed in build: KeyError: 'gone'") as caught:
        resolve(trainjob(), runtime(), framework)
    assert isinstance(caught.value.__cause__, KeyError)
    assert not caught.value.rejected


def test_a_rejection_speaks_for_itself() -> None:
    framework = Framework([Builder(error=Rejected("there is no such queue"))])
    with pytest.raises(PluginFailed, match=r"^there is no such queue$") as caught:
        resolve(trainjob(), runtime(), framework)
    assert caught.value.rejected


def test_each_call_is_observed_with_its_result() -> None:
    seen: list[tuple[str, str, bool]] = []
    framework = Framework(
        [Enforcer("ok"), Builder(error=ValueError())],
        observer=lambda plugin, phase, seconds, succeeded: seen.append((plugin, phase, succeeded)),
    )
    with pytest.raises(PluginFailed):
        resolve(trainjob(), runtime(), framework)
    assert seen == [("ok", "enforce_ml_policy", True), ("Builder", "build", False)]


MADE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (None, "build must return Desired objects, not NoneType"),
        (MADE, "build must return Desired objects, not dict"),
        (Desired([]), "without apiVersion, kind and metadata.name"),  # type: ignore[arg-type] # the mistake
        (Desired({}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": None}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": {"name": ""}}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": {"name": "x", "namespace": "other"}}), "namespace 'other'"),
        (Desired(MADE | {"metadata": {"name": "x", "ownerReferences": [{"uid": "z"}]}}), "the TrainJob its controller"),
        (Desired(MADE | {"data": {"a": {1, 2}}}), "not JSON serializable: set"),
    ],
)
def test_garbage_of_a_plugin_is_that_plugins_failure(built: Any, message: str) -> None:
    class Careless:
        name = "Careless"

        def build(self, info: Any, job: Any, listers: Any) -> list[Any]:
            return [built]

    framework = Framework([Careless()])
    with pytest.raises(PluginFailed, match=r"^plugin Careless failed in build: ") as caught:
        framework.build(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert message in str(caught.value)


@pytest.mark.parametrize("report", ["running", StatusReport(conditions=[{"type": "Complete"}])])
def test_garbage_of_a_status_plugin_is_its_failure(report: Any) -> None:
    class Reporter:
        name = "Reporter"

        def status(self, job: Any, listers: Any) -> Any:
            return report

    with pytest.raises(PluginFailed, match=r"^plugin Reporter failed in status: "):
        Framework([Reporter()]).status(trainjob(), NO_LISTERS)


@pytest.mark.parametrize("results", [["spec.x: no"], None])
def test_garbage_of_a_validating_plugin_is_its_failure(results: Any) -> None:
    class Validator:
        name = "Validator"

        def validate(self, info: Any, job: Any, old: Any, listers: Any) -> Any:
            return results

    with pytest.raises(PluginFailed, match=r"^plugin Validator failed in validate: TypeError: "):
        Framework([Validator()]).validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)


def test_errors_and_warnings_of_plugins_are_kept_apart() -> None:
    class Validator:
        name = "Validator"

        def validate(self, info: Any, job: Any, old: Any, listers: Any) -> Any:
            yield FieldWarning("spec.b", "hm")
            yield FieldError("spec.a", "no")

    errors, warnings = Framework([Validator()]).validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)
    assert (errors, warnings) == ([FieldError("spec.a", "no")], [FieldWarning("spec.b", "hm")])


@pytest.mark.parametrize("watches", [None, ["pods"], KeyError("pods")])
def test_a_plugin_that_cannot_say_what_it_watches_is_named(watches: Any) -> None:
    class Watcher:
        name = "Watcher"

        def watch_extension(self) -> Any:
            if isinstance(watches, Exception):
                raise watches
            return watches

    with pytest.raises(PluginInvalid, match=r"^plugin Watcher: watch_extension"):
        Framework([Watcher()]).watches()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"before": "jobset"}, r"before must be a list or tuple of plugin names, not 'jobset'"),
        ({"after": [1]}, r"after must be a list or tuple of plugin names"),
        ({"priority": "high"}, "priority must be a whole number, not 'high'"),
    ],
)
def test_a_place_that_means_nothing_is_refused(place: dict[str, Any], message: str) -> None:
    """A text would be taken for a list of letters, none of which is a plugin."""
    with pytest.raises(PluginInvalid, match=message):
        Framework([Enforcer("odd", **place)])


def test_a_plugin_cannot_change_the_runtime_for_the_next_resolution() -> None:
    """The runtime may come from a cache."""

    class Vandal:
        name = "Vandal"

        def enforce_ml_policy(self, info: Any, job: Any) -> None:
            info.runtime_template["replicatedJobs"].clear()

    on = runtime()
    for _ in range(2):
        resolve(trainjob(), on, Framework([Vandal()]))
    assert on.spec.template is not None
    assert len(on.spec.template.spec["replicatedJobs"]) == 1
