"""The framework: runs the plugins of each phase in their order, for the TrainJobs that they serve.

Guarantees:
- Nothing that a plugin does to what it gets, or later to what it has returned, is seen by our own code or by the
  TrainJobs of others. It gets copies: of the TrainJob here, in the `Info` by the resolver, from listers by their own
  guarantee. Plugins of one resolution share the `Info` and the copy of the TrainJob. Our own change no TrainJob: while
  there are no others, none is copied.
- A plugin that fails concerns the TrainJobs that it serves and no other. Of one whose failure policy is "skip" nothing
  is left in the resolution in which it failed.
- Each call is counted and timed by the observer that the framework gets, and each of a plugin of others goes through
  the guard that it gets.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainmaster.runtime.api.trainingruntime import MLPolicy, PodGroupPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import results
from trainmaster.runtime.framework.calls import CallGuard, Calls, Observer, PluginFailed
from trainmaster.runtime.framework.descriptor import SCHEDULING, Descriptor, Selection, describe, is_own, order_plugins
from trainmaster.runtime.framework.interface import Desired, KindNotServed, Plugin, StatusReport
from trainmaster.runtime.framework.models import (
    CONFIG_PHASE,
    config_of,
    config_problems,
    customs,
    unserved_text,
)
from trainmaster.runtime.framework.resolution import ResolutionRun, Tracer
from trainmaster.runtime.framework.signatures import PHASES, PluginInvalid, implements
from trainmaster.runtime.framework.watches import declared_watches, refuse_contradictions, takes_listers
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject, copy_json
from trainmaster.runtime.listers import NO_LISTERS, IndexFunction, JobKey, Listers, Watch

ENFORCING = ("enforce_ml_policy", "enforce_pod_group", "enforce_pod_spec", "pre_build")
"""The phases that change an Info, in order."""

FRAMEWORKS = ("torch", "mpi", "jax", "xgboost", "flux")
"""The fields of `mlPolicy` that choose a framework."""

SCHEDULERS = ("coscheduling", "volcano")
"""The fields of `podGroupPolicy` that choose a gang scheduler."""

MAPPING = "Watch.jobs"
"""The phase of calls that map an object to TrainJobs, in metrics and messages."""

INDEXING = "Watch.indexes"
"""The phase of calls that tell under which values an object is found, likewise."""

SKIP = "skip"


class Built(NamedTuple):
    """What the plugins made of a TrainJob."""

    objects: list[Desired]
    skipped: list[PluginFailed]
    """Failures of plugins without which it was made."""

    builders: Mapping[tuple[str, str, str], str]
    """The plugin that built each object, by the object's identity."""


class Framework:
    """The loaded plugins, ready to run. Nothing of it changes but by `replace`.

    Args:
        plugins: The plugins, in any order.
        failure_policies: Failure policies by plugin, instead of what the plugins say of themselves.
        not_loaded: Plugins that should be among them, but could not be loaded.
    """

    def __init__(
        self,
        plugins: Sequence[Plugin],
        *,
        observer: Observer | None = None,
        guard: CallGuard | None = None,
        failure_policies: Mapping[str, str] | None = None,
        not_loaded: Collection[str] = (),
    ) -> None:
        described = (describe(each, origin=f"plugin {getattr(each, 'name', each)!r}") for each in plugins)
        self._descriptors = {each.name: each for each in described}
        self._plugins = order_plugins(plugins)
        self._by_phase: dict[str, list[Plugin]] = {
            phase: [plugin for plugin in self._plugins if implements(plugin, phase)] for phase in PHASES
        }
        self.not_loaded = tuple(sorted(not_loaded))
        """The plugins that should run and could not be loaded."""

        own = frozenset(plugin.name for plugin in self._plugins if is_own(plugin))
        self._has_others = len(own) < len(self._plugins)
        self.guards_others = self._has_others and guard is not None
        """Whether the guard watches plugins of others: called in threads, one that takes too long can be given up."""

        self._calls = Calls(observer=observer, guard=guard, own=own)
        for plugin in self._plugins:
            self._calls.prepare(plugin)
        self._failure_policies = {
            name: (failure_policies or {}).get(name, each.failure_policy) for name, each in self._descriptors.items()
        }
        self._selection = Selection(self._descriptors)
        # What is asked for each TrainJob, of the few that it concerns.
        self._configurable = [plugin for plugin in self._plugins if self._descriptors[plugin.name].custom_policies]
        self._skips_any = SKIP in self._failure_policies.values()
        self._check_report = functools.partial(results.report, own=not self._has_others)
        self._served = {name for each in self._descriptors.values() for name in each.policies}
        self._custom = {
            (policy, name): model
            for name, each in self._descriptors.items()
            for policy, model in each.custom_policies.items()
        }

    def names(self) -> list[str]:
        """Names of the plugins, in order."""
        return [plugin.name for plugin in self._plugins]

    def plugins(self) -> list[Plugin]:
        """The plugins, in order."""
        return list(self._plugins)

    def descriptors(self) -> Mapping[str, Descriptor]:
        """What the plugins say of themselves, by name, in order."""
        return {plugin.name: self._descriptors[plugin.name] for plugin in self._plugins}

    def order(self) -> dict[str, list[str]]:
        """Names of the plugins that run in each phase, in order."""
        return {phase: [plugin.name for plugin in plugins] for phase, plugins in self._by_phase.items()}

    def replace(self, plugin: Plugin) -> None:
        """Put a plugin, made anew, in the place of the one of its name. What is under way ends with the old one.

        Raises:
            PluginInvalid: It says something else of itself, or watches something else.
        """
        old = next(each for each in self._plugins if each.name == plugin.name)
        if describe(plugin, origin=f"plugin {plugin.name!r}") != self._descriptors[plugin.name]:
            raise PluginInvalid(f"plugin {plugin.name!r} says something else of itself with its new options")
        if implements(plugin, "watch_extension") and declared_watches(plugin) != declared_watches(old):
            raise PluginInvalid(
                f"plugin {plugin.name!r} watches something else with its new options; what it watches is the same only "
                "if the functions in it are, which methods of two objects are not"
            )
        self._plugins = [plugin if each is old else each for each in self._plugins]
        self._by_phase = {
            phase: [plugin if each is old else each for each in plugins] for phase, plugins in self._by_phase.items()
        }

    def unserved_policy(self, info: Info) -> str | None:
        """Name the policy of a runtime that no plugin serves, as `mlPolicy.torch`."""
        choices = (("mlPolicy", info.ml_policy, FRAMEWORKS), ("podGroupPolicy", info.pod_group_policy, SCHEDULERS))
        for part, policy, names in choices:
            for name in names:
                if getattr(policy, name, None) is not None and name not in self._served:
                    return f"{part}.{name}"
        if info.scheduling is not None and not self.serves_scheduling:
            return SCHEDULING
        for field, custom in customs(info.ml_policy, info.pod_group_policy):
            if (field, custom.name) not in self._custom:
                return f"{field}.custom of the name {custom.name!r}"
        return None

    @property
    def serves_scheduling(self) -> bool:
        """Whether a plugin serves `spec.scheduling` of runtimes."""
        return SCHEDULING in self._served

    def policy_problems(
        self, ml_policy: MLPolicy | None, pod_group_policy: PodGroupPolicy | None
    ) -> Iterator[FieldError | FieldWarning]:
        """Tell what is wrong with the policies `custom` of a runtime.

        That no plugin serves one is a warning: it may be installed later.
        """
        for policy, custom in customs(ml_policy, pod_group_policy):
            path, model = f"spec.{policy}.custom", self._custom.get((policy, custom.name))
            if model is None:
                serving = {name: each.custom_policies for name, each in self._descriptors.items()}
                text = unserved_text(policy, custom.name, serving, not_loaded=self.not_loaded)
                detail = f"{text}; until one serves it, TrainJobs of this runtime are not built"
                yield FieldWarning(f"{path}.name", detail)
                continue
            judge = functools.partial(config_problems, model, policy, custom.model_copy(deep=True))
            try:
                yield from self._calls.run(custom.name, CONFIG_PHASE, judge)
            except PluginFailed as error:
                if self.skips(custom.name):
                    yield FieldWarning(f"{path}.config", f"is not checked: {error}")
                else:
                    yield FieldError(f"{path}.config", f"cannot be checked: {error}", "InternalError")

    def watches(self) -> list[Watch]:
        """Everything that plugins declared, in plugin order; each says who declared it. They are asked once.

        Their `jobs`, which take an object and listers now, and their `indexes` are calls of plugins like all others:
        timed and counted, given an object of their own, and what they raise, or return that does not fit, comes as
        `PluginFailed`.

        Raises:
            PluginInvalid: A plugin cannot say what it watches, or two contradict each other.
        """
        return list(self._watches)

    @functools.cached_property
    def _watches(self) -> list[Watch]:
        watches: list[Watch] = []
        for plugin in self._by_phase["watch_extension"]:
            serves_all = self._descriptors[plugin.name].serves_all
            for watch in declared_watches(plugin):
                jobs = watch.jobs and self._mapper(plugin.name, watch.jobs)
                indexes = {
                    name: functools.partial(self._index, plugin.name, each) for name, each in watch.indexes.items()
                }
                filled = dataclasses.replace(watch, jobs=jobs, indexes=indexes, declared_by=plugin.name)
                required = watch.workload and serves_all and not watch.optional
                watches.append(dataclasses.replace(filled, required=required))
        refuse_contradictions(watches)
        return watches

    @functools.cached_property
    def pruned(self) -> Collection[tuple[str, str]]:
        """The kinds of which nothing stays that is not built any more, by API version and kind."""
        return dict.fromkeys((watch.api_version, watch.kind) for watch in self._watches if watch.prunes)

    @functools.cached_property
    def _needed(self) -> Mapping[str, list[Watch]]:
        """By plugin: the kinds without which it can do nothing."""
        needed: dict[str, list[Watch]] = {}
        try:
            for watch in self._watches:
                if not watch.optional:
                    needed.setdefault(watch.declared_by, []).append(watch)
        except PluginInvalid:
            return {}  # whoever asks for the watches is told
        return needed

    def lacks_kinds(self, plugin: Plugin, listers: Listers) -> Watch | None:
        """Return a kind that a plugin cannot do without and that the cluster does not serve."""
        for watch in self._needed.get(plugin.name, ()):
            if not listers.is_served(watch.api_version, watch.kind):
                return watch
        return None

    def require_kinds(self, plugin: Plugin, listers: Listers) -> None:
        """Refuse to do without a plugin's kinds.

        Raises:
            PluginFailed: The cluster does not serve one; the cause is `KindNotServed`.
        """
        watch = self.lacks_kinds(plugin, listers)
        if watch is not None:
            raise PluginFailed(plugin.name, "watch_extension", KindNotServed(watch))

    def serving(self, info: Info, job: TrainJob, *, without: Collection[str] = ()) -> list[Plugin]:
        """Return the plugins that serve a TrainJob, in order.

        Args:
            info: Its Info, before any plugin ran.
            job: The TrainJob; a plugin that changes it is the caller's concern.
            without: Plugins that are left out, as if they were not loaded.

        Raises:
            PluginFailed: A plugin cannot say whether it does.
        """
        # First what takes no plugin's word: asking one may change what others are asked about.
        chosen, deciding = self._selection.chosen(info), self._selection.deciding
        found = [
            plugin
            for plugin in self._plugins
            if plugin.name not in without
            and (plugin.name in chosen or (plugin.name in deciding and self._applies(plugin, info, job)))
        ]
        replaced = {name for plugin in found for name in self._descriptors[plugin.name].replaces}
        return [plugin for plugin in found if plugin.name not in replaced] if replaced else found

    def resolve(self, info: Info, job: TrainJob, listers: Listers, *, tracer: Tracer | None = None) -> Built:
        """Run the enforcing phases, then build; returns complete, owned objects in build order.

        Raises:
            PluginFailed: A plugin raised, it built what cannot be an object of this TrainJob, or two plugins build the
                same object. Later ones were not run.
        """
        by_phase = self._by_phase
        skipped: list[PluginFailed] = []
        before = _copied(info) if self._skips_any else None
        while True:
            try:
                without = {each.plugin for each in skipped}
                run = self._run(info, job, listers, tracer, without=without)
                for phase in ENFORCING:
                    for plugin in by_phase[phase]:
                        if plugin.name in run.serving:
                            run.enforce(plugin, phase)
                for plugin in by_phase["build"]:
                    if plugin.name in run.serving:
                        run.build(plugin)
            except PluginFailed as error:
                if before is None or error.rejected or not self.skips(error.plugin):
                    raise
                # From the beginning: of what it did before, and of what others made of that, nothing may be left.
                skipped.append(error)
                _restore(info, before)
                before = _copied(info)
                if tracer is not None:
                    tracer.enforced(error.plugin, error.phase, info)
            else:
                return Built(list(run.built.values()), skipped, run.builders)

    def _run(
        self, info: Info, job: TrainJob, listers: Listers, tracer: Tracer | None, *, without: Collection[str]
    ) -> ResolutionRun:
        # All of it before a plugin may change what it is read from.
        configs = self._configs(info, job=job.metadata.uid)
        given = self._given(job)
        serving = self.serving(info, given, without=without)
        for plugin in serving:
            if plugin.name in self._needed:
                self.require_kinds(plugin, listers)
        names = {plugin.name for plugin in serving}
        return ResolutionRun(
            self._calls,
            info,
            job,
            listers,
            given=given,
            serving=names,
            configs=configs,
            own=not self._has_others,
            tracer=tracer,
        )

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> tuple[list[FieldError], list[FieldWarning]]:
        """Collect the errors and the warnings of the plugins that serve a TrainJob about it.

        Raises:
            PluginFailed: A plugin raised, or returned what is neither.
        """
        theirs = self._given(job)
        uid = job.metadata.uid
        arguments = {
            "info": info,
            "job": theirs,
            "old": None if old is None else self._given(old),
            "listers": listers,
        }
        configs = self._configs(info, job=uid)
        errors: list[FieldError] = []
        warnings: list[FieldWarning] = []
        serving = {each.name for each in self._serving_at_admission(info, theirs, warnings)}
        for plugin in self._by_phase["validate"]:
            # By name: one may have been replaced meanwhile. Without its kinds it cannot judge; the resolution says so.
            if plugin.name not in serving or self.lacks_kinds(plugin, listers) is not None:
                continue
            try:
                given = {**arguments, "config": configs.get(plugin.name)}
                found = self._calls.call(plugin, "validate", results.field_results, given, job=uid)
            except PluginFailed as error:
                if error.rejected or not self.skips(plugin.name):
                    raise
                warnings.append(_unchecked(error))
                continue
            errors += found[0]
            warnings += found[1]
        return errors, warnings

    def _serving_at_admission(self, info: Info, job: TrainJob, warnings: list[FieldWarning]) -> list[Plugin]:
        without: set[str] = set()
        while True:
            try:
                return self.serving(info, job, without=without)
            except PluginFailed as error:
                if error.rejected or not self.skips(error.plugin):
                    raise
                without.add(error.plugin)
                warnings.append(_unchecked(error))

    def status(self, job: TrainJob, listers: Listers, *, without: Collection[str] = ()) -> StatusReport | None:
        """Return the state of the workload; None when there is no workload, or no plugin that could know.

        Raises:
            PluginFailed: The plugin raised, or returned what is no report. It may be one that does not serve the
                TrainJob: it is left out if it is named in `without`.
        """
        for plugin in self._by_phase["status"]:
            if plugin.name in without:
                continue
            arguments = {"job": self._given(job), "listers": listers}
            report = self._calls.call(plugin, "status", self._check_report, arguments, job=job.metadata.uid)
            if report is not None:
                return report
        return None

    def _given(self, job: TrainJob) -> TrainJob:
        """Return what plugins get of a TrainJob."""
        return job.model_copy(deep=True) if self._has_others else job

    def skips(self, plugin: str) -> bool:
        """Tell whether a TrainJob goes on without a plugin that failed."""
        return self._failure_policies[plugin] == SKIP

    def _applies(self, plugin: Plugin, info: Info, job: TrainJob) -> bool:
        uid = job.metadata.uid
        arguments = {"info": info, "job": job, "config": self._config(plugin, info, job=uid)}
        return self._calls.call(plugin, "applies_to", results.truth, arguments, job=uid)

    def _configs(self, info: Info, *, job: str) -> dict[str, Any]:
        """Return the policies `custom` that a runtime has, by the plugin of each, as models of these.

        Raises:
            PluginFailed: One does not fit the model.
        """
        return {plugin.name: self._config(plugin, info, job=job) for plugin in self._configurable}

    def _config(self, plugin: Plugin, info: Info, *, job: str) -> Any:
        for policy, custom in customs(info.ml_policy, info.pod_group_policy):
            # Others are no call of the plugin: one that must not be called concerns only those who have its policy.
            if custom.name == plugin.name and (model := self._custom.get((policy, plugin.name))) is not None:
                read = functools.partial(config_of, model, policy, custom)
                return self._calls.run(plugin.name, CONFIG_PHASE, read, job=job)
        return None

    def _mapper(self, plugin: str, jobs: Callable[..., Iterable[JobKey]]) -> Callable[..., list[JobKey]]:
        with_listers = takes_listers(jobs)

        def mapped(obj: JsonObject, listers: Listers = NO_LISTERS) -> list[JobKey]:
            given = {"listers": listers} if with_listers else {}
            return self._calls.run(plugin, MAPPING, lambda: results.job_keys(jobs(copy_json(obj), **given)))

        return mapped

    def _index(self, plugin: str, function: IndexFunction, obj: JsonObject) -> list[str]:
        return self._calls.run(plugin, INDEXING, lambda: results.index_values(function(copy_json(obj))))


def _unchecked(error: PluginFailed) -> FieldWarning:
    return FieldWarning("spec", f"is not checked by the plugin {error.plugin}: {error}")


def _copied(info: Info) -> dict[str, Any]:
    """Copy an Info: pod sets stay views into the template."""
    fields = {each.name: getattr(info, each.name) for each in dataclasses.fields(info) if each.name != "listers"}
    return copy.deepcopy(fields)


def _restore(info: Info, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        setattr(info, name, value)
