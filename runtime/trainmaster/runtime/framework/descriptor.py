"""What a plugin says of itself: read from its class, and checked, before it is made.

Guarantee: a class that does not fit the interface is refused with a `PluginInvalid` that says what to change, and
nothing of it has run by then but its import.

The order of plugins within each phase: `before` and `after` first, then priority (higher first), then name.

Guarantee: the order is the same in every process. `Framework.order` prints it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import EntryPoint
from typing import Any, Final

from pydantic import BaseModel

from trainmaster.runtime.framework.interface import API_VERSION, Plugin
from trainmaster.runtime.framework.models import customs
from trainmaster.runtime.framework.signatures import PHASES, PluginInvalid, check_method, implements
from trainmaster.runtime.info import Info

MATURITIES: Final = ("alpha", "beta", "stable")
FAILURE_POLICIES: Final = ("fail", "skip")

ATTRIBUTES: Final = (
    "api_version",
    "maturity",
    "feature_gate",
    "options_model",
    "reloads_options",
    "failure_policy",
    "ml_policy_config",
    "pod_group_policy_config",
)
"""The optional attributes whose names are no words of their own, so that what is nearly one is one misspelt."""

SCHEDULING: Final = "scheduling"
"""The policy that is a field of runtimes itself."""

_OWN_PLUGINS: Final = "trainmaster.plugins."
_CLOSE: Final = 0.85
"""How alike the name of a method and that of an extension point are if one is the other misspelt."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plugin stands within each phase."""

    priority: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a plugin says of itself."""

    name: str
    api_version: str
    maturity: str
    feature_gate: str | None
    extension_points: tuple[str, ...]
    policies: tuple[str, ...]
    custom_policies: Mapping[str, type[BaseModel]]
    """Of `mlPolicy` and `podGroupPolicy` those whose `custom` it serves, each with the model of its `config`."""

    place: Place
    replaces: tuple[str, ...]
    failure_policy: str
    options_model: type[BaseModel] | None
    reloads_options: bool

    @property
    def decides(self) -> bool:
        """Whether it is asked for each TrainJob whether it serves that."""
        return "applies_to" in self.extension_points

    @property
    def serves_all(self) -> bool:
        """Whether it serves all TrainJobs."""
        return not (self.decides or self.policies or self.custom_policies)


def is_own(plugin: object) -> bool:
    """Return whether a plugin, or an entry point of one, is Trainmaster's own. Nothing else decides it.

    Its package tells: whoever packages Trainmaster may give the distribution another name.
    """
    module = plugin.module if isinstance(plugin, EntryPoint) else type(plugin).__module__
    return module.startswith(_OWN_PLUGINS)


def place_of(plugin: Any) -> Place:
    """Return the place of a plugin, or of the class of one."""
    return Place(
        priority=getattr(plugin, "priority", 0),
        before=tuple(getattr(plugin, "before", ())),
        after=tuple(getattr(plugin, "after", ())),
    )


def describe(plugin: Any, *, origin: str) -> Descriptor:
    """Read and check what a plugin, or the class of one, says of itself.

    Args:
        origin: What messages call it, for instance `plugin 'torch'`.

    Raises:
        PluginInvalid: It does not fit the interface; the message says what to change.
    """
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        raise PluginInvalid(f"{origin} has no name: give its class a `name`")
    version = _checked_version(plugin, origin)
    _check_place(plugin, origin)
    _check_names(plugin, "policies", 'names, for instance ("torch",)', origin)
    _check_names(plugin, "replaces", 'plugin names, for instance ("jobset",)', origin)
    _check_hooks(plugin, origin)
    _check_attributes(plugin, origin)
    return Descriptor(
        name=name,
        api_version=version,
        maturity=_one_of(plugin, "maturity", MATURITIES, "stable", origin),
        feature_gate=getattr(plugin, "feature_gate", None),
        extension_points=tuple(point for point in PHASES if implements(plugin, point)),
        policies=tuple(getattr(plugin, "policies", ())),
        custom_policies={
            policy: model
            for policy, attribute in (("mlPolicy", "ml_policy_config"), ("podGroupPolicy", "pod_group_policy_config"))
            if (model := _model(plugin, attribute, origin)) is not None
        },
        place=place_of(plugin),
        replaces=tuple(getattr(plugin, "replaces", ())),
        failure_policy=_one_of(plugin, "failure_policy", FAILURE_POLICIES, "fail", origin),
        options_model=_model(plugin, "options_model", origin),
        reloads_options=bool(getattr(plugin, "reloads_options", False)),
    )


def _checked_version(plugin: Any, origin: str) -> str:
    wanted = str(getattr(plugin, "api_version", f"{API_VERSION[0]}.0"))
    major, _, minor = wanted.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise PluginInvalid(f'{origin} states api_version {wanted!r}; write it as major.minor, for instance "1.0"')
    if int(major) != API_VERSION[0] or int(minor) > API_VERSION[1]:
        offered = ".".join(map(str, API_VERSION))
        raise PluginInvalid(
            f"{origin} needs plugin API {wanted}, this Trainmaster offers {offered}: install matching versions"
        )
    return wanted


def _check_place(plugin: Any, origin: str) -> None:
    priority = getattr(plugin, "priority", 0)
    if not isinstance(priority, int):
        raise PluginInvalid(f"{origin}: priority must be a whole number, not {priority!r}")
    for side in ("before", "after"):
        names = getattr(plugin, side, ())
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise PluginInvalid(f"{origin}: {side} must be a list or tuple of plugin names, not {names!r}")


def _check_names(plugin: Any, attribute: str, what: str, origin: str) -> None:
    names = getattr(plugin, attribute, ())
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in names):
        raise PluginInvalid(f"{origin}: {attribute} must be a list or tuple of {what}, not {names!r}")


def _one_of(plugin: Any, attribute: str, choices: tuple[str, ...], default: str, origin: str) -> str:
    value = getattr(plugin, attribute, default)
    if value not in choices:
        raise PluginInvalid(f"{origin}: {attribute} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def _model(plugin: Any, attribute: str, origin: str) -> type[BaseModel] | None:
    value = getattr(plugin, attribute, None)
    if value is not None and not (isinstance(value, type) and issubclass(value, BaseModel)):
        raise PluginInvalid(f"{origin}: {attribute} must be a class that is derived from pydantic.BaseModel")
    return value


def _check_attributes(plugin: Any, origin: str) -> None:
    for name in dir(plugin if isinstance(plugin, type) else type(plugin)):
        if name.startswith("_") or name in ATTRIBUTES:
            continue
        meant = get_close_matches(name, ATTRIBUTES, n=1, cutoff=_CLOSE)
        if meant:
            raise PluginInvalid(
                f"{origin}: {name} is no attribute of plugins, so nothing would ever read it; if {meant[0]} is meant, "
                f"call it so, otherwise _{name}"
            )


def _check_hooks(plugin: Any, origin: str) -> None:
    for name in PHASES:
        value = getattr(plugin, name, None)
        if value is not None and not callable(value):
            raise PluginInvalid(
                f"{origin}: its attribute {name} is {value!r:.80}, but {name} is an extension point, and those are "
                "methods; give the attribute another name"
            )
    for name in dir(plugin):
        if name.startswith("_") or name in PHASES or not callable(getattr(plugin, name, None)):
            continue
        meant = get_close_matches(name, PHASES, n=1, cutoff=_CLOSE)
        if meant:
            raise PluginInvalid(
                f"{origin}: {name} is no extension point, so nothing would ever call it; if {meant[0]} is meant, call "
                f"it so, otherwise _{name}"
            )
    points = [name for name in PHASES if implements(plugin, name) and name != "applies_to"]
    if not points:
        known = ", ".join(name for name in PHASES if name != "applies_to")
        raise PluginInvalid(f"{origin} implements no extension point; it needs at least one of: {known}")
    for name in PHASES:
        if implements(plugin, name):
            static = isinstance(inspect.getattr_static(plugin, name), staticmethod)
            check_method(name, getattr(plugin, name), origin, of_class=isinstance(plugin, type) and not static)


def order_plugins(plugins: Sequence[Plugin]) -> list[Plugin]:
    """Sort plugins; names that are not loaded do not matter.

    Raises:
        PluginInvalid: `before` and `after` contradict each other.
    """
    by_name = {plugin.name: plugin for plugin in plugins}
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_name, ()))
    for plugin in plugins:
        place = place_of(plugin)
        for name in place.after:
            if name in by_name:
                sorter.add(plugin.name, name)
        for name in place.before:
            if name in by_name:
                sorter.add(name, plugin.name)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = " before ".join(error.args[1])
        raise PluginInvalid(
            f"the order of plugins contradicts itself: {cycle}; change their `before` and `after`"
        ) from error
    ordered: list[Plugin] = []
    ready: list[str] = []
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        ready.sort(key=lambda name: (-place_of(by_name[name]).priority, name))
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
    return ordered


class Selection:
    """What plugins say of whom they serve."""

    def __init__(self, descriptors: Mapping[str, Descriptor]) -> None:
        self.deciding = frozenset(name for name, each in descriptors.items() if each.decides)
        """Those that decide for each TrainJob, and have to be asked."""

        self.serving_all = frozenset(name for name, each in descriptors.items() if each.serves_all)
        self._by_policy: dict[str, set[str]] = {}
        self._custom: set[tuple[str, str]] = set()
        for name, each in descriptors.items():
            if name not in self.deciding:
                for policy in each.policies:
                    self._by_policy.setdefault(policy, set()).add(name)
                self._custom.update((policy, name) for policy in each.custom_policies)

    def chosen(self, info: Info) -> set[str]:
        """Return the plugins that serve all TrainJobs, or a policy of a runtime."""
        chosen = set(self.serving_all)
        for policy in (info.ml_policy, info.pod_group_policy):
            # Asking a model for what it does not have costs more than all the rest of this.
            if policy is not None:
                for name in policy.model_fields_set:
                    if name in self._by_policy and getattr(policy, name) is not None:
                        chosen |= self._by_policy[name]
        if info.scheduling is not None:
            chosen |= self._by_policy.get(SCHEDULING, set())
        for field, custom in customs(info.ml_policy, info.pod_group_policy):
            if (field, custom.name) in self._custom:
                chosen.add(custom.name)
        return chosen
