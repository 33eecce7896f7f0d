"""The rules of runtimes: for both kinds, each with what passes and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import replicated_job, runtime_object
from support.validation import validate_runtime

from trainmaster.runtime.jsontree import JsonObject


def runtime(*jobs: JsonObject, kind: str = "TrainingRuntime", deprecated: bool = False, **fields: Any) -> JsonObject:
    obj = runtime_object(*jobs)
    obj["kind"] = kind
    obj["spec"] |= fields
    if deprecated:
        obj["metadata"]["labels"] = {"trainer.kubeflow.org/support": "deprecated"}
    return obj


def test_jobs_that_play_no_step_are_not_judged() -> None:
    free = replicated_job("side", ancestor=None, containers=[{"name": "x", "image": "i"}], replicas=3)
    odd = replicated_job("odd", ancestor="else", containers=[{"name": "x", "image": "i"}], replicas=3)
    assert validate_runtime(runtime(replicated_job(), free, odd), None).allowed


@pytest.mark.defect("U4")
def test_a_runtime_has_at_least_one_node() -> None:
    assert validate_runtime(runtime(mlPolicy={"numNodes": 1}), None).allowed
    result = validate_runtime(runtime(mlPolicy={"numNodes": 0}), None)
    assert result.message == "spec.mlPolicy.numNodes: Invalid value: 0: must be greater than or equal to 1"


@pytest.mark.defect("B33")
@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_updates_of_both_kinds_are_judged(kind: str) -> None:
    old = runtime(replicated_job(), kind=kind)
    new = runtime(replicated_job(containers=[{"name": "main", "image": "i"}]), kind=kind)
    assert not validate_runtime(new, old).allowed
    assert validate_runtime(runtime(replicated_job(dependsOn=[]), kind=kind), old).allowed


@pytest.mark.defect("B33")
def test_a_runtime_from_before_the_rules_can_be_labelled_and_released() -> None:
    wrong = runtime(replicated_job(containers=[{"name": "main", "image": "i"}]))
    labelled = {**wrong, "metadata": {**wrong["metadata"], "labels": {"a": "b"}}}
    assert validate_runtime(labelled, wrong).allowed


@pytest.mark.defect("B33")
@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_deprecation_is_told_of_when_a_runtime_is_made(kind: str) -> None:
    obj = runtime(kind=kind, deprecated=True)
    (warning,) = validate_runtime(obj, None).warnings
    assert warning.startswith(f'{kind} "rt" is deprecated and will be removed')
    assert not validate_runtime(obj, runtime(kind=kind, mlPolicy={})).warnings
    assert not validate_runtime(runtime(kind=kind), None).warnings


@pytest.mark.defect("U18")
def test_two_gang_schedulers_are_warned_about() -> None:
    both: JsonObject = {"coscheduling": {}, "volcano": {}}
    (warning,) = validate_runtime(runtime(podGroupPolicy=both), None).warnings
    assert warning.startswith("spec.podGroupPolicy: coscheduling and volcano are both set")
    assert not validate_runtime(runtime(podGroupPolicy={"volcano": {}}), None).warnings


def test_what_no_jobset_can_hold_is_refused() -> None:
    resources = {"limits": {"cpu": "many"}}
    result = validate_runtime(
        runtime(replicated_job(containers=[{"name": "node", "image": "i", "resources": resources}])), None
    )
    assert "spec.template.spec: Forbidden: cpu: 'many' is not a quantity" in result.message


def test_what_cannot_be_read_is_refused() -> None:
    assert validate_runtime(runtime(template=7), None).message == (
        "the runtime cannot be read: spec.template: must be an object, got 7"
    )


def test_a_runtime_without_a_template_is_admitted() -> None:
    obj = runtime()
    del obj["spec"]
    assert validate_runtime(obj, None).allowed
