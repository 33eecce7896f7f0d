"""The loader: plugins by entry points, with their options; one that does not fit the interface is refused at start."""

import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from support.plugins import Builder, Enforcer

from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.framework.interface import API_VERSION
from trainmaster.runtime.framework.loader import discover


class Gated(Enforcer):
    """Is not for everybody yet."""

    feature_gate = "Gate"

    def __init__(self) -> None:
        super().__init__("gated")


def test_a_plugin_behind_a_gate_is_loaded_when_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("gated", "gated_plugin:Gated", "trainmaster.plugins")]
    monkeypatch.setitem(sys.modules, "gated_plugin", sys.modules[__name__])
    assert load_plugins(points) == []
    assert load_plugins(points, features=frozenset({"Other"})) == []
    assert [plugin.name for plugin in load_plugins(points, features=frozenset({"Gate"}))] == ["gated"]


def test_a_plugin_that_does_not_load_is_named_with_its_module_and_not_even_imported_if_disabled() -> None:
    broken = EntryPoint("broken", "no.such.module:Plugin", "trainmaster.plugins")
    with pytest.raises(PluginInvalid, match=r"plugin 'broken' \(no.such.module:Plugin, from .*No module named 'no'"):
        load_plugins([broken])
    assert load_plugins([broken], disabled=frozenset({"broken"})) == []


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


class Dist:
    """A distribution, as far as messages show it."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize("gate", [None, "Closed"])
def test_one_entry_point_name_of_two_distributions_is_refused(gate: str | None) -> None:
    """Both are named, with their distributions; options would go to either."""

    def point_of(value: str, dist: str) -> Any:
        point = _point_of(EntryPoint("painter", value, "trainmaster.plugins"), make)
        point.dist = Dist(dist)
        return point

    def make() -> Builder:
        return Builder("painter")

    make.feature_gate = gate  # type: ignore[attr-defined] # of one who is not loaded
    points = [point_of("acme:Painter", "acme-plugins"), point_of("brush:Painter", "brush")]
    fault = (
        r"^plugin 'painter' \(brush:Painter, from brush\) has the same name as another plugin \(acme:Painter, from "
        r"acme-plugins\); uninstall one of the two, or add 'painter' to plugins.disabled "
    )
    with pytest.raises(PluginInvalid, match=fault):
        load_plugins(points)
    assert load_plugins(points, disabled=frozenset({"painter"})) == []


@pytest.mark.parametrize("error", [SystemExit("no licence"), OSError("no licence")])
def test_a_plugin_that_ends_the_process_while_it_loads_is_named(error: BaseException) -> None:
    def make() -> Any:
        raise error

    point = _point_of(EntryPoint("painter", "acme:Painter", "trainmaster.plugins"), make)
    fault = rf"^plugin 'painter' \(acme:Painter, .*\) cannot be loaded: {type(error).__name__}: no licence$"
    for load in (point.load, make):
        point.load = load
        with pytest.raises(PluginInvalid, match=fault):
            load_plugins([point])


def test_options_of_an_unknown_plugin_are_an_error() -> None:
    with pytest.raises(PluginInvalid, match=r"unknown plugins: torhc .*torch.*; installed are: .*torch"):
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


class Modelled(Bare):
    """Takes a model, which it does not name."""

    def __init__(self, options: Any) -> None:
        self.options = options


def load_with(make: Any, **options: Any) -> list[Any]:
    point = EntryPoint("painter", f"{__name__}:Painter", "trainmaster.plugins")
    return load_plugins([_point_of(point, make)], options={"painter": options})


@pytest.mark.parametrize(
    ("make", "options", "fault"),
    [
        (Painter, {"colour": "red", "colr": 1}, "has no option 'colr'; it has: coats, colour; correct "),
        (Bare, {"colour": "red"}, "has no option 'colour', nor any other; remove "),
        (Painter, {"coats": 2}, "needs the option 'colour'; set it in "),
        (
            Modelled,
            {},
            r"needs the option 'options' \(or its class, if that is to be a model, an options_model\); set it in ",
        ),
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


def test_options_reach_the_constructor_and_what_takes_any_is_given_any() -> None:
    class Open(Builder):
        def __init__(self, **options: Any) -> None:
            self.name, self.options = "painter", options

    assert load_with(Painter, colour="red")[0].colour == "red"
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


def generator(self: Any, info: Any, job: Any) -> Any:
    """An enforcing method that never runs."""
    yield


async def waiting(self: Any, info: Any, job: Any) -> None:
    """An enforcing method that nobody awaits."""


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": ""}, "has no name"),
        (
            {"name": "X", "api_version": "2.0", "build": Builder.build},
            f"needs plugin API 2.0, this Trainmaster offers {API_VERSION[0]}.{API_VERSION[1]}",
        ),
        ({"name": "X", "api_version": "new", "build": Builder.build}, "write it as major.minor"),
        (
            {"name": "X", "build": lambda self, info, job, listers, *, more: ()},
            r"build\(info, job, listers, more\) needs 'more', which build is not given; it may take: info, job, ",
        ),
        (
            {"name": "X", "build": lambda self, info, /, job: ()},
            r"build\(info, job\): info must be an argument that can be given by name",
        ),
        (
            {"name": "X", "build": Builder.build, "enforce_mlpolicy": lambda self, info: None},
            "enforce_mlpolicy is no extension point, .* if enforce_ml_policy is meant, call it so, otherwise _en",
        ),
        (
            {"name": "X", "build": Builder.build, "option_model": None},
            "option_model is no attribute of plugins, .* if options_model is meant, call it so, otherwise _option_mo",
        ),
        (
            {"name": "X", "build": Builder.build, "maturity": "new"},
            "maturity must be one of alpha, beta, stable, not 'new'",
        ),
        (
            {"name": "X", "build": Builder.build, "options_model": dict},
            "options_model must be a class that is derived from",
        ),
        ({"name": "X", "applies_to": lambda self, info: True}, "implements no extension point"),
        (
            {"name": "X", "build": Builder.build, "status": "beta"},
            "its attribute status is 'beta', but status is an extension point, and those are methods; give ",
        ),
        (
            {"name": "X", "build": Builder.build, "policies": "torch"},
            r"""policies must be a list or tuple of names, for instance \("torch",\), not 'torch'""",
        ),
        ({"name": "X", "pre_build": generator}, "nothing of it would run because of its `yield`"),
        ({"name": "X", "enforce_ml_policy": waiting}, "must be a plain function, not async"),
        # A text would be taken for a list of letters, none of which is a plugin.
        (
            {"name": "X", "build": Builder.build, "before": "jobset"},
            "before must be a list or tuple of plugin names, not 'jobset'",
        ),
        ({"name": "X", "build": Builder.build, "after": [1]}, "after must be a list or tuple of plugin names"),
        ({"name": "X", "build": Builder.build, "priority": "high"}, "priority must be a whole number, not 'high'"),
    ],
)
def test_a_plugin_that_does_not_fit_is_refused_at_start(attributes: dict[str, Any], message: str) -> None:
    plugin = type("Odd", (), attributes)()
    with pytest.raises(PluginInvalid, match=message):
        Framework([plugin])


def test_a_method_may_take_more_than_it_is_given() -> None:
    """As long as it does not need it: a later version of the interface may have something to give."""

    class Lenient:
        name = "lenient"
        policies = frozenset({"torch"})

        def enforce_ml_policy(self, info: Any, job: Any, verbose: bool = False, *more: Any, **others: Any) -> None:
            """Does nothing."""

        def build(self, info: Any, job: Any, listers: Any, **others: Any) -> tuple[()]:
            return ()

    assert Framework([Lenient()]).order()["build"] == ["lenient"]


def test_none_takes_an_inherited_extension_point_away() -> None:
    class Quiet(Builder):
        build = None  # type: ignore[assignment] # as `__hash__ = None` does

        def pre_build(self, info: Any, job: Any) -> None:
            """Does nothing."""

    order = Framework([Quiet()]).order()
    assert (order["build"], order["pre_build"]) == ([], ["Builder"])
