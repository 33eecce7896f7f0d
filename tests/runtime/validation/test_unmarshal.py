"""Values of the wrong type are told of as Go's decoder would."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.runtime.validation.unmarshal import unmarshal_type_error


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
