"""What is installed, what becomes of it under a configuration, what a manager that runs says of it, and one plugin in
full.

Guarantee: a plugin that is broken costs its own line only, which says why.
"""

from __future__ import annotations

import inspect
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel

from trainmaster.controller.cli.configured import plugin_options_in_effect
from trainmaster.controller.cli.options import CommandError
from trainmaster.controller.configuration import EffectiveConfiguration, Plugins, Problem
from trainmaster.controller.plugins.loading import SKIP
from trainmaster.controller.resources import watched_resource
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.descriptor import Descriptor, describe, is_own, order_plugins
from trainmaster.runtime.framework.framework import SCHEDULERS, Framework
from trainmaster.runtime.framework.interface import Plugin
from trainmaster.runtime.framework.loader import (
    ALL,
    describe_point,
    discover,
    import_plugin,
    is_wanted,
    make_plugin,
)
from trainmaster.runtime.framework.models import ModelInvalid
from trainmaster.runtime.listers import Watch

LOADED, DISABLED, NOT_ENABLED, GATED, BROKEN = "loaded", "disabled", "not enabled", "gate closed", "broken"
QUARANTINED = "quarantined"

_TIMEOUT: Final = 5.0
_READYZ: Final = "/readyz"

_LINE: Final = re.compile(r"^\[\+\]plugins ok: (.*)$", re.MULTILINE)
_QUARANTINED: Final = re.compile(r"(\S+) is quarantined (.*)")

_ALL_JOBS = "all TrainJobs"


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that a distribution offers."""

    point: EntryPoint
    state: str
    reason: str
    """Why it is not loaded; empty if it is."""

    descriptor: Descriptor | None
    """What it says of itself; None if that cannot be read."""

    plugin: Plugin | None
    """The plugin itself, if it is loaded."""

    error: PluginInvalid | None = None
    """What keeps it from being loaded; its cause is what the plugin raised."""

    position: int | None = None
    """Its place in the order of all that are loaded, from 1 on."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.point.name

    @property
    def distribution(self) -> str:
        """The distribution that offers it."""
        return self.point.dist.name if self.point.dist else "unknown"

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return self.point.dist.version if self.point.dist else ""

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        descriptor = self.descriptor
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "class": self.point.value,
            "state": self.state,
            "reason": self.reason,
            "order": self.position,
            "apiVersion": descriptor.api_version if descriptor else None,
            "maturity": descriptor.maturity if descriptor else None,
            "extensionPoints": list(descriptor.extension_points) if descriptor else [],
            "policies": served_policies(descriptor),
        }


def served_policies(descriptor: Descriptor | None) -> list[str]:
    """Return the policies that a plugin serves, as people write them; none: it serves all TrainJobs."""
    if descriptor is None:
        return []
    parts = (f"{'podGroupPolicy' if name in SCHEDULERS else 'mlPolicy'}.{name}" for name in descriptor.policies)
    return [*parts, *(f"{policy}.custom" for policy in descriptor.custom_policies)]


def installed_plugins(effective: EffectiveConfiguration) -> list[InstalledPlugin]:
    """List what is installed: first what is loaded, in its order, then the rest by name."""
    found = list(_look(effective))
    loaded = {each.plugin.name: each for each in found if each.plugin is not None}
    try:
        order = [plugin.name for plugin in order_plugins([each.plugin for each in loaded.values() if each.plugin])]
    except PluginInvalid:
        order = sorted(loaded)  # `plugins check` tells why there is none
    placed = [replace(loaded[name], position=position) for position, name in enumerate(order, 1)]
    return [*placed, *(each for each in found if each.plugin is None)]


def with_quarantine(plugins: Iterable[InstalledPlugin], quarantined: Mapping[str, str]) -> Iterator[InstalledPlugin]:
    """Say which plugins a manager does not call for now, and why."""
    for each in plugins:
        reason = quarantined.get(each.name)
        yield each if reason is None else replace(each, state=QUARANTINED, reason=reason)


def _look(effective: EffectiveConfiguration) -> Iterator[InstalledPlugin]:
    given, options = effective.configuration.plugins, plugin_options_in_effect(effective)
    points = discover()
    names = [point.name for point in points]
    for point in points:
        if point.name in given.disabled:
            yield _left_out(point, DISABLED, "plugins.disabled of the configuration names it")
        elif not is_wanted(point, enabled=given.enabled, disabled=given.disabled):
            yield _left_out(point, NOT_ENABLED, "plugins.enabled of the configuration does not name it")
        elif names.count(point.name) > 1:
            reason = "several distributions offer a plugin of this name; uninstall all but one"
            error = PluginInvalid(f"plugin {point.name!r}: {reason}")
            yield InstalledPlugin(point, BROKEN, reason, None, None, error)
        else:
            yield _tried(point, options.get(point.name, {}), effective)


def _tried(point: EntryPoint, options: Any, effective: EffectiveConfiguration) -> InstalledPlugin:
    try:
        make = import_plugin(point)
        gate = getattr(make, "feature_gate", None)
        if gate is not None and not effective.features.get(gate):
            return _left_out(point, GATED, f"the feature gate {gate} is off")
        plugin = make_plugin(point, make, options)
        return InstalledPlugin(point, LOADED, "", describe(plugin, origin=f"plugin {point.name!r}"), plugin)
    except PluginInvalid as error:
        return InstalledPlugin(point, BROKEN, str(error), None, None, error)


def _left_out(point: EntryPoint, state: str, reason: str) -> InstalledPlugin:
    """One that is not loaded; what it says of itself is read if that is possible without it."""
    try:
        descriptor = describe_point(point) if state == GATED else None
    except PluginInvalid:
        descriptor = None
    return InstalledPlugin(point, state, reason, descriptor, None)


def plugin_problems(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Say what keeps a manager from loading the plugins, each by itself and all together; also unknown names."""
    given, installed = effective.configuration.plugins, installed_plugins(effective)
    yield from _unknown_names(given, sorted(each.name for each in installed))
    broken = [each for each in installed if each.error is not None]
    for each in broken:
        if is_own(each.point) or given.on_load_error != SKIP:
            yield from _problems_of(each, given)
    if not broken:  # each for itself is in order: what remains is what they say of each other
        try:
            Framework([each.plugin for each in installed if each.plugin is not None])
        except PluginInvalid as error:
            yield Problem("plugins", str(error))


def _unknown_names(given: Plugins, names: list[str]) -> Iterator[Problem]:
    places = [
        (f"{option}[{at}]", name)
        for option in ("enabled", "disabled")
        for at, name in enumerate(getattr(given, option))
    ]
    places += [(f"options.{name}", name) for name in given.options]
    places += [(f"failurePolicy.{name}", name) for name in given.failure_policy]
    for place, name in places:
        if name not in names and name != ALL:
            yield Problem(f"plugins.{place}", f"no such plugin is installed here {did_you_mean(name, names)}")


def _problems_of(broken: InstalledPlugin, given: Plugins) -> Iterator[Problem]:
    """Say each field of its options that is wrong, if it is that, with its own place."""
    error, name = broken.error, broken.name
    if error is not None and isinstance(error.__cause__, ModelInvalid):
        yield from (Problem(each.path, each.text) for each in error.__cause__.problems)
    else:
        yield Problem(f"plugins.options.{name}" if name in given.options else "plugins", str(error))


def plugin_notices(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Say which plugins do not run that are not disabled, and which options are of such."""
    given = effective.configuration.plugins
    for each in installed_plugins(effective):
        if each.error is not None and given.on_load_error == SKIP and not is_own(each.point):
            yield Problem("plugins", f"{each.error}; the manager runs without it, as plugins.onLoadError says")
        elif each.state in (NOT_ENABLED, GATED) and each.name in given.options:
            yield Problem(f"plugins.options.{each.name}", f"no effect: {each.reason}")


def quarantined_plugins(address: str) -> dict[str, str]:
    """Return the plugins that a manager does not call for now, each with the reason.

    `address` is where it serves probes; with a path if that is not `/readyz`.

    Raises:
        CommandError: It cannot be asked.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise CommandError(f"--manager {address!r} is no address; give that of its probes, http://127.0.0.1:8081 say")
    url = f"{parts.scheme}://{parts.netloc}{parts.path if parts.path not in ('', '/') else _READYZ}?verbose"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310 - http or https, as was checked
            text = response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")  # not ready, and tells all the same
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CommandError(
            f"the manager cannot be asked at {url}: {reason}; --manager is where it serves probes"
        ) from error
    found = _LINE.search(text)
    parts_of_line = found[1].split("; ") if found else []
    return {each[1]: each[2] for part in parts_of_line if (each := _QUARANTINED.match(part))}


def shown(installed: InstalledPlugin) -> dict[str, Any]:
    """Return what is to be told of a plugin, for people and programs alike; what is empty is left out."""
    descriptor, plugin = installed.descriptor, installed.plugin
    told: dict[str, Any] = {
        "name": installed.name,
        "about": _summary(plugin),
        "distribution": f"{installed.distribution} {installed.version}".strip(),
        "class": installed.point.value,
        "state": installed.state,
        "reason": installed.reason,
    }
    if descriptor is not None:
        told |= {
            "apiVersion": descriptor.api_version,
            "maturity": descriptor.maturity,
            "featureGate": descriptor.feature_gate,
            "order": installed.position,
            "before": list(descriptor.place.before),
            "after": list(descriptor.place.after),
            "priority": descriptor.place.priority,
            "serves": _whom(installed),
            "replaces": list(descriptor.replaces),
            "failurePolicy": descriptor.failure_policy,
            "extensionPoints": list(descriptor.extension_points),
        }
    if descriptor is not None and plugin is not None:
        told["options"] = _options(installed)
        told["customPolicies"] = {
            f"{policy}.custom.config": fields_of(model) for policy, model in descriptor.custom_policies.items()
        }
        told["watches"] = _watches(installed)
    return {key: value for key, value in told.items() if value not in (None, "", [], {})}


def _summary(plugin: Any) -> str:
    text = inspect.getdoc(type(plugin)) if plugin is not None else None
    return (text or "").partition("\n\n")[0].replace("\n", " ")


def _whom(installed: InstalledPlugin) -> str:
    descriptor = installed.descriptor
    if descriptor is None:
        return ""
    if descriptor.decides:
        return "the TrainJobs for which its applies_to says so"
    policies = served_policies(descriptor)
    return f"TrainJobs whose runtime has {' or '.join(policies)}" if policies else _ALL_JOBS


def _options(installed: InstalledPlugin) -> dict[str, Any]:
    if installed.descriptor is not None and installed.descriptor.options_model is not None:
        return fields_of(installed.descriptor.options_model)
    signature = inspect.signature(type(installed.plugin))
    return {
        name: {"default": "required" if each.default is each.empty else repr(each.default)}
        for name, each in signature.parameters.items()
        # What is a function is for tests and for code that embeds us; no file can hold one.
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and not callable(each.default)
    }


def fields_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model: what each is, and what it is by default."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    return {
        name: {
            **{key: value for key, value in field.items() if key not in ("title", "default")},
            "default": "required" if name in required else field.get("default"),
        }
        for name, field in schema.get("properties", {}).items()
    }


def _watches(installed: InstalledPlugin) -> list[dict[str, Any]]:
    if installed.plugin is None:
        return []
    try:
        watches = Framework([installed.plugin]).watches()
    except PluginInvalid as error:
        return [{"error": str(error)}]
    return [_watch(each) for each in watches]


def _watch(watch: Watch) -> dict[str, Any]:
    from trainmaster.controller.manager import caches, rights  # noqa: PLC0415 - needed for this only

    rules = [*caches.policy_rules([watch]), *rights.trainjob_rules([watch])]
    told = {
        "apiVersion": watch.api_version,
        "kind": watch.kind,
        "labelSelector": watch.label_selector,
        "namespaces": list(watch.namespaces),
        "metadataOnly": watch.metadata_only,
        "workload": watch.workload,
        "optional": watch.optional,
        "rights": sorted({verb for rule in rules for verb in rule.verbs if rule.resource == watched_resource(watch)}),
    }
    return {key: value for key, value in told.items() if value}
