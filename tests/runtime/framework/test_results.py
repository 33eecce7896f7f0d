"""What plugins return and raise, and what becomes of TrainJobs whose plugins fail."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.objects import runtime, trainjob
from support.plugins import Builder, Enforcer

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import Desired, Rejected, StatusReport
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import new_info, resolve


async def coroutine() -> None:
    """Would have to be awaited."""


MADE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (None, "build must return Desired objects, not NoneType"),
        (MADE, "build must return Desired objects, not dict"),
        (Desired([]), "without apiVersion, kind and metadata.name"),  # type: ignore[arg-type] # the mistake
        (Desired({}), "without apiVersion, kind and metadata.name"),
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
        StatusReport(conditions=[{"type": "Complete", "status": "True", "reason": {1}}]),
        StatusReport(jobs_status=[1]),  # type: ignore[list-item] # the mistake
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

    def build(self, info: Any) -> Any:
        info.labels["failing"] = "was here again"
        info.template["broken again"] = True
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
