"""The framework: runs the plugins of each phase in their order, and checks and owns what they build.

Guarantees:
- A plugin that raises fails the call with `PluginFailed`, which names it; other TrainJobs are not concerned.
- The order within a phase is the same in every process: by `before` and `after`, then priority (higher first), then
  name. `Framework.order` prints it.
- Each call is counted and timed by the observer that the framework gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import orjson

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import interface
from trainmaster.runtime.framework.interface import Desired, NotReady, Rejected, StatusReport
from trainmaster.runtime.framework.loader import PHASES, PluginInvalid, check_plugin
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.ownership import is_controlled_by, owner_reference


@dataclass(frozen=True, slots=True)
class _Place:
    priority: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def _place(plugin: interface.Plugin) -> _Place:
    return _Place(
        priority=getattr(plugin, "priority", 0),
        before=tuple(getattr(plugin, "before", ())),
        after=tuple(getattr(plugin, "after", ())),
    )


def order_plugins(plugins: Sequence[interface.Plugin]) -> list[interface.Plugin]:
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
    ordered: list[interface.Plugin] = []
    ready: list[str] = []
    while sorter.is_active():
        ready.extend(sorter.get_ready())
        ready.sort(key=lambda name: (-_place(by_name[name]).priority, name))
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
    return ordered


Observer = Callable[[str, str, float, bool], None]
"""Called after each plugin call with plugin name, phase, seconds taken and whether it succeeded."""

ENFORCING = ("enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "pre_build")
"""The phases that change an Info, in order."""

FRAMEWORKS = ("torch", "mpi", "jax", "xgboost", "flux")
"""The fields of `mlPolicy` that choose a framework."""

SCHEDULERS = ("coscheduling", "volcano")
"""The fields of `podGroupPolicy` that choose a gang scheduler."""

COLLECTING = ("build", "validate")
"""The phases whose plugins return any number of results."""


class PluginFailed(Exception):
    """A plugin raised an error for one TrainJob; the cause is the original exception."""

    def __init__(self, plugin: str, phase: str, cause: Exception) -> None:
        self.plugin = plugin
        self.phase = phase
        self.rejected = isinstance(cause, Rejected)
        self.not_ready = isinstance(cause, NotReady)
        text = str(cause) if self.rejected else f"plugin {plugin} failed in {phase}: {type(cause).__name__}: {cause}"
        super().__init__(text)


class Framework:
    """The loaded plugins, ready to run. Immutable after construction."""

    def __init__(self, plugins: Sequence[interface.Plugin], *, observer: Observer | None = None) -> None:
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

    def build(self, info: Info, job: TrainJob, listers: Listers) -> list[Desired]:
        """Collect the objects of all plugins, each with namespace and owner, in plugin order.

        Raises:
            PluginFailed: A plugin raised, it built what cannot be an object of this TrainJob, or two plugins build the
                same object.
        """
        objects: dict[tuple[str, str, str], Desired] = {}
        for plugin in self._by_phase["build"]:
            for desired in self._call(plugin, "build", info, job, listers):
                try:
                    owned = Desired(_owned(_checked(desired), job), desired.when)
                except (TypeError, ValueError) as error:
                    raise PluginFailed(plugin.name, "build", error) from error
                if owned.identity in objects:
                    _, kind, name = owned.identity
                    raise PluginFailed(plugin.name, "build", ValueError(f"another plugin builds {kind} {name} as well"))
                objects[owned.identity] = owned
        return list(objects.values())

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> tuple[list[FieldError], list[FieldWarning]]:
        """Collect the errors and the warnings of all plugins about a TrainJob.

        Raises:
            PluginFailed: A plugin raised, or returned what is neither.
        """
        errors: list[FieldError] = []
        warnings: list[FieldWarning] = []
        for plugin in self._by_phase["validate"]:
            for result in self._call(plugin, "validate", info, job, old, listers):
                match result:
                    case FieldError():
                        errors.append(result)
                    case FieldWarning():
                        warnings.append(result)
                    case _:
                        fault = f"it must return FieldError and FieldWarning objects, not {type(result).__name__}"
                        raise PluginFailed(plugin.name, "validate", TypeError(fault))
        return errors, warnings

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        """Return the state of the workload; None when there is no workload, or no plugin that could know.

        Raises:
            PluginFailed: The plugin raised, or returned what is no report.
        """
        for plugin in self._by_phase["status"]:
            report = self._call(plugin, "status", job, listers)
            if report is None or (isinstance(report, StatusReport) and all(map(_is_condition, report.conditions))):
                return report
            fault = f"it must return a StatusReport whose conditions have type and status, not {report!r}"
            raise PluginFailed(plugin.name, "status", TypeError(fault))
        return None

    def _call(self, plugin: interface.Plugin, phase: str, *arguments: object) -> Any:
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
