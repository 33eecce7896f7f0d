"""The framework: runs the plugins of each phase in their order, and checks and owns what they build.

Guarantees:
- A plugin that raises, whatever it is, fails the call with `PluginFailed`, which names it, and so does one that returns
  what it may not; other TrainJobs are not concerned.
- Nothing that a plugin does to what it gets, or later to what it has returned, is seen by our own code or by the
  TrainJobs of others. It gets copies: of the TrainJob here, in the `Info` by the resolver, from listers by their own
  guarantee. Plugins of one resolution share the `Info` and the copy of the TrainJob.
- The order within a phase is the same in every process: by `before` and `after`, then priority (higher first), then
  name. `Framework.order` prints it.
- Each call is counted and timed by the observer that the framework gets.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import interface, results
from trainmaster.runtime.framework.interface import Desired, NotReady, Rejected, StatusReport
from trainmaster.runtime.framework.loader import PHASES, PluginInvalid, check_plugin, implements
from trainmaster.runtime.framework.watches import declared_watches, refuse_contradictions
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject, copy_json
from trainmaster.runtime.listers import JobKey, Listers, Watch


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

MAPPING = "Watch.jobs"
"""The phase of calls that map an object to TrainJobs, in metrics and messages."""

_Result = TypeVar("_Result")


class PluginFailed(Exception):
    """A plugin failed for one TrainJob, or for one object that it maps to TrainJobs; the cause is what it raised."""

    def __init__(self, plugin: str, phase: str, cause: BaseException) -> None:
        self.plugin = plugin
        self.phase = phase
        self.rejected = isinstance(cause, Rejected)
        self.not_ready = isinstance(cause, NotReady)
        text = _text_of(cause)
        super().__init__(
            text if self.rejected else f"plugin {plugin} failed in {phase}: {type(cause).__name__}: {text}"
        )


def _text_of(error: BaseException) -> str:
    """Return the text of an error as it can be sent to the API server, whatever a plugin has put in it."""
    try:
        text = str(error)
    except BaseException:
        return "(and its text cannot be read)"
    return text.encode(errors="replace").decode()


class Framework:
    """The loaded plugins, ready to run. Immutable after construction."""

    def __init__(self, plugins: Sequence[interface.Plugin], *, observer: Observer | None = None) -> None:
        for plugin in plugins:
            check_plugin(plugin, origin=f"plugin {getattr(plugin, 'name', plugin)!r}")
        self._plugins = order_plugins(plugins)
        self._by_phase: dict[str, list[Any]] = {
            phase: [plugin for plugin in self._plugins if implements(plugin, phase)] for phase in PHASES
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
        """Everything that plugins declared, in plugin order; each says who declared it.

        Their `jobs` are calls of plugins like all others: timed and counted, given an object of their own, and what
        they raise, or return that does not fit, comes as `PluginFailed`.

        Raises:
            PluginInvalid: A plugin cannot say what it watches, or two contradict each other.
        """
        watches: list[Watch] = []
        for plugin in self._by_phase["watch_extension"]:
            for watch in declared_watches(plugin):
                jobs = watch.jobs and functools.partial(self._map, plugin.name, watch.jobs)
                watches.append(dataclasses.replace(watch, jobs=jobs, declared_by=plugin.name))
        refuse_contradictions(watches)
        return watches

    def resolve(self, info: Info, job: TrainJob, listers: Listers) -> list[Desired]:
        """Run the enforce phases and pre-build on `info`, and collect the objects of all plugins, in plugin order.

        Raises:
            PluginFailed: A plugin raised, it built what cannot be an object of this TrainJob, or two plugins build the
                same object. Later ones were not run.
        """
        theirs = job.model_copy(deep=True)
        for phase in ENFORCING:
            for plugin in self._by_phase[phase]:
                self._call(plugin, phase, results.nothing, info, theirs)
        built: dict[tuple[str, str, str], Desired] = {}
        owned_objects = results.objects_of(job)
        for plugin in self._by_phase["build"]:
            for desired in self._call(plugin, "build", owned_objects, info, theirs, listers):
                if desired.identity in built:
                    _, kind, name = desired.identity
                    raise PluginFailed(plugin.name, "build", ValueError(f"another plugin builds {kind} {name} as well"))
                built[desired.identity] = desired
        return list(built.values())

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> tuple[list[FieldError], list[FieldWarning]]:
        """Collect the errors and the warnings of all plugins about a TrainJob.

        Raises:
            PluginFailed: A plugin raised, or returned what is neither.
        """
        theirs = job.model_copy(deep=True)
        their_old = None if old is None else old.model_copy(deep=True)
        errors: list[FieldError] = []
        warnings: list[FieldWarning] = []
        for plugin in self._by_phase["validate"]:
            found = self._call(plugin, "validate", results.field_results, info, theirs, their_old, listers)
            errors += found[0]
            warnings += found[1]
        return errors, warnings

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        """Return the state of the workload; None when there is no workload, or no plugin that could know.

        Raises:
            PluginFailed: The plugin raised, or returned what is no report.
        """
        for plugin in self._by_phase["status"]:
            return self._call(plugin, "status", results.report, job.model_copy(deep=True), listers)
        return None

    def _map(self, plugin: str, jobs: Callable[[JsonObject], Iterable[JobKey]], obj: JsonObject) -> list[JobKey]:
        return self._run(plugin, MAPPING, jobs, results.job_keys, (copy_json(obj),))

    def _call(
        self, plugin: interface.Plugin, phase: str, check: Callable[[Any], _Result], *arguments: object
    ) -> _Result:
        return self._run(plugin.name, phase, getattr(plugin, phase), check, arguments)

    def _run(
        self,
        plugin: str,
        phase: str,
        function: Callable[..., Any],
        check: Callable[[Any], _Result],
        arguments: tuple[object, ...],
    ) -> _Result:
        """Call a function of a plugin, and check what it returns."""
        started = time.perf_counter()
        succeeded = False
        try:
            result = check(function(*arguments))
            succeeded = True
        except BaseException as error:
            # All of it is the plugin's: nothing is awaited here, so no cancellation comes from elsewhere, and neither
            # `sys.exit` in a plugin nor an interrupt that it raises is a reason to end the process of everybody.
            raise PluginFailed(plugin, phase, error) from error
        finally:
            if self._observer is not None:
                self._observer(plugin, phase, time.perf_counter() - started, succeeded)
        return result
