"""The plugin framework: finds plugins, checks them, orders them and runs them.

Guarantees:
- Built-in and third-party plugins enter alike, through the entry-point group `trainmaster.plugins`.
- The order within a phase is the same in every process: by `before`/`after`, then by priority (higher first), then by
  name. `Framework.order` prints it.
- A plugin that cannot be loaded, or that does not fit the interface, is named together with its distribution when the
  framework is made: nothing surprising happens later.
- A plugin that raises fails the call with `PluginFailed`, which names it; other TrainJobs are not concerned.
- Each call is counted and timed by the observer that the framework gets.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import orjson

from trainmaster.runtime import extension
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.extension import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    Build,
    Desired,
    EnforceMLPolicy,
    EnforcePodGroup,
    EnforcePodSpec,
    Finding,
    PreBuild,
    Rejected,
    Status,
    StatusReport,
    Validate,
    WatchExtension,
)
from trainmaster.runtime.facts import Facts, Watch
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject

Observer = Callable[[str, str, float, bool], None]
"""Called after each plugin call with plugin name, phase, seconds taken and whether it succeeded."""

PHASES: Mapping[str, type] = {
    "enforce_ml_policy": EnforceMLPolicy,
    "enforce_pod_group": EnforcePodGroup,
    "enforce_pod_spec": EnforcePodSpec,
    "pre_build": PreBuild,
    "build": Build,
    "watch_extension": WatchExtension,
    "validate": Validate,
    "status": Status,
}


ENFORCING = ("enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "pre_build")
"""The phases that change an Info, in order."""

FRAMEWORKS = ("torch", "mpi", "jax", "xgboost", "flux")
"""The fields of `mlPolicy` that choose a framework."""

SCHEDULERS = ("coscheduling", "volcano")
"""The fields of `podGroupPolicy` that choose a gang scheduler."""

COLLECTING = ("build", "validate")
"""The phases whose plugins return any number of results."""


class PluginInvalid(Exception):
    """A plugin cannot be used: it does not load, does not fit the interface, or contradicts another one."""


class PluginFailed(Exception):
    """A plugin raised an error for one TrainJob; the cause is the original exception."""

    def __init__(self, plugin: str, phase: str, cause: Exception) -> None:
        self.plugin = plugin
        self.phase = phase
        self.rejected = isinstance(cause, Rejected)
        text = str(cause) if self.rejected else f"plugin {plugin} failed in {phase}: {type(cause).__name__}: {cause}"
        super().__init__(text)


def discover(group: str = ENTRY_POINT_GROUP) -> list[EntryPoint]:
    """List the plugins that installed distributions offer, by name."""
    return sorted(entry_points(group=group), key=lambda point: point.name)


def load_plugins(
    points: Iterable[EntryPoint] | None = None,
    *,
    disabled: frozenset[str] = frozenset(),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    features: frozenset[str] = frozenset(),
) -> list[extension.Plugin]:
    """Load and construct plugins.

    Args:
        points: The entry points to load; default is everything installed.
        disabled: Names of plugins that are left out without being imported.
        options: Keyword arguments of plugins, by plugin name.
        features: The feature gates that are open; a plugin behind another one is left out.

    Raises:
        PluginInvalid: A plugin does not load, or the names do not add up.
    """
    options = dict(options or {})
    plugins: dict[str, extension.Plugin] = {}
    known: set[str] = set()
    for point in discover() if points is None else points:
        known.add(point.name)
        if point.name in disabled:
            continue
        source = point.dist.name if point.dist else "an unknown distribution"
        origin = f"plugin {point.name!r} ({point.value}, from {source})"
        make = _import(point, origin)
        gate = getattr(make, "feature_gate", None)
        if gate is not None and gate not in features:
            continue
        place = f"plugins.options.{point.name} of the configuration file"
        plugin = _construct(make, options.get(point.name, {}), origin=origin, place=place)
        if plugin.name in plugins:
            raise PluginInvalid(
                f"{origin} has the same name as another plugin: {plugin.name!r}. Disable or uninstall one of them."
            )
        plugins[plugin.name] = plugin
    unknown = sorted((disabled | options.keys()) - known)
    if unknown:
        raise PluginInvalid(
            f"the configuration names unknown plugins: {', '.join(unknown)}; installed are: {', '.join(sorted(known))}"
        )
    return list(plugins.values())


def _import(point: EntryPoint, origin: str) -> Callable[..., extension.Plugin]:
    try:
        make: Callable[..., extension.Plugin] = point.load()
    except Exception as error:
        raise _unloadable(origin, error) from error
    return make


def _construct(
    make: Callable[..., extension.Plugin], options: Mapping[str, Any], *, origin: str, place: str
) -> extension.Plugin:
    """Make a plugin and check it; `place` is where whoever wrote the options finds them."""
    _check_options(make, options, origin=origin, place=place)
    try:
        plugin = make(**options)
    except Exception as error:
        if options and isinstance(error, TypeError | ValueError):
            raise PluginInvalid(f"{origin} does not accept its options: {error}; correct {place}") from error
        raise _unloadable(origin, error) from error
    check_plugin(plugin, origin=origin)
    return plugin


def _check_options(
    make: Callable[..., extension.Plugin], options: Mapping[str, Any], *, origin: str, place: str
) -> None:
    """Refuse options that a plugin does not have, and their absence where it needs them."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # a function of C may not tell
        return
    named = {each.name: each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    unknown = sorted(options.keys() - named.keys())
    if unknown and not takes_any:
        # Functions are for tests and for code that embeds us; no file can hold one.
        offered = sorted(
            name for name, each in named.items() if each.default is each.empty or not callable(each.default)
        )
        wrong = f"{origin} has no option {unknown[0]!r}"
        if not offered:
            raise PluginInvalid(f"{wrong}, nor any other; remove {place}")
        raise PluginInvalid(f"{wrong}; it has: {', '.join(offered)}; correct {place}")
    for name, each in named.items():
        if each.default is each.empty and name not in options:
            raise PluginInvalid(f"{origin} needs the option {name!r}; set it in {place}")


def _unloadable(origin: str, error: Exception) -> PluginInvalid:
    return PluginInvalid(f"{origin} cannot be loaded: {type(error).__name__}: {error}")


def check_plugin(plugin: extension.Plugin, *, origin: str) -> None:
    """Check that an object fits the interface.

    Raises:
        PluginInvalid: It does not; the message says what to change.
    """
    if not isinstance(getattr(plugin, "name", None), str) or not plugin.name:
        raise PluginInvalid(f"{origin} has no name: give its class a `name`")
    wanted = str(getattr(plugin, "api_version", f"{API_VERSION[0]}.0"))
    major, _, minor = wanted.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise PluginInvalid(f'{origin} states api_version {wanted!r}; write it as major.minor, for instance "1.0"')
    if int(major) != API_VERSION[0] or int(minor) > API_VERSION[1]:
        offered = ".".join(map(str, API_VERSION))
        raise PluginInvalid(
            f"{origin} needs plugin API {wanted}, this Trainmaster offers {offered}: install matching versions"
        )
    _check_place(plugin, origin)
    points = [name for name in PHASES if callable(getattr(plugin, name, None))]
    if not points:
        raise PluginInvalid(f"{origin} implements no extension point; it needs at least one of: {', '.join(PHASES)}")
    for name in points:
        expected = list(inspect.signature(getattr(PHASES[name], name)).parameters)[1:]
        actual = list(inspect.signature(getattr(plugin, name)).parameters)
        if actual != expected:
            raise PluginInvalid(f"{origin}: {name}({', '.join(actual)}) must be {name}({', '.join(expected)})")
        method = getattr(plugin, name)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise PluginInvalid(f"{origin}: {name} must be a plain function, not async: plugins decide, they do no I/O")


def _check_place(plugin: extension.Plugin, origin: str) -> None:
    priority = getattr(plugin, "priority", 0)
    if not isinstance(priority, int):
        raise PluginInvalid(f"{origin}: priority must be a whole number, not {priority!r}")
    for side in ("before", "after"):
        names = getattr(plugin, side, ())
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise PluginInvalid(f"{origin}: {side} must be a list or tuple of plugin names, not {names!r}")


@dataclass(frozen=True, slots=True)
class _Place:
    priority: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def _place(plugin: extension.Plugin) -> _Place:
    return _Place(
        priority=getattr(plugin, "priority", 0),
        before=tuple(getattr(plugin, "before", ())),
        after=tuple(getattr(plugin, "after", ())),
    )


def order_plugins(plugins: Sequence[extension.Plugin]) -> list[extension.Plugin]:
    """Sort plugins: `before` and `after` first (names that are not loaded do not matter), then priority, then name.

    Raises:
        PluginInvalid: `before` and `after` contradict each other.
    """
    by_name = {plugin.name: plugin for plugin in plugins}
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_name, ()))
    for plugin in plugins:
        place = _place(plugin)
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
    ordered: list[extension.Plugin] = []
    ready: list[str] = []
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        ready.sort(key=lambda name: (-_place(by_name[name]).priority, name))
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
    return ordered


class Framework:
    """The loaded plugins, ready to run. Immutable after construction."""

    def __init__(self, plugins: Sequence[extension.Plugin], *, observer: Observer | None = None) -> None:
        for plugin in plugins:
            check_plugin(plugin, origin=f"plugin {getattr(plugin, 'name', plugin)!r}")
        self._plugins = order_plugins(plugins)
        self._by_phase: dict[str, list[Any]] = {
            phase: [plugin for plugin in self._plugins if isinstance(plugin, point)] for phase, point in PHASES.items()
        }
        self._served = {name for plugin in self._plugins for name in getattr(plugin, "policies", ())}
        self._observer = observer
        reporters = [plugin.name for plugin in self._by_phase["status"]]
        if len(reporters) > 1:
            raise PluginInvalid(
                "only one plugin may report the status of a TrainJob, these do: "
                f"{', '.join(reporters)}; disable all but one"
            )

    def names(self) -> list[str]:
        """Names of the plugins, in order."""
        return [plugin.name for plugin in self._plugins]

    def order(self) -> dict[str, list[str]]:
        """Names of the plugins that run in each phase, in order."""
        return {phase: [plugin.name for plugin in plugins] for phase, plugins in self._by_phase.items()}

    def unserved_policy(self, info: Info) -> str | None:
        """Name the policy of a runtime that no plugin serves, as `mlPolicy.torch`."""
        choices = (("mlPolicy", info.ml_policy, FRAMEWORKS), ("podGroupPolicy", info.pod_group_policy, SCHEDULERS))
        for part, policy, names in choices:
            for name in names:
                if getattr(policy, name, None) is not None and name not in self._served:
                    return f"{part}.{name}"
        return None

    def watches(self) -> list[Watch]:
        """Everything that plugins declared, in plugin order.

        Raises:
            PluginInvalid: A plugin cannot say what it watches.
        """
        watches: list[Watch] = []
        for plugin in self._by_phase["watch_extension"]:
            try:
                declared = list(plugin.watch_extension())
            except Exception as error:
                raise PluginInvalid(
                    f"plugin {plugin.name}: watch_extension failed: {type(error).__name__}: {error}"
                ) from error
            for watch in declared:
                if not isinstance(watch, Watch):
                    raise PluginInvalid(
                        f"plugin {plugin.name}: watch_extension must return Watch objects, not {type(watch).__name__}"
                    )
            watches += declared
        return watches

    def enforce(self, info: Info, job: TrainJob) -> None:
        """Run the enforce phases and pre-build on `info`.

        Raises:
            PluginFailed: A plugin raised; later ones were not run.
        """
        for phase in ENFORCING:
            for plugin in self._by_phase[phase]:
                self._call(plugin, phase, info, job)

    def build(self, info: Info, job: TrainJob, facts: Facts) -> list[Desired]:
        """Collect the objects of all plugins, each with namespace and owner, in plugin order.

        Raises:
            PluginFailed: A plugin raised, it built what cannot be an object of this TrainJob, or two plugins build the
                same object.
        """
        objects: dict[tuple[str, str, str], Desired] = {}
        for builder in self._by_phase["build"]:
            for desired in self._call(builder, "build", info, job, facts):
                try:
                    owned = Desired(_owned(_checked(desired), job), desired.when)
                except (TypeError, ValueError) as error:
                    raise PluginFailed(builder.name, "build", error) from error
                if owned.identity in objects:
                    _, kind, name = owned.identity
                    raise PluginFailed(
                        builder.name, "build", ValueError(f"another plugin builds {kind} {name} as well")
                    )
                objects[owned.identity] = owned
        return list(objects.values())

    def validate(self, info: Info, job: TrainJob, old: TrainJob | None, facts: Facts) -> list[Finding]:
        """Collect what all plugins have to say about a TrainJob.

        Raises:
            PluginFailed: A plugin raised.
        """
        findings: list[Finding] = []
        for judge in self._by_phase["validate"]:
            findings += self._call(judge, "validate", info, job, old, facts)
        return findings

    def status(self, job: TrainJob, facts: Facts) -> StatusReport | None:
        """Ask for the state of the workload; None when there is no workload or nobody who could know.

        Raises:
            PluginFailed: The plugin raised, or returned what is no report.
        """
        for reporter in self._by_phase["status"]:
            report = self._call(reporter, "status", job, facts)
            if report is None or (isinstance(report, StatusReport) and all(map(_is_condition, report.conditions))):
                return report
            fault = f"it must return a StatusReport whose conditions have type and status, not {report!r}"
            raise PluginFailed(reporter.name, "status", TypeError(fault))
        return None

    def _call(self, plugin: extension.Plugin, phase: str, *arguments: object) -> Any:
        started = time.perf_counter()
        succeeded = False
        try:
            result = getattr(plugin, phase)(*arguments)
            if phase in COLLECTING:
                result = list(result)  # a generator runs here, where its errors are caught
            succeeded = True
        except Exception as error:
            raise PluginFailed(plugin.name, phase, error) from error
        finally:
            if self._observer is not None:
                self._observer(plugin.name, phase, time.perf_counter() - started, succeeded)
        return result


def _is_condition(condition: Any) -> bool:
    return isinstance(condition, dict) and all(isinstance(condition.get(field), str) for field in ("type", "status"))


def _checked(desired: Any) -> JsonObject:
    """Return the object that a plugin built after checking that it is one."""
    if not isinstance(desired, Desired):
        raise TypeError(f"build must return Desired objects, not {type(desired).__name__}")
    try:
        identity: tuple[object, ...] = desired.identity
    except (AttributeError, KeyError, TypeError):
        identity = ("", "", "")
    if not all(isinstance(part, str) and part for part in identity):
        raise ValueError("it built something without apiVersion, kind and metadata.name")
    try:
        orjson.dumps(desired.object)
    except orjson.JSONEncodeError as error:
        raise TypeError(f"{desired.object['kind']} {desired.object['metadata']['name']} is no JSON: {error}") from error
    return desired.object


def _owned(obj: JsonObject, job: TrainJob) -> JsonObject:
    namespace = job.metadata.namespace
    owned: JsonObject = {**obj, "metadata": {"namespace": namespace, **obj["metadata"]}}
    owned["metadata"].setdefault("ownerReferences", [owner_reference(job)])
    what = f"{obj['kind']} {obj['metadata']['name']}"
    if owned["metadata"]["namespace"] != namespace:
        raise ValueError(f"{what} is in namespace {owned['metadata']['namespace']!r}, not in that of the TrainJob")
    if not is_controlled_by(owned, job):
        raise ValueError(f"the ownerReferences of {what} do not make the TrainJob its controller")
    return owned


def owner_reference(job: TrainJob) -> JsonObject:
    """Build the reference that makes a TrainJob the controller of an object."""
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_controlled_by(obj: JsonObject, job: TrainJob) -> bool:
    """Tell whether a TrainJob is the controller of an object: by UID, since a name may have been used before (E-5)."""
    references = obj["metadata"].get("ownerReferences") or []
    return any(reference.get("controller") and reference.get("uid") == job.metadata.uid for reference in references)
