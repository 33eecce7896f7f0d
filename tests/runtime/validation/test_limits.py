"""What the schemas say is said by the webhooks too, and the rules of runtimes: each with what does not pass.

The definitions may be those of the original: `OTHERWISE` of `tests/runtime/api/test_crds.py` lists the rules
that stand in ours alone. Two of them need no webhook: with the definitions of the original there is no policy `custom`,
and its implementations of MPI are among ours.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.original_crds import at, nodes, rules_at
from support.validation import patch, pods, validate, validate_runtime

from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import limits, validate_trainjob
from trainmaster.runtime.validation.unmarshal import unmarshal_type_error

JOBS = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"


@pytest.mark.parametrize(
    ("kind", "table"),
    [("TrainJob", limits.TRAINJOB), ("TrainingRuntime", limits.RUNTIME), ("ClusterTrainingRuntime", limits.RUNTIME)],
)
def test_the_tables_hold_all_limits_there_are(kind: str, table: Mapping[str, limits.Items | limits.Length]) -> None:
    found = {
        path: (limit, node[limit])
        for path, node in nodes(at(kind, "spec"), "spec")
        for limit in ("maxItems", "maxLength")
        if limit in node
    }
    assert found == {
        path: ("maxItems" if isinstance(most, limits.Items) else "maxLength", most) for path, most in table.items()
    }


class Untouched(Framework):
    """Plugins that nobody is to call."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} is asked for")


class Unread:
    """Listers that nobody is to ask."""

    def get(self, *_: Any) -> JsonObject | None:
        raise AssertionError("the cluster is asked")

    list = get


def refusal(obj: JsonObject) -> str:
    """What is answered to a TrainJob without a look at anything else."""
    return validate_trainjob(obj, None, framework=object.__new__(Untouched), listers=Unread()).message  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"runtimePatches": [patch(pods(), f"acme.io/m{number}") for number in range(17)]},
            "spec.runtimePatches: Too many: 17: must have at most 16 items",
        ),
        ({"runtimePatches": [patch({"name": "x" * 254})]}, f"{JOBS}[0].name: Too long: may not be more than 253 bytes"),
        (
            {
                "runtimePatches": [
                    patch(pods(containers=[{"name": "node", "env": [{"name": f"v{n}"} for n in range(129)]}]))
                ]
            },
            f"{JOBS}[0].template.spec.template.spec.containers[0].env: Too many: 129: must have at most 128 items",
        ),
        ({"trainer": {"image": "i" * 501}}, "spec.trainer.image: Too long: may not be more than 500 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_too_long_is_named(spec: JsonObject, message: str) -> None:
    assert refusal(trainjob_object(**spec)) == message


def test_everything_at_its_limit_is_admitted() -> None:
    patches = [patch(pods(nodeSelector={"a": "b"}), f"acme.io/m{number}") for number in range(16)]
    variables = [{"name": f"v{number}"} for number in range(128)]
    trainer = {"image": "i" * 500, "env": variables, "args": ["x"] * 128}
    assert validate(trainjob_object(trainer=trainer, runtimePatches=patches), runtime_object()).allowed


def test_values_of_wrong_types_are_the_business_of_others() -> None:
    for spec in ({"runtimePatches": "x" * 300}, {"trainer": [1] * 300}, {"runtimeRef": {"name": 7}}, "x" * 300, None):
        assert list(limits.trainjob_limits({"spec": spec})) == []


def test_what_is_stored_beyond_a_limit_can_still_be_suspended_and_deleted() -> None:
    """It was stored by a definition without the limit."""
    many = [patch(pods(), f"acme.io/m{number}") for number in range(17)]
    stored = trainjob_object(runtimePatches=many)
    assert validate(trainjob_object(runtimePatches=many, suspend=True), runtime_object(), old=stored).allowed
    assert not validate(trainjob_object(runtimePatches=many, trainer={"numNodes": 2}), old=stored).allowed


def test_limits_of_runtimes_are_enforced_too() -> None:
    targets = [{"jobName": "node"}] * 17
    obj = runtime_object(policy={"torch": {"envInjection": {"targets": targets}}})
    message = "spec.mlPolicy.torch.envInjection.targets: Too many: 17: must have at most 16 items"
    assert validate_runtime(obj, None).message == message


PROCESSES = "spec.mlPolicy.mpi.numProcPerNode"


def test_the_webhooks_say_of_trainjobs_what_our_schema_says() -> None:
    result = validate(trainjob_object(trainer={"numNodes": -1, "numProcPerNode": 0}), runtime_object())
    [(_, message)] = rules_at("TrainJob", "spec.trainer.numProcPerNode")
    assert [str(error) for error in result.errors] == [
        "spec.trainer.numNodes: Invalid value: -1: must be greater than or equal to 1",
        f"spec.trainer.numProcPerNode: Invalid value: 0: {message}",
    ]


def test_the_webhooks_say_of_runtimes_what_our_schema_says() -> None:
    obj: JsonObject = runtime_object(policy={"mpi": {"numProcPerNode": -3}}, volumeClaimPolicies=[{}])
    [(_, message)] = rules_at("TrainingRuntime", PROCESSES)
    assert [str(error) for error in validate_runtime(obj, None).errors] == [
        f"{PROCESSES}: Invalid value: -3: {message}",
        "spec.template.spec.volumeClaimPolicies[0].templates: Required value",
    ]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"trainer": {"numProcPerNode": "auto"}},
            "string into Go struct field Trainer.spec.trainer.numProcPerNode of type int32",
        ),
        ({"trainer": {"numNodes": 1.5}}, "number 1.5 into Go struct field Trainer.spec.trainer.numNodes of type int32"),
        (
            {"trainer": {"numNodes": 2**31}},
            "number 2147483648 into Go struct field Trainer.spec.trainer.numNodes of type int32",
        ),
        ({"trainer": {"args": ["a", 1]}}, "number into Go struct field Trainer.spec.trainer.args of type string"),
        ({"trainer": {"env": {}}}, "object into Go struct field Trainer.spec.trainer.env of type []v1.EnvVar"),
        ({"trainer": []}, "array into Go struct field TrainJobSpec.spec.trainer of type v1alpha1.Trainer"),
        ({"suspend": "yes", "managedBy": 1}, "number into Go struct field TrainJobSpec.spec.managedBy of type string"),
        ({"suspend": 1}, "number into Go struct field TrainJobSpec.spec.suspend of type bool"),
        ({"runtimeRef": {"name": True}}, "bool into Go struct field RuntimeRef.spec.runtimeRef.name of type string"),
    ],
)
def test_values_of_the_wrong_type_are_told_of_in_the_words_of_the_original(spec: Any, text: str) -> None:
    assert unmarshal_type_error({"spec": spec}) == f"json: cannot unmarshal {text}"


@pytest.mark.parametrize("spec", [None, {}, {"trainer": None, "suspend": True, "unknown": 7}])
def test_what_fits_is_not_told_of(spec: Any) -> None:
    assert unmarshal_type_error({"spec": spec}) is None


def runtime(*jobs: JsonObject, kind: str = "TrainingRuntime", deprecated: bool = False, **fields: Any) -> JsonObject:
    obj = runtime_object(*jobs)
    obj["kind"] = kind
    obj["spec"] |= fields
    if deprecated:
        obj["metadata"]["labels"]["trainer.kubeflow.org/support"] = "deprecated"
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
