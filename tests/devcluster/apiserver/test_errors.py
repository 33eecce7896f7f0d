"""Status errors, as clients match on them."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.resources import JOBS, PODS


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FieldError("spec.x", "Required"), "spec.x: Required value"),
        (FieldError("spec.x", "Required", detail="say it"), "spec.x: Required value: say it"),
        (FieldError("spec.x", "Invalid", "a", "no"), 'spec.x: Invalid value: "a": no'),
        (FieldError("spec.x", "Invalid", {"a": [1]}, "no"), 'spec.x: Invalid value: {"a":[1]}: no'),
        (FieldError("spec.x", "Invalid", errors.OMITTED, "no"), "spec.x: Invalid value: no"),
        (FieldError("spec.x", "Duplicate", True), "spec.x: Duplicate value: true"),
        (FieldError("spec.x", "Forbidden", "hidden", "no"), "spec.x: Forbidden: no"),
        (FieldError("", "Invalid", None, "no"), "<nil>: Invalid value: null: no"),
    ],
)
def test_field_errors_read_as_in_kubernetes(error: FieldError, text: str) -> None:
    assert str(error) == text


def test_a_message_says_once_what_causes_say_as_often_as_validators_do() -> None:
    one, two = FieldError("a", "Required"), FieldError("b", "TypeInvalid", 1, "no")
    status = errors.invalid("g.io", "Thing", "x", [one, two, one]).status()
    assert status["message"] == 'Thing.g.io "x" is invalid: [a: Required value, b: Invalid value: 1: no]'
    assert status["code"] == 422
    assert status["details"] == {
        "name": "x",
        "group": "g.io",
        "kind": "Thing",
        "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "a"},
            {"reason": "FieldValueTypeInvalid", "message": "Invalid value: 1: no", "field": "b"},
            {"reason": "FieldValueRequired", "message": "Required value", "field": "a"},
        ],
    }


def test_details_name_the_resource() -> None:
    status = errors.not_found(JOBS, 'a"b').status()
    assert status["message"] == 'jobs.batch "a\\"b" not found'
    assert status["details"] == {"name": 'a"b', "group": "batch", "kind": "jobs"}


def test_forbidden_names_its_subject_if_there_is_one() -> None:
    assert errors.forbidden("no", resource=PODS, name="p").message == 'pods "p" is forbidden: no'
    assert errors.forbidden("no", resource=PODS).message == "pods is forbidden: no"
    assert "details" not in errors.forbidden("no").status()


def test_a_delay_is_part_of_the_details() -> None:
    assert errors.timeout("slow down", retry_after=7).status()["details"] == {"retryAfterSeconds": 7}
