"""The framework: ordering and running plugins, and keeping their failures apart."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import runtime, trainjob
from support.plugins import Builder, Enforcer

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, PluginFailed, PluginInvalid
from trainmaster.runtime.framework.framework import order_plugins
from trainmaster.runtime.framework.interface import Desired, Rejected, StatusReport
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import new_info, resolve


def test_only_one_plugin_may_report_status() -> None:
    class Reporter:
        def __init__(self, name: str) -> None:
            self.name = name

        def status(self, job: Any, listers: Any) -> None:
            """Reports nothing."""

    with pytest.raises(PluginInvalid, match="these do: one, two"):
        Framework([Reporter("one"), Reporter("two")])


def test_enforcers_run_in_order() -> None:
    info = new_info(trainjob(), runtime())
    Framework([Enforcer("b"), Enforcer("a")]).enforce(info, trainjob())
    assert list(info.labels.values()) == ["a", "b"]


def test_built_objects_get_namespace_and_owner() -> None:
    built = Framework([Builder()]).build(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert built[0].object["metadata"] == {
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
    with pytest.raises(PluginFailed, match="another plugin builds ConfigMap made as well"):
        framework.build(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)


def test_a_plugin_that_raises_is_named_and_keeps_the_cause() -> None:
    framework = Framework([Builder(error=KeyError("gone"))])
    with pytest.raises(PluginFailed, match="plugin Builder failed in build: KeyError: 'gone'") as caught:
        resolve(trainjob(), runtime(), framework)
    assert isinstance(caught.value.__cause__, KeyError)
    assert not caught.value.rejected


def test_a_rejection_speaks_for_itself() -> None:
    framework = Framework([Builder(error=Rejected("there is no such queue"))])
    with pytest.raises(PluginFailed, match=r"^there is no such queue$") as caught:
        resolve(trainjob(), runtime(), framework)
    assert caught.value.rejected


def test_each_call_is_observed_with_its_result() -> None:
    seen: list[tuple[str, str, bool]] = []
    framework = Framework(
        [Enforcer("ok"), Builder(error=ValueError())],
        observer=lambda plugin, phase, seconds, succeeded: seen.append((plugin, phase, succeeded)),
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
    ],
)
def test_garbage_of_a_plugin_is_that_plugins_failure(built: Any, message: str) -> None:
    class Careless:
        name = "Careless"

        def build(self, info: Any, job: Any, listers: Any) -> list[Any]:
            return [built]

    framework = Framework([Careless()])
    with pytest.raises(PluginFailed, match=r"^plugin Careless failed in build: ") as caught:
        framework.build(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert message in str(caught.value)


@pytest.mark.parametrize("report", ["running", StatusReport(conditions=[{"type": "Complete"}])])
def test_garbage_of_a_status_plugin_is_its_failure(report: Any) -> None:
    class Reporter:
        name = "Reporter"

        def status(self, job: Any, listers: Any) -> Any:
            return report

    with pytest.raises(PluginFailed, match=r"^plugin Reporter failed in status: "):
        Framework([Reporter()]).status(trainjob(), NO_LISTERS)


@pytest.mark.parametrize("results", [["spec.x: no"], None])
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


@pytest.mark.parametrize("watches", [None, ["pods"], KeyError("pods")])
def test_a_plugin_that_cannot_say_what_it_watches_is_named(watches: Any) -> None:
    class Watcher:
        name = "Watcher"

        def watch_extension(self) -> Any:
            if isinstance(watches, Exception):
                raise watches
            return watches

    with pytest.raises(PluginInvalid, match=r"^plugin Watcher: watch_extension"):
        Framework([Watcher()]).watches()


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
