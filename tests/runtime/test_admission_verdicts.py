"""The texts of verdicts are those of the API server's libraries."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.runtime.extension import FieldError
from trainmaster.runtime.validation import aggregated, described
from trainmaster.runtime.validation.suggestions import did_you_mean
from trainmaster.runtime.validation.wrong_types import undecodable


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (FieldError("spec.a", "must be 1", value=2), "spec.a: Invalid value: 2: must be 1"),
        (FieldError("spec.a", "no", value='<"x">'), 'spec.a: Invalid value: "<\\"x\\">": no'),
        (FieldError("spec.a", "no"), "spec.a: Invalid value: null: no"),
        (FieldError("spec.a", "not now", reason="Forbidden"), "spec.a: Forbidden: not now"),
        (FieldError("spec.a", "broken", reason="InternalError"), "spec.a: Internal error: broken"),
        (
            FieldError("spec.a", "no", value={"kind": "K", "other": {"b": 1, "a": "<&>"}, "name": "n"}),
            'spec.a: Invalid value: {"name":"n","kind":"K","other":{"a":"\\u003c\\u0026\\u003e","b":1}}: no',
        ),
    ],
)
def test_one_finding(finding: FieldError, text: str) -> None:
    assert described(finding) == text


def test_several_findings_are_a_list_without_repetitions() -> None:
    one, two = FieldError("a", "x", value=1), FieldError("b", "y", value=1)
    assert aggregated([one]) == "a: Invalid value: 1: x"
    assert aggregated([one, two, one]) == "[a: Invalid value: 1: x, b: Invalid value: 1: y]"
    assert aggregated([]) == ""


def test_messages_are_bounded() -> None:
    many = [FieldError(f"spec.f{number}", "x" * 100, value="v" * 10_000) for number in range(200)]
    text = aggregated(many)
    assert len(text) < 33_000
    assert text.endswith("...")
    assert aggregated([FieldError(f"f{number}", "x") for number in range(105)]).endswith(", and 5 more]")


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("nde", ["node", "launcher"], '(did you mean "node"?)'),
        ("trainer", ["node"], "(there are: node)"),
        ("x", [], "(there are none)"),
        (
            "x",
            [f"job{number}" for number in range(12)],
            "(there are: " + ", ".join(f"job{n}" for n in range(10)) + ", ...)",
        ),
    ],
)
def test_suggestions(name: str, known: list[str], text: str) -> None:
    assert did_you_mean(name, known) == text


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
    assert undecodable({"spec": spec}) == f"json: cannot unmarshal {text}"


@pytest.mark.parametrize("spec", [None, {}, {"trainer": None, "suspend": True, "unknown": 7}])
def test_what_fits_is_not_told_of(spec: Any) -> None:
    assert undecodable({"spec": spec}) is None
