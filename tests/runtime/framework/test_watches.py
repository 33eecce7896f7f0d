"""What plugins declare to watch: faults, indexes, listers of mappers, and kinds that the cluster does not serve."""

import itertools
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel
from support.objects import replicated_job, runtime, trainjob, trainjob_object
from support.plugins import Enforcer
from support.resolutions import FakeListers

from trainmaster.runtime.framework import Framework, PluginFailed, PluginInvalid, load_plugins
from trainmaster.runtime.framework.descriptor import Selection, describe, order_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers, Watch
from trainmaster.runtime.resolver import new_info, resolve

QUEUE = ("acme.io/v1", "Queue", "queues")
DECLARED: dict[str, Any] = dict(zip(("api_version", "kind", "plural"), QUEUE, strict=True))
TRAINJOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs")


class Watching:
    """A plugin that watches something."""

    def __init__(self, name: str, *watches: Watch, **attributes: Any) -> None:
        self.name = name
        self._watches = watches
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    def watch_extension(self) -> Iterable[Watch]:
        return self._watches


class OfTorch(Watching):
    """One that serves torch alone."""

    policies = ("torch",)


def queue_of(obj: JsonObject) -> list[str]:
    return [f"{obj['metadata']['namespace']}/{obj['metadata']['labels']['queue']}"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"jobs": lambda obj, cluster: ()}, "and their jobs a function that takes (obj) or (obj, listers)"),
        ({"jobs": "team/demo"}, "and their jobs a function, not 'team/demo'"),
        ({"plural": ""}, "and their plural a text, not ''"),
        ({"label_selector": {"a": "b"}}, "and their label_selector a text like"),
        ({"indexes": ["queue"]}, 'and their indexes a mapping of names to functions, for instance {"acme-queue": ...}'),
        ({"indexes": {"": queue_of}}, "and the names of their indexes texts, not ''"),
        ({"indexes": {"queue": lambda obj, listers: ()}}, "and their index 'queue' a function that takes (obj), not"),
        ({"namespaces": "team-a"}, "and their namespaces a tuple of names, for instance (\"team-a\",), not 'team-a'"),
        ({"namespaces": ("a",), "namespaced": False}, "and Queue is said to belong to no namespace"),
        ({"namespaces": ("a",), "writes": True}, "and Queue is said to be built, which happens wherever there are"),
        ({"workload": True}, "and a workload is built and stopped: Queue needs writes=True, and not creates_only"),
        ({"workload": True, "writes": True, "metadata_only": True}, "and a workload is read whole, in the namespace"),
    ],
)
def test_a_watch_that_could_only_be_served_in_part_is_refused(fields: Mapping[str, Any], fault: str) -> None:
    message = re.escape(f"plugin odd: watch_extension must return Watch objects, {fault}")
    with pytest.raises(PluginInvalid, match=f"^{message}"):
        Framework([Watching("odd", Watch(**{**DECLARED, **fields}))]).watches()


def test_two_indexes_of_one_name_are_refused_with_both_plugins() -> None:
    plugins = [Watching(name, Watch(*TRAINJOB, indexes={"queue": queue_of})) for name in ("acme", "other")]
    with pytest.raises(PluginInvalid, match=r"two indexes 'queue' of TrainJob .* of acme and of other; give one of"):
        Framework(plugins).watches()


def test_a_mapper_gets_listers_if_it_takes_them() -> None:
    """By name: a default that a closure is given in passing stays what it is."""

    def plain(obj: JsonObject, prefix: str = "job-") -> list[tuple[str, str]]:
        return [("team", prefix + obj["name"])]

    def asking(obj: JsonObject, listers: Listers) -> Iterable[tuple[str, str]]:
        for job in listers.by_index(*TRAINJOB[:2], "queue", f"team/{obj['name']}"):
            yield job["metadata"]["namespace"], job["metadata"]["name"]

    declared = [Watch(*QUEUE, jobs=plain), Watch(*QUEUE, jobs=asking), Watch(*TRAINJOB, indexes={"queue": queue_of})]
    watches = Framework([Watching("acme", *declared)]).watches()
    job = trainjob_object()
    job["metadata"]["labels"] = {"queue": "blue"}
    listers = FakeListers(job, watches=watches)
    one, other, _ = watches
    assert one.jobs is not None
    assert other.jobs is not None
    assert one.jobs({"name": "blue"}, listers=listers) == [("team", "job-blue")]
    assert other.jobs({"name": "blue"}, listers=listers) == [("team", "demo")]
    assert other.jobs({"name": "red"}, listers=listers) == []


def test_functions_of_a_watch_are_calls_of_its_plugin() -> None:
    """Counted, given an object of their own, and what they return is looked at."""
    calls: list[tuple[str, str, bool]] = []

    def wreck(obj: JsonObject) -> list[str]:
        obj["metadata"]["labels"].clear()
        obj.clear()
        return ["x"]

    def map_and_wreck(obj: JsonObject) -> Any:
        wreck(obj)
        return [("team", "a"), ["team", "b"]]

    def note(plugin: str, phase: str, seconds: float, failure: BaseException | None) -> None:
        assert seconds >= 0
        calls.append((plugin, phase, failure is None))

    odd: Any = lambda obj: [1]  # noqa: E731 - what a type checker would have told its author
    watch = Watch(*QUEUE, indexes={"wreck": wreck, "odd": odd}, jobs=map_and_wreck)
    (declared,) = Framework([Watching("acme", watch)], observer=note).watches()
    obj = {"kind": "Queue", "metadata": {"labels": {"a": "b"}}}
    assert declared.jobs is not None
    assert declared.indexes["wreck"](obj) == ["x"]
    assert declared.jobs(obj, listers=NO_LISTERS) == [("team", "a"), ("team", "b")]
    assert obj == {"kind": "Queue", "metadata": {"labels": {"a": "b"}}}
    with pytest.raises(PluginFailed, match=r"acme failed in Watch.indexes: TypeError: it must return texts"):
        declared.indexes["odd"](obj)
    assert calls == [("acme", "Watch.indexes", True), ("acme", "Watch.jobs", True), ("acme", "Watch.indexes", False)]


def test_plugins_are_asked_once_what_they_watch() -> None:
    asked: list[str] = []

    class Asked(Watching):
        def watch_extension(self) -> Iterable[Watch]:
            asked.append(self.name)
            return super().watch_extension()

    framework = Framework([*load_plugins(), Asked("asked")])
    assert framework.watches() == framework.watches()
    resolve(trainjob(), runtime(), framework)
    assert asked == ["asked"]


@pytest.mark.parametrize(
    ("plugin", "required"),
    [
        (Watching("w", Watch(*QUEUE, writes=True, workload=True)), True),
        (Watching("w", Watch(*QUEUE, writes=True, workload=True, optional=True)), False),
        (Watching("w", Watch(*QUEUE, writes=True)), False),
        (OfTorch("w", Watch(*QUEUE, writes=True, workload=True)), False),
        (Watching("w", Watch(*QUEUE, writes=True, workload=True), applies_to=lambda info, job: False), False),
    ],
)
def test_the_manager_needs_the_workloads_of_plugins_that_serve_every_trainjob(plugin: Any, required: bool) -> None:
    (watch,) = Framework([plugin]).watches()
    assert (watch.required, watch.declared_by) == (required, "w")


def test_without_its_kind_only_the_trainjobs_that_a_plugin_serves_wait() -> None:
    framework = Framework([*load_plugins(), OfTorch("acme", Watch(*QUEUE))])
    absent = FakeListers(absent=("Queue",))
    torch = runtime(replicated_job(), policy={"torch": {}})
    assert resolve(trainjob(), runtime(), framework, listers=absent).objects
    with pytest.raises(PluginFailed) as failed:
        resolve(trainjob(), torch, framework, listers=absent)
    assert failed.value.kind_not_served
    assert failed.value.not_ready
    assert str(failed.value) == (
        "the cluster does not serve Queue (acme.io/v1), which the plugin acme needs, or the manager may not read it; "
        "tell your administrator to install its definition (queues.acme.io), to grant the right, or to disable the "
        "plugin"
    )
    assert resolve(trainjob(), torch, framework, listers=NO_LISTERS).objects, "offline nobody knows"
    framework = Framework([*load_plugins(), Watching("acme", Watch(*QUEUE, optional=True))])
    assert resolve(trainjob(), runtime(), framework, listers=absent).objects, "an optional kind holds up nobody"


def mapper(jobs: Any, observer: Any = None) -> Any:
    """The function that the caches call for a plugin's `Watch.jobs`."""
    (declared,) = Framework([Watching("mapper", Watch(*QUEUE, jobs=jobs))], observer=observer).watches()
    assert declared.declared_by == "mapper"
    return declared.jobs


def generator_that_fails(obj: Any) -> Any:
    yield ("team", "demo")
    raise OSError("gone")


@pytest.mark.parametrize(
    ("jobs", "fault"),
    [
        (lambda obj: obj["spec"], "KeyError: 'spec'"),
        (lambda obj: None, "TypeError: "),
        (lambda obj: "team/demo", "TypeError: it must return a list, or yield, not str"),
        (lambda obj: ["ab"], "TypeError: it must return pairs of the namespace and the name of a TrainJob, not 'ab'"),
        (lambda obj: [("team", "")], "TypeError: it must return pairs"),
        (lambda obj: itertools.repeat(("team", "demo")), "ValueError: it returns more than 100,000 results"),
        (generator_that_fails, "OSError: gone"),
        (lambda obj: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_junk_of_a_mapper_is_its_plugins_failure(jobs: Any, fault: str) -> None:
    seen: list[Any] = []
    observed = lambda plugin, phase, seconds, error: seen.append((plugin, phase, seconds >= 0, error is None))  # noqa: E731
    with pytest.raises(PluginFailed, match=rf"^plugin mapper failed in Watch\.jobs: {fault}"):
        mapper(jobs, observed)({"kind": "Queue"})
    assert seen == [("mapper", "Watch.jobs", True, False)]


@pytest.mark.parametrize("watches", [None, ["pods"], KeyError("pods"), SystemExit("pods")])
def test_a_plugin_that_cannot_say_what_it_watches_is_named(watches: Any) -> None:
    class Watcher:
        name = "Watcher"

        def watch_extension(self) -> Any:
            if isinstance(watches, BaseException):
                raise watches
            return watches

    with pytest.raises(PluginInvalid, match=r"^plugin Watcher: watch_extension"):
        Framework([Watcher()]).watches()


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (
            {"plural": "queuez"},
            "about Queue .*: one says that its plural is 'queues' and .* namespaced, other says .* 'queuez' and .*; ",
        ),
        ({"namespaced": False}, "about Queue .*other says .*cluster-scoped"),
        ({"kind": "Line"}, "about queues .*one says that its kind is 'Queue'"),
    ],
)
def test_watches_that_contradict_each_other_are_refused(other: Any, fault: str) -> None:
    """Both plugins are named: nobody can tell which of them is right."""
    first, second = Watch(**DECLARED), Watch(**{**DECLARED, **other})
    with pytest.raises(PluginInvalid, match=f"^plugins contradict each other {fault}"):
        Framework([Watching("one", first), Watching("other", second)]).watches()


def plugin(name: str, **attributes: Any) -> Any:
    return type(name, (), {"name": name, "build": lambda self: [], **attributes})()


PLUGINS = [
    plugin("all"),
    plugin("torch", policies=("torch",)),
    plugin("frameworks", policies=("torch", "jax")),
    plugin("ray", policies=("ray",)),
    plugin("ring", ml_policy_config=BaseModel),
    plugin("deciding", applies_to=lambda self: True, policies=("torch",)),
]
SELECTION = Selection({each.name: describe(each, origin=each.name) for each in PLUGINS})


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ({}, {"all"}),
        ({"torch": {}}, {"all", "torch", "frameworks"}),
        ({"jax": {}}, {"all", "frameworks"}),
        ({"ray": {}}, {"all", "ray"}),  # of a newer API
        ({"custom": {"name": "ring"}}, {"all", "ring"}),
        ({"custom": {"name": "torch"}}, {"all"}),
        ({"custom": {"name": "deciding"}}, {"all"}),
    ],
)
def test_plugins_are_chosen_by_the_policies_of_a_runtime(policy: Any, chosen: set[str]) -> None:
    assert SELECTION.chosen(new_info(trainjob(), runtime(policy=policy))) == chosen


def test_who_decides_for_each_trainjob_is_not_chosen_by_what_else_it_says() -> None:
    assert SELECTION.deciding == {"deciding"}
    assert SELECTION.serving_all == {"all"}


def names(plugins: list[Any]) -> list[str]:
    return [plugin.name for plugin in order_plugins(plugins)]


def test_order_is_by_priority_and_then_by_name() -> None:
    assert names([Enforcer("c"), Enforcer("a"), Enforcer("z", priority=1), Enforcer("b", priority=-1)]) == [
        "z",
        "a",
        "c",
        "b",
    ]


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
