"""The framework: ordering and running plugins, and keeping their failures apart."""

from __future__ import annotations

import inspect
import itertools
import sys
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from support.objects import runtime, trainjob
from support.plugins import Builder, Enforcer

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, PluginFailed, PluginInvalid
from trainmaster.runtime.framework.interface import Desired, Rejected, StatusReport
from trainmaster.runtime.framework.ordering import order_plugins
from trainmaster.runtime.framework.signatures import PHASES
from trainmaster.runtime.listers import NO_LISTERS, Watch
from trainmaster.runtime.resolver import PolicyUnserved, new_info, resolve


async def coroutine() -> None:
    """Would have to be awaited."""


def test_the_first_plugin_that_knows_reports_the_status() -> None:
    class Reporter:
        def __init__(self, name: str, report: StatusReport | None) -> None:
            self.name, self.report = name, report

        def status(self, job: Any, listers: Any) -> StatusReport | None:
            return self.report

    second, third = (StatusReport(jobs_status=[{"name": name}]) for name in ("second", "third"))
    framework = Framework([Reporter("one", None), Reporter("three", third), Reporter("two", second)])
    assert framework.status(trainjob(), NO_LISTERS) == third
    assert Framework([Reporter("one", None)]).status(trainjob(), NO_LISTERS) is None


def test_enforcers_run_in_order() -> None:
    info = new_info(trainjob(), runtime())
    Framework([Enforcer("b"), Enforcer("a")]).resolve(info, trainjob(), NO_LISTERS)
    assert list(info.labels.values()) == ["a", "b"]


def test_built_objects_get_namespace_and_owner() -> None:
    built = Framework([Builder()]).resolve(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert built.objects[0].object["metadata"] == {
        "name": "made",
        "namespace": "team",
        "ownerReferences": [
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "name": "demo",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_two_plugins_cannot_build_the_same_object() -> None:
    framework = Framework([Builder("one"), Builder("two")])
    with pytest.raises(PluginFailed, match="ValueError: plugin one builds ConfigMap made as well"):
        framework.resolve(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)


def test_a_plugin_that_raises_is_named_and_keeps_the_cause() -> None:
    framework = Framework([Builder(error=KeyError("gone"))])
    with pytest.raises(PluginFailed, match="plugin Builder failed in build: KeyError: 'gone'") as caught:
        resolve(trainjob(), runtime(), framework)
    assert isinstance(caught.value.__cause__, KeyError)
    assert not caught.value.rejected


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "watch_extension"])
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), CancelledError(), BaseExceptionGroup("x", [SystemExit()])],
)
def test_whatever_a_plugin_raises_is_its_failure_for_that_job(phase: str, error: BaseException) -> None:
    """Neither the process of all TrainJobs nor the task of one ends by it."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    fail.__signature__ = inspect.signature(getattr(PHASES[phase], phase))  # type: ignore[attr-defined]
    framework = Framework([type("Leaver", (), {"name": "leaver", "watch_extension": lambda self: (), phase: fail})()])
    info = new_info(trainjob(), runtime())
    calls: dict[str, Callable[[], object]] = {
        "validate": lambda: framework.validate(info, trainjob(), None, NO_LISTERS),
        "status": lambda: framework.status(trainjob(), NO_LISTERS),
    }
    with pytest.raises(PluginFailed, match=rf"^plugin leaver failed in {phase}: {type(error).__name__}: ") as caught:
        calls.get(phase, lambda: framework.resolve(info, trainjob(), NO_LISTERS))()
    assert caught.value.__cause__ is error


def test_an_error_whose_text_cannot_be_sent_is_told_all_the_same() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise KeyError

    for error, text in ((Odd(), "and its text cannot be read"), (ValueError("a\ud800b"), r"ValueError: a\?b")):
        with pytest.raises(PluginFailed, match=text) as caught:
            resolve(trainjob(), runtime(), Framework([Builder(error=error)]))
        assert str(caught.value).encode()


def test_a_rejection_speaks_for_itself() -> None:
    framework = Framework([Builder(error=Rejected("there is no such queue"))])
    with pytest.raises(PluginFailed, match=r"^there is no such queue$") as caught:
        resolve(trainjob(), runtime(), framework)
    assert caught.value.rejected


def test_each_call_is_observed_with_its_result() -> None:
    seen: list[tuple[str, str, bool]] = []
    framework = Framework(
        [Enforcer("ok"), Builder(error=ValueError())],
        observer=lambda plugin, phase, seconds, error: seen.append((plugin, phase, error is None)),
    )
    with pytest.raises(PluginFailed):
        resolve(trainjob(), runtime(), framework)
    assert seen == [("ok", "enforce_ml_policy", True), ("Builder", "build", False)]


MADE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (None, "build must return Desired objects, not NoneType"),
        (MADE, "build must return Desired objects, not dict"),
        (Desired([]), "without apiVersion, kind and metadata.name"),  # type: ignore[arg-type] # the mistake
        (Desired({}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": None}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": {"name": ""}}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": {"name": "x", "namespace": "other"}}), "namespace 'other'"),
        (Desired(MADE | {"metadata": {"name": "x", "ownerReferences": [{"uid": "z"}]}}), "the TrainJob its controller"),
        (Desired(MADE | {"data": {"a": {1, 2}}}), "not JSON serializable: set"),
        (Desired(MADE, "always"), "when to write ConfigMap made must be an ApplyWhen, not 'always'"),  # type: ignore[arg-type]
    ],
)
def test_garbage_of_a_plugin_is_that_plugins_failure(built: Any, message: str) -> None:
    class Careless:
        name = "Careless"

        def build(self, info: Any, job: Any, listers: Any) -> list[Any]:
            return [built]

    framework = Framework([Careless()])
    with pytest.raises(PluginFailed, match=r"^plugin Careless failed in build: ") as caught:
        framework.resolve(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert message in str(caught.value)


def test_endless_results_are_the_failure_of_the_plugin_that_yields_them() -> None:
    class Endless:
        name = "Endless"

        def build(self, info: Any, job: Any, listers: Any) -> Any:
            yield from itertools.repeat(Desired(MADE))

    with pytest.raises(PluginFailed, match=r"plugin Endless failed in build: .*it returns more than 100,000 results"):
        resolve(trainjob(), runtime(), Framework([Endless()]))


@pytest.mark.parametrize("result", [coroutine(), (each for each in "ab")])
def test_an_enforcing_call_that_has_not_run_yet_is_a_failure(result: Any) -> None:
    """A wrapped method may return what would have to be awaited, or iterated, and nobody does."""

    class Waiting:
        name = "Waiting"

        def pre_build(self, info: Any, job: Any) -> Any:
            return result

    with pytest.raises(PluginFailed, match="must change what it is given and return nothing, not "):
        resolve(trainjob(), runtime(), Framework([Waiting()]))


@pytest.mark.parametrize(
    "report",
    [
        "running",
        StatusReport(conditions=[{"type": "Complete"}]),
        StatusReport(conditions=None),  # type: ignore[arg-type] # the mistake
        StatusReport(conditions=[{"type": "Complete", "status": "True", "reason": {1}}]),
        StatusReport(jobs_status=[1]),  # type: ignore[list-item] # the mistake
        StatusReport(jobs_status={"node": 1}),  # type: ignore[arg-type] # the mistake
    ],
)
def test_garbage_of_a_status_plugin_is_its_failure(report: Any) -> None:
    class Reporter:
        name = "Reporter"

        def status(self, job: Any, listers: Any) -> Any:
            return report

    with pytest.raises(PluginFailed, match=r"^plugin Reporter failed in status: "):
        Framework([Reporter()]).status(trainjob(), NO_LISTERS)


@pytest.mark.parametrize(
    "results",
    [
        ["spec.x: no"],
        None,
        "no",
        [FieldError("spec.x", 1)],  # type: ignore[arg-type] # the mistake
        [FieldError("spec.x", "no", value={1})],
    ],
)
def test_garbage_of_a_validating_plugin_is_its_failure(results: Any) -> None:
    class Validator:
        name = "Validator"

        def validate(self, info: Any, job: Any, old: Any, listers: Any) -> Any:
            return results

    with pytest.raises(PluginFailed, match=r"^plugin Validator failed in validate: TypeError: "):
        Framework([Validator()]).validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)


def test_errors_and_warnings_of_plugins_are_kept_apart() -> None:
    class Validator:
        name = "Validator"

        def validate(self, info: Any, job: Any, old: Any, listers: Any) -> Any:
            yield FieldWarning("spec.b", "hm")
            yield FieldError("spec.a", "no")

    errors, warnings = Framework([Validator()]).validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)
    assert (errors, warnings) == ([FieldError("spec.a", "no")], [FieldWarning("spec.b", "hm")])


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
    ("one", "other", "fault"),
    [
        (
            {"plural": "queues"},
            {"plural": "queuez"},
            "about Queue .*: one says that its plural is 'queues' and .* namespaced, other says .* 'queuez' and .*; ",
        ),
        ({"plural": "queues"}, {"plural": "queues", "namespaced": False}, "about Queue .*other says .*cluster-scoped"),
        (
            {"plural": "queues"},
            {"plural": "queues", "kind": "Line"},
            "about queues .*one says that its kind is 'Queue'",
        ),
    ],
)
def test_watches_that_contradict_each_other_are_refused(one: Any, other: Any, fault: str) -> None:
    """Both plugins are named: nobody can tell which of them is right."""
    watches = [Watch(**{"api_version": "acme.io/v1", "kind": "Queue", **fields}) for fields in (one, other)]
    with pytest.raises(PluginInvalid, match=f"^plugins contradict each other {fault}"):
        Framework([Watcher("one", watches[:1]), Watcher("other", watches[1:])]).watches()


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"plural": ""}, "their plural a text, not ''"),
        ({"label_selector": {"a": "b"}}, "their label_selector a text like"),
        ({"jobs": "team/demo"}, "their jobs a function, not 'team/demo'"),
    ],
)
def test_a_watch_that_means_nothing_is_refused(fields: Any, fault: str) -> None:
    watch = Watch(**{"api_version": "acme.io/v1", "kind": "Queue", "plural": "queues", **fields})
    with pytest.raises(PluginInvalid, match=f"^plugin odd: watch_extension must return Watch objects, and {fault}"):
        Framework([Watcher("odd", [watch])]).watches()


class Watcher:
    """Watches something."""

    def __init__(self, name: str, watches: list[Watch]) -> None:
        self.name = name
        self._watches = watches

    def watch_extension(self) -> list[Watch]:
        return self._watches


def mapper(jobs: Any, observer: Any = None) -> Any:
    """The function that the caches call for a plugin's `Watch.jobs`."""
    watch = Watch("acme.io/v1", "Queue", "queues", jobs=jobs)
    (declared,) = Framework([Watcher("mapper", [watch])], observer=observer).watches()
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
        (lambda obj: [("team", 1)], "TypeError: it must return pairs"),
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


def test_a_mapper_gets_an_object_of_its_own_and_is_timed_and_counted() -> None:
    seen: list[Any] = []

    def jobs(obj: Any) -> Any:
        obj["metadata"]["labels"].clear()
        obj["metadata"] = None
        return [("team", "a"), ["team", "b"]]

    obj = {"metadata": {"labels": {"a": "b"}}}
    observed = lambda plugin, phase, seconds, error: seen.append((plugin, phase, seconds >= 0, error is None))  # noqa: E731
    assert mapper(jobs, observed)(obj) == [("team", "a"), ("team", "b")]
    assert obj == {"metadata": {"labels": {"a": "b"}}}
    assert seen == [("mapper", "Watch.jobs", True, True)]


def test_a_plugin_cannot_change_the_runtime_for_the_next_resolution() -> None:
    """The runtime may come from a cache."""

    class Vandal:
        name = "Vandal"

        def enforce_ml_policy(self, info: Any, job: Any) -> None:
            info.runtime_template["replicatedJobs"].clear()

    on = runtime()
    for _ in range(2):
        resolve(trainjob(), on, Framework([Vandal()]))
    assert on.spec.template is not None
    assert len(on.spec.template.spec["replicatedJobs"]) == 1


def names(plugins: list[Any]) -> list[str]:
    return [plugin.name for plugin in order_plugins(plugins)]


def test_order_is_by_name_without_any_wish() -> None:
    assert names([Enforcer("c"), Enforcer("a"), Enforcer("b")]) == ["a", "b", "c"]


def test_higher_priority_runs_first() -> None:
    assert names([Enforcer("a"), Enforcer("z", priority=1), Enforcer("b", priority=-1)]) == ["z", "a", "b"]


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


class Failing(Enforcer):
    """Breaks what it is given, and then fails."""

    def __init__(self, error: Exception | None = None, **attributes: Any) -> None:
        super().__init__("failing", **attributes)
        self.error = error or KeyError("region")

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.template["broken"] = True
        info.trainer.pod_spec["broken"] = True
        raise self.error

    def build(self) -> Any:
        raise AssertionError("a plugin that failed is not asked again")

    def validate(self) -> Any:
        raise self.error


@pytest.mark.parametrize("how", ["its own word", "the configuration"])
def test_a_job_goes_on_without_a_plugin_that_may_be_skipped(how: str) -> None:
    """Nothing of what it did is left."""
    plugin = Failing(failure_policy="skip" if how == "its own word" else "fail")
    policies = {} if how == "its own word" else {"failing": "skip"}
    framework = Framework([plugin, Builder()], failure_policies=policies)
    expected = resolve(trainjob(), runtime(), Framework([Builder()]))
    resolution = resolve(trainjob(), runtime(), framework)
    assert resolution.objects == expected.objects
    assert resolution.info.template == expected.info.template
    assert resolution.info.trainer is not None
    assert resolution.info.trainer.job_template is resolution.info.template["replicatedJobs"][0]["template"]
    assert [str(each) for each in resolution.skipped] == [
        "plugin failing failed in enforce_ml_policy: KeyError: 'region'"
    ]
    errors, warnings = framework.validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)
    assert not errors
    assert "is not checked by the plugin failing: plugin failing failed in validate" in str(warnings[0])


def test_nothing_is_left_either_of_a_plugin_that_fails_when_it_builds() -> None:
    class FailingLate:
        name = "failing"
        failure_policy = "skip"
        priority = 1

        def build(self, info: Any) -> Any:
            info.labels["broken"] = "yes"
            info.template["broken"] = True
            raise KeyError("region")

    class Last:
        name = "last"

        def build(self, info: Any) -> Any:
            yield Desired(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "made", "labels": {**info.labels, "keys": ".".join(info.template)}},
                }
            )

    resolution = resolve(trainjob(), runtime(), Framework([FailingLate(), Last()]))
    assert resolution.objects == resolve(trainjob(), runtime(), Framework([Last()])).objects
    assert [str(each) for each in resolution.skipped] == ["plugin failing failed in build: KeyError: 'region'"]


class FailingLate:
    """Changes much before it fails."""

    name = "failing"
    failure_policy = "skip"
    replaces = ("replaced",)
    priority = 1

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.labels["failing"] = "was here"
        info.template["broken"] = True
        job.metadata.labels["failing"] = "was here"

    def build(self) -> Any:
        raise KeyError("region")


def test_nothing_is_left_of_a_plugin_that_failed_late() -> None:
    """Neither what it changed in earlier phases, nor that it stood in the place of another one."""
    others = [Builder("replaced"), Builder("other", object_name="other")]
    expected = resolve(trainjob(), runtime(), Framework(others))
    resolution = resolve(trainjob(), runtime(), Framework([FailingLate(), *others]))
    assert resolution.objects == expected.objects
    assert resolution.info.labels == expected.info.labels
    assert resolution.info.template == expected.info.template
    assert [str(each) for each in resolution.skipped] == ["plugin failing failed in build: KeyError: 'region'"]


def test_a_plugin_that_cannot_say_whom_it_serves_may_be_skipped_too() -> None:
    class Undecided(FailingLate):
        def applies_to(self) -> bool:
            raise KeyError("zone")

    resolution = resolve(trainjob(), runtime(), Framework([Undecided(), Builder()]))
    assert [each.identity[2] for each in resolution.objects] == ["made"]
    assert [str(each) for each in resolution.skipped] == ["plugin failing failed in applies_to: KeyError: 'zone'"]


def test_several_plugins_may_be_skipped() -> None:
    late = FailingLate()
    late.name = "late"
    resolution = resolve(trainjob(), runtime(), Framework([Failing(failure_policy="skip"), late, Builder()]))
    assert [each.identity[2] for each in resolution.objects] == ["made"]
    assert sorted(each.plugin for each in resolution.skipped) == ["failing", "late"]
    assert "failing" not in resolution.info.labels


def test_what_a_plugin_rejects_is_rejected_whatever_becomes_of_its_failures() -> None:
    plugin = Failing(Rejected("no such region"), failure_policy="skip")
    with pytest.raises(PluginFailed, match=r"^no such region$"):
        resolve(trainjob(), runtime(), Framework([plugin]))


@pytest.mark.parametrize(
    ("attributes", "policy", "runs"),
    [
        ({}, {}, True),
        ({"policies": ("torch",)}, {}, False),
        ({"policies": ("torch",)}, {"torch": {}}, True),
        ({"policies": ("torch", "jax")}, {"jax": {}}, True),
        ({"policies": ("torch",), "applies_to": lambda info, job: True}, {}, True),
        ({"applies_to": lambda info: info.ml_policy.num_nodes == 2}, {"numNodes": 2}, True),
        ({"applies_to": lambda job: job.metadata.name == "other"}, {}, False),
    ],
)
def test_a_plugin_runs_for_whom_it_serves(attributes: dict[str, Any], policy: dict[str, Any], runs: bool) -> None:
    """It has no say about others either, whatever becomes of it."""
    asked: list[str] = []

    class Plugin:
        name = "plugin"

        def enforce_ml_policy(self) -> None:
            asked.append("enforce_ml_policy")

        def build(self) -> tuple[()]:
            asked.append("build")
            return ()

        def validate(self) -> tuple[()]:
            asked.append("validate")
            return ()

    plugin = Plugin()
    for name, value in attributes.items():
        setattr(plugin, name, value)
    others = Enforcer("others", policies=("torch", "jax"))
    framework = Framework([plugin, others])
    resolve(trainjob(), runtime(policy=policy), framework)
    framework.validate(new_info(trainjob(), runtime(policy=policy)), trainjob(), None, NO_LISTERS)
    assert asked == (["enforce_ml_policy", "build", "validate"] if runs else [])


def test_a_plugin_takes_the_place_of_others_for_whom_it_serves() -> None:
    theirs, ours = Builder("theirs"), Builder("ours", object_name="ours")
    ours.replaces = ("theirs",)  # type: ignore[attr-defined]
    ours.applies_to = lambda job: job.metadata.name == "demo"  # type: ignore[attr-defined]
    framework = Framework([theirs, ours])
    for name, made in (("demo", "ours"), ("other", "made")):
        built = resolve(trainjob(name), runtime(), framework).objects
        assert [each.object["metadata"]["name"] for each in built] == [made]


class Region(BaseModel):
    """The policy of a plugin."""

    region: str
    zones: list[int] = []


class Regional:
    """Serves `mlPolicy.custom` of its name."""

    name = "regional"
    ml_policy_config = Region

    def enforce_ml_policy(self, info: Any, config: Region) -> None:
        info.labels["region"] = config.region


def custom(name: str, config: Any) -> dict[str, Any]:
    return {"custom": {"name": name, "config": config}}


def test_a_plugin_gets_the_custom_policy_of_its_name() -> None:
    framework = Framework([Regional()])
    resolution = resolve(trainjob(), runtime(policy=custom("regional", {"region": "north"})), framework)
    assert resolution.info.labels == {"region": "north"}
    assert resolve(trainjob(), runtime(), framework).info.labels == {}
    with pytest.raises(PolicyUnserved, match=r"no installed plugin serves mlPolicy.custom of the name 'other'"):
        resolve(trainjob(), runtime(policy=custom("other", {})), framework)


def test_a_custom_policy_that_does_not_fit_is_told_field_by_field() -> None:
    framework = Framework([Regional()])
    config = {"regoin": "north", "zones": [1, "x"]}
    with pytest.raises(PluginFailed) as caught:
        resolve(trainjob(), runtime(policy=custom("regional", config)), framework)
    assert caught.value.rejected
    assert str(caught.value) == (
        "the runtime cannot be used: "
        'spec.mlPolicy.custom.config.regoin: unknown field (did you mean "region"?); '
        "spec.mlPolicy.custom.config.region: is required; "
        "spec.mlPolicy.custom.config.zones[1]: Input should be a valid integer, unable to parse string as an integer, "
        'got "x"'
    )
