"""The plugin under test, with the jobs that it is tried with, and what comes out for them.

It runs among the built-in plugins, in their order, as in a manager: so its JobSet is a whole one.

Budgets of calls: steps, which are lines of Python that run, and bytes of memory.

Both are counted, not timed, so that a test of them says the same on every machine. A call that exceeds its steps is
ended, be it in a loop that never ends.
"""

from __future__ import annotations

import functools
import inspect
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from types import FrameType, SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias

from trainmaster.runtime.api.constants import TRAINJOB_KIND
from trainmaster.runtime.api.decoding import ApiTypeError, parse_runtime, parse_trainjob
from trainmaster.runtime.canonical import TemplateInvalid
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.descriptor import describe, is_own
from trainmaster.runtime.framework.interface import ENTRY_POINT_GROUP, ApplyWhen, Desired, Plugin
from trainmaster.runtime.framework.loader import discover, load_plugins, make_plugin, refuse_unknown
from trainmaster.runtime.framework.signatures import PHASES, implements
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import NO_LISTERS, Listers, Watch
from trainmaster.runtime.resolver import JobInvalid, PolicyUnserved, new_info, resolve
from trainmaster.runtime.strategicpatch import MergeError
from trainmaster.runtime.testing import builders

REFUSALS: Final = (ApiTypeError, JobInvalid, MergeError, PolicyUnserved, TemplateInvalid)
"""What keeps a TrainJob from being resolved and is no plugin's fault."""


Around: TypeAlias = Callable[[str, Callable[[], Any], dict[str, Any]], Any]
"""Stands around each call of a plugin: is given phase, call and arguments, and returns what the call returned."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one TrainJob."""

    objects: list[Desired] = field(default_factory=list)
    state: JsonObject = field(default_factory=dict)
    """The Info at the end, as JSON."""

    refused: str = ""
    """Why nothing can be built, in a plugin's or the resolver's words."""

    def settled(self) -> JsonObject:
        """Return all that must be the same each time, by what it is called; what is written once may be random."""
        return {
            "refused": self.refused,
            "state": self.state,
            **{" ".join(each.identity): each.object if _rewritten(each) else each.when.value for each in self.objects},
        }

    def rewritten(self) -> JsonObject:
        """Return the objects that are written whenever they differ."""
        return {" ".join(each.identity): each.object for each in self.objects if _rewritten(each)}


def _rewritten(desired: Desired) -> bool:
    return desired.when in (ApplyWhen.ALWAYS, ApplyWhen.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Subject:
    """A plugin, and what it is tried with."""

    plugin: Any
    """Its class, a function that makes it, the plugin itself, or the name of its entry point."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Its options, as in `plugins.options` of the configuration."""

    runtime: JsonObject = field(default_factory=dict)
    """A runtime that it serves: a whole one, or fields of the spec of one."""

    jobs: Sequence[JsonObject] = ({},)
    """TrainJobs that can be built: whole ones, or fields of their specs."""

    objects: Sequence[JsonObject] = ()
    """What is in the cluster besides."""

    def make(self) -> Plugin:
        """Make the plugin anew, as the loader makes it; one that was given made is that one each time.

        Raises:
            PluginInvalid: It cannot be used; the message says why.
        """
        if isinstance(self.plugin, str):
            installed = discover()
            refuse_unknown({self.plugin}, {point.name for point in installed})
            points = [point for point in installed if point.name == self.plugin]
            return load_plugins(points, options={self.plugin: self.options}, features=_Any())[0]
        if isinstance(self.plugin, type):
            name = getattr(self.plugin, "name", None)
            value = f"{self.plugin.__module__}:{self.plugin.__qualname__}"
            point = EntryPoint(name if isinstance(name, str) else value, value, ENTRY_POINT_GROUP)
            return make_plugin(point, self.plugin, self.options)
        made: Plugin = self.plugin if implements_any(self.plugin) else self.plugin(**self.options)
        describe(made, origin=f"plugin {getattr(made, 'name', made)!r}")
        return made

    @property
    def name(self) -> str:
        """What the plugin is called."""
        name = self.plugin if isinstance(self.plugin, str) else getattr(self.plugin, "name", None)
        return name if isinstance(name, str) else self.make().name

    def whole_runtime(self) -> JsonObject:
        """The runtime, complete."""
        if "kind" in self.runtime:
            return copy_tree(self.runtime)  # type: ignore[no-any-return]  # a copy of what it is given
        return builders.runtime(**self.runtime)

    def whole_jobs(self) -> Iterator[JsonObject]:
        """The TrainJobs, complete."""
        for index, given in enumerate(self.jobs):
            job: JsonObject = copy_tree(given)
            if job.get("kind") != TRAINJOB_KIND:
                job = builders.trainjob(f"demo-{index}", **job)
            job["metadata"].setdefault("uid", f"uid-of-{job['metadata']['name']}")
            job["metadata"].setdefault("namespace", builders.NAMESPACE)
            metadata = self.whole_runtime()["metadata"]
            reference = {"kind": self.whole_runtime()["kind"], "name": metadata["name"]}
            job["spec"]["runtimeRef"] = reference
            yield job

    def listers(self, *more: JsonObject) -> Listers:
        """What is in the cluster."""
        others = [watch for watch in _watches_of_built_ins() if watch.declared_by != self.name]
        return builders.KnownObjects(*self.objects, *more, watches=[*others, *self.watches()])

    def framework(self, around: Around | None = None, *, plugin: Plugin | None = None) -> Framework:
        """The plugin among the built-in ones.

        Raises:
            PluginInvalid: It cannot be used.
        """
        made = plugin or self.make()
        others = [each for each in built_in_plugins() if each.name != made.name]
        return Framework([*others, instrumented(made, around) if around else made])

    def watches(self) -> list[Watch]:
        """What the plugin declares."""
        return Framework([self.make()]).watches()


class _Any(frozenset[str]):
    """All feature gates are open."""

    def __contains__(self, name: object) -> bool:
        return True


def built_in_plugins() -> list[Plugin]:
    """Make the built-in plugins, but for those behind a feature gate."""
    return load_plugins(_built_in_points())


@functools.cache
def _built_in_points() -> list[EntryPoint]:
    """Find the entry points of the built-in plugins, which takes reading the metadata of all distributions."""
    return [point for point in discover() if is_own(point)]


@functools.cache
def _watches_of_built_ins() -> list[Watch]:
    """What the built-in plugins declare; a check asks hundreds of times."""
    return Framework(built_in_plugins()).watches()


def implements_any(plugin: Any) -> bool:
    """Tell whether something has an extension point."""
    return any(implements(plugin, phase) for phase in PHASES)


def outcome_of(framework: Framework, job: JsonObject, runtime: JsonObject, listers: Listers = NO_LISTERS) -> Outcome:
    """Resolve a TrainJob.

    Raises:
        PluginFailed: A plugin failed; that it rejected the TrainJob is an outcome.
    """
    try:
        done = resolve(parse_trainjob(copy_tree(job)), parse_runtime(copy_tree(runtime)), framework, listers=listers)
    except REFUSALS as error:
        return Outcome(refused=f"{type(error).__name__}: {error}")
    except PluginFailed as error:
        if not error.rejected:
            raise
        return Outcome(refused=str(error))
    return Outcome(done.objects, state_of(done.info))


def validate(framework: Framework, job: JsonObject, runtime: JsonObject, listers: Listers = NO_LISTERS) -> None:
    """Have a TrainJob validated, as one that is new and as one that is changed.

    Raises:
        PluginFailed: A plugin failed.
    """
    try:
        parsed, on = parse_trainjob(copy_tree(job)), parse_runtime(copy_tree(runtime))
        for old in (None, parsed):
            framework.validate(new_info(parsed, on, listers=listers), parsed, old, listers)
    except REFUSALS:
        return
    except PluginFailed as error:
        if not error.rejected:
            raise


def state_of(info: Info) -> JsonObject:
    """Return an Info as JSON."""
    state: JsonObject = {
        "labels": info.labels,
        "annotations": info.annotations,
        "mlPolicy": info.ml_policy.to_json() if info.ml_policy else None,
        "podGroupPolicy": info.pod_group_policy.to_json() if info.pod_group_policy else None,
        "scheduling": info.scheduling.to_json() if info.scheduling else None,
        "template": info.template,
        "trainerCommand": info.trainer_command,
        "podSets": [{"name": pods.name, "count": pods.count, "replicas": pods.replicas} for pods in info.pod_sets],
    }
    return copy_tree(state)  # type: ignore[no-any-return]  # a copy of a JsonObject


def instrumented(plugin: Plugin, around: Around) -> Plugin:
    """Return a plugin that does what another one does, each call of it through `around`."""
    attributes = {name: getattr(plugin, name) for name in dir(plugin) if not name.startswith("_")}
    for phase in PHASES:
        if implements(plugin, phase):
            attributes[phase] = _around(phase, getattr(plugin, phase), around)
    made: Any = SimpleNamespace(**attributes)
    return made  # type: ignore[no-any-return]  # it has what the plugin has


def _around(phase: str, method: Callable[..., Any], around: Around) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(**arguments: Any) -> Any:
        def run() -> Any:
            result = method(**arguments)
            # A generator has not run yet.
            return list(result) if inspect.isgenerator(result) else result

        return around(phase, run, arguments)

    return call


class Problem(NamedTuple):
    """One thing that is wrong with a plugin; each part is a sentence without its full stop."""

    what: str
    why: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}.\n    Why it matters: {self.why}.\n    What to do: {self.do}."


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield in which fields two JSON trees differ, each as a line for people."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=str):
            below = f"{path}.{key}" if path else str(key)
            if key not in before or key not in after:
                yield f"{below} is {'gone' if key in before else 'new'}"
            else:
                yield from differences(before[key], after[key], below)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif before != after or type(before) is not type(after):
        yield f"{path or 'it'} is {after!r:.80} instead of {before!r:.80}"


def first_difference(before: Any, after: Any) -> str | None:
    """Return the first of the differences; None if there are none."""
    return next(differences(before, after), None)


class OverBudget(BaseException):
    """Raised in the midst of a call that has had its steps; a BaseException, which hardly anybody catches."""


class Budget:
    """Counts what calls of a plugin cost; `around` stands around each of them.

    Args:
        most_steps: The steps after which a call is ended.
    """

    def __init__(self, most_steps: int) -> None:
        self.most_steps = most_steps
        """The steps after which a call is ended."""

        self.steps = 0
        """Of the call with the most of them."""

        self.memory = 0
        """Bytes that the call with the most of them held at one time."""

        self.ended = ""
        """The phase of a call that was ended."""

    def around(self, phase: str, call: Callable[[], Any], arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - as all of its kind
        """Make a call, and count.

        Raises:
            OverBudget: It has had its steps.
        """
        steps = 0

        def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal steps
            if event == "line":
                steps += 1
                if steps > self.most_steps:
                    self.ended = phase
                    raise OverBudget(f"{phase} takes more than {self.most_steps:,} steps")
            return trace

        before, traced = sys.gettrace(), tracemalloc.is_tracing()
        if not traced:
            tracemalloc.start()
        tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0]
        sys.settrace(trace)
        try:
            return call()
        finally:
            sys.settrace(before)
            self.steps = max(self.steps, steps)
            self.memory = max(self.memory, tracemalloc.get_traced_memory()[1] - held)
            if not traced:
                tracemalloc.stop()
