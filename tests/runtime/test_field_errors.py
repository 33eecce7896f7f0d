"""The texts of errors are those of the API server's libraries."""

from __future__ import annotations

import pytest

from trainmaster.runtime.field_errors import FieldError, aggregate, did_you_mean


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FieldError("spec.a", "must be 1", value=2), "spec.a: Invalid value: 2: must be 1"),
        (FieldError("spec.a", "no", value='<"x">'), 'spec.a: Invalid value: "<\\"x\\">": no'),
        (FieldError("spec.a", "no"), "spec.a: Invalid value: null: no"),
        (FieldError("spec.a", "not now", type="Forbidden"), "spec.a: Forbidden: not now"),
        (FieldError("spec.a", "broken", type="InternalError"), "spec.a: Internal error: broken"),
        (FieldError("spec.a", "", type="Required", value=1), "spec.a: Required value"),
        (FieldError("spec.a", "", type="Duplicate", value="x"), 'spec.a: Duplicate value: "x"'),
        (
            FieldError("spec.a", "must be one of: b", type="NotSupported", value="c"),
            'spec.a: Unsupported value: "c": must be one of: b',
        ),
        (
            FieldError("spec.a", "may not be more than 3 bytes", type="TooLong", value="abcd"),
            "spec.a: Too long: may not be more than 3 bytes",
        ),
        (
            FieldError("spec.a", "must have at most 1 items", type="TooMany", value=2),
            "spec.a: Too many: 2: must have at most 1 items",
        ),
        (FieldError("spec.a", "", type="NotFound", value="x"), 'spec.a: Not found: "x"'),
        (
            FieldError("spec.a", "no", value={"kind": "K", "other": {"b": 1, "a": "<&>"}, "name": "n"}),
            'spec.a: Invalid value: {"name":"n","kind":"K","other":{"a":"\\u003c\\u0026\\u003e","b":1}}: no',
        ),
    ],
)
def test_one_error(error: FieldError, text: str) -> None:
    assert str(error) == text
    assert error.body == text.removeprefix(f"{error.path}: ")


def test_several_errors_are_a_list_without_repetitions() -> None:
    one, two = FieldError("a", "x", value=1), FieldError("b", "y", value=1)
    assert aggregate([one]) == "a: Invalid value: 1: x"
    assert aggregate([one, two, one]) == "[a: Invalid value: 1: x, b: Invalid value: 1: y]"
    assert aggregate([]) == ""


def test_messages_are_bounded() -> None:
    many = [FieldError(f"spec.f{number}", "x" * 100, value="v" * 10_000) for number in range(200)]
    text = aggregate(many)
    assert len(text) < 33_000
    assert text.endswith("...")
    assert aggregate([FieldError(f"f{number}", "x") for number in range(105)]).endswith(", and 5 more]")


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
