"""What plugins return: taken over as copies, and refused where it does not fit."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.objects import runtime, trainjob

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import Desired, StatusReport
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
