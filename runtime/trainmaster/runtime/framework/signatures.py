"""The methods of the interface, and which of their arguments a plugin takes.

Guarantee: a method is called with arguments by name, and only with those that it takes. So a plugin that was written
for one version of the interface keeps working when a later one adds arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from trainmaster.runtime.framework.interface import (
    AppliesTo,
    Build,
    EnforceMLPolicy,
    EnforcePodGroup,
    EnforcePodSpec,
    PreBuild,
    Status,
    Validate,
    WatchExtension,
)

PHASES: Final[Mapping[str, type]] = {
    "applies_to": AppliesTo,
    "enforce_ml_policy": EnforceMLPolicy,
    "enforce_pod_group": EnforcePodGroup,
    "enforce_pod_spec": EnforcePodSpec,
    "pre_build": PreBuild,
    "build": Build,
    "watch_extension": WatchExtension,
    "validate": Validate,
    "status": Status,
}

CONFIG: Final = "config"
"""The argument that is the plugin's policy `custom`."""

_WITHOUT_CONFIG: Final = frozenset({"watch_extension", "status"})

_COLLECTING: Final = frozenset({"build", "watch_extension", "validate"})
"""The phases that may be generators."""


class PluginInvalid(Exception):
    """A plugin cannot be used: it does not load, does not fit the interface, or contradicts another one."""


def implements(plugin: Any, phase: str) -> bool:
    """Tell whether a plugin has an extension point; None in the place of an inherited one takes that away."""
    return callable(getattr(plugin, phase, None))


def arguments_of(phase: str) -> tuple[str, ...]:
    """Return the arguments that a method of a phase may take."""
    names = tuple(inspect.signature(getattr(PHASES[phase], phase)).parameters)[1:]
    return names if phase in _WITHOUT_CONFIG else (*names, CONFIG)


def taken_arguments(phase: str, method: Callable[..., Any]) -> tuple[str, ...]:
    """Return those arguments of a phase that a method takes."""
    parameters = inspect.signature(method).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return arguments_of(phase)
    names = {each.name for each in parameters}
    return tuple(name for name in arguments_of(phase) if name in names)


def check_method(name: str, method: Callable[..., Any], origin: str, *, of_class: bool) -> None:
    """Check that a method can be called as the interface calls it.

    Args:
        method: The method, bound or, `of_class`, as a class has it.
        of_class: Whether the first parameter is the plugin itself.

    Raises:
        PluginInvalid: It cannot.
    """
    try:
        parameters = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError) as error:
        raise PluginInvalid(f"{origin}: {name} does not tell its arguments: {error}; make it a plain method") from error
    if of_class and not inspect.ismethod(method) and parameters:
        parameters = parameters[1:]
    written = f"{name}({', '.join(map(_text, parameters))})"
    known = arguments_of(name)
    for each in parameters:
        if each.kind is each.POSITIONAL_ONLY:
            raise PluginInvalid(f"{origin}: {written}: {each.name} must be an argument that can be given by name")
        optional = each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        if each.name not in known and not optional:
            raise PluginInvalid(
                f"{origin}: {written} needs {each.name!r}, which {name} is not given; it may take: {', '.join(known)}"
            )
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise PluginInvalid(f"{origin}: {name} must be a plain function, not async: plugins decide, they do no I/O")
    if inspect.isgeneratorfunction(method) and name not in _COLLECTING:
        raise PluginInvalid(
            f"{origin}: {name} must be a plain function: nothing of it would run because of its `yield`"
        )


def _text(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name
