"""A plugin that may be skipped: the TrainJob goes on, and nothing is left of the plugin."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import runtime, trainjob
from support.plugins import Builder, Enforcer

from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import new_info, resolve


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
